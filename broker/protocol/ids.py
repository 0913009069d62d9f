"""Defines the id that means no broker, and reads broker ids from text."""

from __future__ import annotations

from typing import Final

NO_NODE: Final = -1
"""Means no broker: a partition without a leader, a vote that was not given, an unknown controller."""


def broker_id_in(name: str) -> int | None:
    """Return the broker id that a resource's name spells, or None if it is no decimal number of at most 31 bits."""
    if not (name.isdecimal() and name.isascii()) or len(name) > len(str(2**31)):
        return None
    return found if (found := int(name)) < 2**31 else None
