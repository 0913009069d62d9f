"""Carries out one run: from a plan to a run directory that can be judged, on real runtimes and in virtual time."""
