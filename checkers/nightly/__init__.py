"""Nights of many runs: what they left, the store in which their results stay, and how these are counted."""
