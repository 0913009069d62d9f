"""Runs real client libraries, each in an OS process of its own, as producers, readers and group members of a workload.
"""
