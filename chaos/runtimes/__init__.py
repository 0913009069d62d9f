"""Runs clusters: as OS processes, in containers, in simulation, or as somebody else's running cluster."""
