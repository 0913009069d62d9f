"""Finds Kafka's frames inside streams of bytes, for faults that act on single requests or responses. Pure."""
