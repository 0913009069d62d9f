"""Runs a night: many runs over many configurations, planned as a matrix, played within a budget, and resumable."""
