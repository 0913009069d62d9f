"""Decodes and encodes Kafka's wire protocol and record batches, without I/O."""

# The codec is our own, generated once and checked in. Five bytes can make kio abort as a server's codec, and it
# encodes slowly.
