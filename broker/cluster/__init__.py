"""Holds each node's image of the cluster (brokers, topics, partitions, settings), and builds it from metadata records
and snapshots. Every control plane uses this package: KRaft's, and those of tests.
"""
