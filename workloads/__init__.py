"""Drives a cluster as real applications do and writes the history. The package is private, as `squall` says."""
