"""Carries out one run, from a plan to a run directory that can be judged, with real brokers or in virtual time."""
