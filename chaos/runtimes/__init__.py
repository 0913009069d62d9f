"""Runs clusters: as processes, in containers, in simulation, or somebody else's."""
