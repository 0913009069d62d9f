"""Extracts from the history what readers of a partition got, answer by answer, for stories. Pure."""

from __future__ import annotations

from typing import NamedTuple

THROWN = ("log_truncated", "offset_out_of_range")
"""Lists the kinds of events in the history that report an invalid position to a reader."""


class PolledRange(NamedTuple):
    """Holds the offsets of the partition that one read returned. `at` is the reader's position before the read. -1
    means not known, or none.
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
    """Holds the offset that a ListOffsets request returned; -1 if the operation was a read."""


class InvalidPosition(NamedTuple):
    """Describes a reader whose position was found invalid. `kind` is one of THROWN: the log was truncated below the
    position, or the position is outside of the log. `log_start` and `end` are the start and end of the leader's log.
    """

    t: float
    process: int
    kind: str
    position: int
    log_start: int
    end: int
