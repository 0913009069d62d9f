"""Real client libraries, each in a process of its own, as producers and readers of a run's workload."""
