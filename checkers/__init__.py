"""Defines what "wrong" means, in plain Python."""
