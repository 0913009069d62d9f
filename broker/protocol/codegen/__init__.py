"""Writes broker/protocol/schema: `python -m broker.protocol.codegen`. A development tool, never imported by a broker.

`from_kio` reads kio's class per message and version and merges each message's versions into one model; `declared`
holds the records that kio lacks, in the same form; `emit` turns models into straight-line code, one pair of functions
for each distinct wire shape of each structure.
"""
