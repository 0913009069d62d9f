"""The transaction coordinator's shard: what becomes of the transactional ids of one partition of the log."""
