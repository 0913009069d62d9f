"""Coordinates groups of the consumer protocol (KIP-848): the coordinator assigns partitions, the members reconcile."""
