"""Broker ids as the protocol has them."""

from __future__ import annotations

from typing import Final

NO_NODE: Final = -1
"""No broker: a partition without a leader, a vote that was not given, a controller that is not known."""


def broker_id_in(name: str) -> int | None:
    """The id that a resource's name is; None where it is none: no decimal digits, or more than 32 bits hold."""
    if not (name.isdecimal() and name.isascii()) or len(name) > len(str(2**31)):
        return None
    return found if (found := int(name)) < 2**31 else None
