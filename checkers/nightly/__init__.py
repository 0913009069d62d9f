"""Reads the results of nightly sessions. A night is one session that runs many items; an item is one configuration of a
matrix with faults and a seed. This package has the files that a night leaves, the store that keeps its results, and the
statistics of these results.
"""
