"""Listeners, connections, frames, peers, deadlines and wake-ups."""
