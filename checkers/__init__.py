"""Defines what "wrong" means for a history, in plain Python. The package is private, as `squall` says."""
