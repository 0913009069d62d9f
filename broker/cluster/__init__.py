"""Holds each node's image of the cluster (brokers, topics, partitions, settings), and builds it from metadata records
and snapshots, for every control plane.
"""
