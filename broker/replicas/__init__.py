"""The replicas that this broker hosts: manager, waiters, fetchers, flushes, ISR proposals."""
