"""The replicas that this broker hosts: manager, fetchers, flushes, ISR proposals."""
