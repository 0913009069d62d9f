"""Reads nights of many runs: the files that a night leaves, the store that keeps its results, and the statistics of
these results.
"""
