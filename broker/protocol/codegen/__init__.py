"""Generates broker/protocol/schema: `python -m squall.broker.protocol.codegen`. A development tool, never imported by a
broker.

Its source is kio, a Python library with one class for each version of each Kafka message. `from_kio` merges the
versions of each message into one model; `declared` holds the records that kio lacks, in the same form; `facts` has what
kio's classes do not say. `emit` turns models into modules, `functions` into straight-line code: one reader and one
writer for each distinct wire layout ("shape") of a structure.
"""

# One dataclass represents all versions of a message, so a handler is written once and version ranges are in generated
# code. Rejected: a class for each version.
