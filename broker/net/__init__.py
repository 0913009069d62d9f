"""Listeners, connections, frames, peers and deadlines."""
