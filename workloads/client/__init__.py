"""Implements a small Kafka client on trio and Env, which reports exact outcomes: ok, fail or info."""
