"""Checks topic names."""

from __future__ import annotations

METADATA_TOPIC = "__cluster_metadata"
"""The controllers' own log."""
METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""Its fixed id (KIP-516)."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""The coordinators' logs, which only their coordinators write."""
MAX_NAME_LENGTH = 249
MAX_DIRECTORY_LENGTH = 255
"""Of a partition's directory: the topic's name, a dash and the partition's number. File systems have no more."""
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def name_fault(name: str) -> str | None:
    """Return what is wrong with a topic's name; None if it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return "'.' or '..' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not NAME_CHARACTERS.issuperset(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
