"""Serves connections: listeners, frames, responses in order, deadlines and wake-ups. Also sends requests to other
nodes.
"""
