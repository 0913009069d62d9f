"""Computes the gaps in which clients tried and nothing succeeded, as `squall.checkers.metrics.MeasurementRow` defines
them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Protocol

from squall.checkers.history.tables import OK

Gap = tuple[int, int]
"""Is (begin, end) of a gap, in ns."""


class OperationAttempt(Protocol):
    """Describes an operation that a client requested: a send, or a transaction."""

    @property
    def st(self) -> int:
        """Return the result of the operation: OK, FAIL or INFO."""

    @property
    def t0(self) -> int:
        """Return when the client requested the operation, in ns."""

    @property
    def t1(self) -> int:
        """Return when the result came, in ns; -1 if it never did."""


def unanswered(tries: Iterable[OperationAttempt]) -> list[Gap]:
    """Return the gaps in which a client tried and nothing was acknowledged, in order."""
    moments: list[tuple[int, bool, bool]] = []
    for each in tries:
        moments += ((each.t0, False, each.st == OK), (given_up(each), True, each.st == OK))
    # At one instant begins come before ends, so failed attempts that touch make one gap.
    moments.sort()
    gaps: list[Gap] = []
    # Acknowledged and failed operations make a stretch each. An acknowledgement ends both, and `_joined` merges them.
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
    """Return until when an operation counts as waiting, in ns: until its result came. If none ever came, it is only the
    time of the request, because it is not known how long its client waited.
    """
    return one.t1 if one.t1 >= 0 else one.t0


def _joined(found: dict[bool, Gap]) -> list[Gap]:
    """Return the gaps in `found`, in order of time: that of the operations that failed (key False) and that of the
    operations that were acknowledged in the end (key True). If they overlap, return them as one gap.
    """
    gaps = sorted(found.values())
    if len(gaps) == 2 and gaps[1][0] <= gaps[0][1]:
        return [(gaps[0][0], max(gap[1] for gap in gaps))]
    return gaps


def within(gaps: Iterable[Gap], begin: int, end: int) -> list[Gap]:
    """Return the parts of these gaps that lie between two times, in ns."""
    return [(max(gap[0], begin), min(gap[1], end)) for gap in gaps if gap[1] > begin and gap[0] < end]


def longest(gaps: list[Gap]) -> tuple[float, float]:
    """Return (length, begin) of the longest gap, in ns; the first of several."""
    length, negative_begin = max((end - begin, -begin) for begin, end in gaps)
    return length, -negative_begin
