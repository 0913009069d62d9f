"""Raft for the metadata log, as KRaft does it. Pure: step / tick / ready."""
