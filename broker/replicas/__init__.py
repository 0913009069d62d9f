"""Hosts the replicas of this broker: replica manager, purgatory, fetchers, flushes and ISR proposals."""
