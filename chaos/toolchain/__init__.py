"""Finds programs that are not Python packages, such as Java and Toxiproxy: on PATH, else in the cache folder, into
which they are built or fetched once.
"""
