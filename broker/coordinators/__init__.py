"""Coordinators as shards that decide and replay: pure, one shard for each partition of a coordinator's log."""
