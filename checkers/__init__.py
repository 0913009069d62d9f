"""Defines what "wrong" means, in plain Python. Private, as `squall` says."""
