"""Implements the transaction coordinator's shard: it decides over the transactional ids of one partition of the log."""
