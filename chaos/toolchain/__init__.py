"""Finds the programs that are no Python packages: on PATH, else in the cache folder, where they are made once."""
