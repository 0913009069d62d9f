"""Holds plans as data: what a run is, and how a seed draws a run."""
