"""Hosts the replicas of this broker: replica manager, purgatory, fetchers, flushes, and requests for ISR changes."""
