"""Holds each node's image of the cluster (brokers, topics, partitions, settings), and builds it from metadata records
and snapshots. Every implementation of the control plane uses this package: KRaft, and the scripted ones of tests.
"""
