"""Implements the transaction coordinator's shard, which handles the transactional ids of one partition of
__transaction_state.
"""
