"""Kafka bytes into values and back. Sans-IO."""

# The codec is our own, generated once and checked in. Five bytes can make kio abort as a server's codec, and it
# encodes slowly.
