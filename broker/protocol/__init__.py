"""Kafka bytes into values and back. Sans-IO."""
