"""Computes the gaps in which clients tried and nothing succeeded, as `squall.checkers.metrics.MeasurementRow` defines
them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Protocol

from squall.checkers.history.tables import OK

Gap = tuple[int, int]
"""Is (begin, end), in ns, of a time in which clients tried and nothing succeeded."""


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
        moments += ((each.t0, False, each.st == OK), (waited_until(each), True, each.st == OK))
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


def waited_until(one: OperationAttempt) -> int:
    """Return the time in ns until which an operation waited for its result. If no result came, return the time of the
    request, because it is not known how long the client waited.
    """
    return one.t1 if one.t1 >= 0 else one.t0


def _joined(found: dict[bool, Gap]) -> list[Gap]:
    """Return the gaps in `found`, in order of time; two that overlap become one. `found` maps False to the gap of
    failed operations, and True to the gap of operations that waited and were acknowledged in the end.
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
