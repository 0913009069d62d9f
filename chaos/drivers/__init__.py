"""Runs real client libraries, each in a process of its own, as producers, readers and group members of a workload."""
