"""The times in which clients tried and nothing was done for them, as `squall.checkers.metrics.Measure` defines them.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Protocol

from squall.checkers.history.tables import OK

Gap = tuple[int, int]
"""(begin, end), ns."""


class OperationAttempt(Protocol):
    """Something that a client asked for: a send, or a transaction."""

    @property
    def st(self) -> int:
        """OK, FAIL or INFO."""

    @property
    def t0(self) -> int:
        """Return when the client asked, ns."""

    @property
    def t1(self) -> int:
        """Return when the outcome came, ns; -1 if it never did."""


def unanswered(tries: Iterable[OperationAttempt]) -> list[Gap]:
    """Return the times in which somebody tried and nothing was acknowledged, in order."""
    moments: list[tuple[int, bool, bool]] = []
    for each in tries:
        moments += ((each.t0, False, each.st == OK), (given_up(each), True, each.st == OK))
    moments.sort()
    gaps: list[Gap] = []
    on = {True: 0, False: 0}
    found: dict[bool, Gap] = {}
    for (t, ends, acked), (until, *_) in pairwise(moments):
        on[acked] += -1 if ends else 1
        if ends and acked:
            gaps += _joined(found)
            found = {}
        for which in (True, False):
            if on[which]:
                found[which] = (found[which][0] if which in found else t), until
    return gaps + _joined(found)


def given_up(one: OperationAttempt) -> int:
    """Return when its outcome came. Nobody knows how long its client waited where it never came."""
    return one.t1 if one.t1 >= 0 else one.t0


def _joined(found: dict[bool, Gap]) -> list[Gap]:
    """Tries that failed, and the one that was acknowledged: one gap where they touch."""
    gaps = sorted(found.values())
    if len(gaps) == 2 and gaps[1][0] <= gaps[0][1]:
        return [(gaps[0][0], max(gap[1] for gap in gaps))]
    return gaps


def within(gaps: Iterable[Gap], begin: int, end: int) -> list[Gap]:
    """Return what lies between two times of each gap that has a part there, in ns."""
    return [(max(gap[0], begin), min(gap[1], end)) for gap in gaps if gap[1] > begin and gap[0] < end]


def longest(gaps: list[Gap]) -> tuple[float, float]:
    """Return (length, begin) of the longest one, the first of several."""
    length, negative_begin = max((end - begin, -begin) for begin, end in gaps)
    return length, -negative_begin
