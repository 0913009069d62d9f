"""Kafka's frames inside streams of bytes, for faults that hit a request. Pure."""
