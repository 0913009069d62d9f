"""Defines the tables of what readers learned besides records and watermarks: that a position is invalid, and the offset
of a time.

As in `squall.checkers.history.tables`, all values are integers, times are ns of the run's clock, and -1 means "not
known".
"""

from __future__ import annotations

from typing import NamedTuple


class InvalidatedPosition(NamedTuple):
    """Records that a reader learned that its position is invalid: its records are gone, or were replaced by others."""

    t: int
    proc: int
    part: int
    kind: int
    """Is TRUNCATED (0) if the log was truncated below the reader's position, or OUT_OF_RANGE (1) if the position is
    outside of the leader's log.
    """
    position: int
    log_start: int
    """Is the log start offset; -1 if it was not reported."""
    end: int
    """Is the first offset that differs (TRUNCATED), or the high watermark (OUT_OF_RANGE); -1 if it was not reported."""


class TimeLookup(NamedTuple):
    """Records that a reader looked up a timestamp (ListOffsets) after it had got a record with that timestamp or a
    later one.
    """

    op: int
    proc: int
    part: int
    known: int
    """Is the lowest offset at which the reader had got, from the same leader epoch, a record with the requested
    timestamp or a later one. The answer must not be above it.
    """
    off: int
    """Is the offset in the answer; -1 if no record has the requested timestamp or a later one."""
    t0: int
    t1: int
