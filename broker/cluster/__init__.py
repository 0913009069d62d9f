"""Holds the image of the cluster, and builds it by replay, from snapshots, and through the feed; for every control
plane.
"""
