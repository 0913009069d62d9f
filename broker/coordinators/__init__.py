"""Implements coordinators as pure shards that decide requests and replay records: one shard for each partition of a
coordinator's log.
"""
