"""Hosts the coordinators' shards of this broker: one shard for each partition of a coordinator's log that it leads."""
