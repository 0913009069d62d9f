"""The group coordinator's shard: committed offsets and classic groups as state machines, without any I/O."""
