"""Drives a cluster as real applications do and writes the history. Private, as `squall` says."""
