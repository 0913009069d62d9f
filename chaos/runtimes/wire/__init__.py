"""Finds Kafka's requests and responses ("frames") inside streams of bytes, for faults that act on single ones. It does
no I/O.
"""
