"""Reads what readers of a partition got, one answer each, as stories take it from the history. Pure."""

from __future__ import annotations

from typing import NamedTuple

THROWN = ("log_truncated", "offset_out_of_range")
"""Kinds of events of the history: what a reader was told."""


class PolledRange(NamedTuple):
    """Holds what one read got of the partition. `at`: its position before; -1 if something is not known, or is nothing.
    """

    t: float
    process: int
    op: int
    at: int
    first: int
    last: int
    many: int
    hw: int
    lso: int
    final: bool
    listed: int = -1
    """Not a read, but a ListOffsets: what it answered."""


class InvalidPosition(NamedTuple):
    """A reader whose position became impossible. `end`: of its leader's log."""

    t: float
    process: int
    kind: str
    position: int
    log_start: int
    end: int
