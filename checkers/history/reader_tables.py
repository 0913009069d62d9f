"""The tables of what brokers answered to readers beside records and marks.

As in `squall.checkers.history.tables`, everything is an integer, times are ns of the run's clock, and -1 is "not
known".
"""

from __future__ import annotations

from typing import NamedTuple


class InvalidatedPosition(NamedTuple):
    """A reader was told that its position is impossible: its records are gone, or were replaced by others."""

    t: int
    proc: int
    part: int
    kind: int
    """TRUNCATED or OUT_OF_RANGE."""
    position: int
    log_start: int
    """-1 where not told."""
    end: int
    """TRUNCATED: the first offset that differs, OUT_OF_RANGE: the high watermark; -1 where not told."""


class TimeLookup(NamedTuple):
    """A reader asked which offset belongs to a time, and had got a record that is not earlier."""

    op: int
    proc: int
    part: int
    known: int
    """The lowest offset of such a record that the reader had got, from the leader epoch that answered."""
    off: int
    """The answer; -1: no record is so late."""
    t0: int
    t1: int
