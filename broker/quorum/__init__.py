"""Implements Raft for the metadata log, as KRaft does. The code is pure: step / tick / ready."""
