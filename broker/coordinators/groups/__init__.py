"""Implements the group coordinator's shard without I/O: committed offsets, classic groups and consumer groups."""
