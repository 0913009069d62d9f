"""Simulates many nodes in one process under virtual time, and draws every random choice from a seed."""
