"""Implements Raft for the metadata log, as KRaft does, without I/O: see `raft.Raft` with step, tick and ready."""
