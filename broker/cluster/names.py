"""Defines the names of internal topics and logs, and checks topic names."""

from __future__ import annotations

METADATA_TOPIC = "__cluster_metadata"
"""Names the metadata log, which the controllers replicate (KRaft)."""
METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""Is the fixed topic id of the metadata log (KIP-516)."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Names the topics of the coordinators' logs, which only their coordinators write."""
MAX_NAME_LENGTH = 249
MAX_DIRECTORY_LENGTH = 255
"""Limits the name of a partition's directory: topic name, dash and partition number. File systems allow no more."""
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def name_fault(name: str) -> str | None:
    """Return why a topic's name is invalid, or None if it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return "'.' or '..' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not NAME_CHARACTERS.issuperset(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
