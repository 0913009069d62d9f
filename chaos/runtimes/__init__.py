"""Runs clusters: as processes, in containers, in simulation, or as somebody else's running cluster."""
