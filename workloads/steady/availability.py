"""Measures from the history for how long no operation succeeded. Does no I/O.

A write succeeds when its acknowledgement comes, a read when a poll is answered, with records or without. A gap is the
time between two consecutive successes. Only the time from the load's first send to its last send counts. Its begin and
its end count as successes, so that a gap never extends beyond the load.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from squall.checkers.history.tables import EMPTY_POLL, OK, POLL, SEND
from squall.checkers.history.values import AFTER_HEALING, producer_of

if TYPE_CHECKING:
    from squall.checkers.history.tables import History, RecordedFault

STANDSTILL_S = 1.0
"""Is the length in seconds from which a gap counts as a standstill. It is above half a second, because an empty poll is
recorded only twice a second.
"""
INTERVALS = 3
"""A gap counts as a standstill only if it lasts at least STANDSTILL_S, and also at least this many times the interval
between two records: at a low rate, successes are further apart than STANDSTILL_S.
"""


class AvailabilityGap(NamedTuple):
    """Describes the time between two consecutive successes, in ns on the run's clock."""

    begin: int
    end: int

    @property
    def length(self) -> int:
        """Returns the length of the gap in ns."""
        return self.end - self.begin

    def meets(self, begin: int, end: int) -> bool:
        """Return whether the gap and [begin, end] overlap."""
        return self.begin < end and begin < self.end


def gaps(successes: Iterable[int], begin: int, end: int) -> list[AvailabilityGap]:
    """Return the gaps between the successes in [begin, end], in order, without empty gaps."""
    moments = [begin, *sorted({each for each in successes if begin < each < end}), end]
    return [AvailabilityGap(a, b) for a, b in zip(moments, moments[1:], strict=False) if a < b]


def measure(history: History, faults: Sequence[RecordedFault], rate: float) -> dict[str, Any]:
    """Return the availability figures for verdict.json; empty if nothing was sent. Times are seconds since the history
    began. `rate` is the load's number of records per second: if it is low, only longer gaps count as standstills.
    """
    due, acked, answered = [], [], []
    afterwards = [each.proc for each in history.processes if AFTER_HEALING in each.settings]
    for record in history.records.rows():
        if record.kind == SEND:
            if producer_of(record.val) in afterwards:
                continue
            due.append(record.t0)
            if record.st == OK:
                acked.append(record.t1)
        elif record.kind in (POLL, EMPTY_POLL) and not record.final and record.st == OK:
            answered.append(record.t1)
    if not due:
        return {}
    begin, end = min(due), max(due)
    least_s = max(STANDSTILL_S, INTERVALS / rate)
    lines = {"writes": gaps(acked, begin, end), "reads": gaps(answered, begin, end)}

    def seconds(ns: int) -> float:
        return round((ns - history.mono_ns) / 1e9, 3)

    def whole(found: Sequence[AvailabilityGap]) -> dict[str, Any]:
        long = _standstills(found, least_s)
        share = 1 - _total_s(long) / ((end - begin) / 1e9) if end > begin else 0.0
        spans = [{"from_s": seconds(gap.begin), "to_s": seconds(gap.end)} for gap in long]
        return {**_summary(found, least_s), "available": round(share, 5), "standstills": spans}

    return {
        "from_s": seconds(begin),
        "to_s": seconds(end),
        "standstill_s": round(least_s, 3),
        **{name: whole(found) for name, found in lines.items()},
        "faults": [
            {
                "id": fault.id,
                "action": fault.action,
                "hit": [str(each) for each in fault.resolved],
                "began_s": seconds(fault.began),
                "ended_s": seconds(fault.ended) if fault.ended >= 0 else None,
                **{
                    name: _summary([gap for gap in found if gap.meets(*_on(fault, end))], least_s)
                    for name, found in lines.items()
                },
            }
            for fault in faults
            if fault.began >= 0
        ],
    }


def _on(fault: RecordedFault, end: int) -> tuple[int, int]:
    """Return (begin, end) of the time in which the fault was on. A fault without an end counts as on until the load's
    end.
    """
    return fault.began, fault.ended if fault.ended >= 0 else max(end, fault.began)


def _standstills(found: Sequence[AvailabilityGap], least_s: float) -> list[AvailabilityGap]:
    return [gap for gap in found if gap.length >= least_s * 1e9]


def _total_s(found: Iterable[AvailabilityGap]) -> float:
    return sum(gap.length for gap in found) / 1e9


def _summary(found: Sequence[AvailabilityGap], least_s: float) -> dict[str, float]:
    """Return the length of the longest of these gaps (`longest_s`), and the total length of those that last at least
    `least_s` seconds (`without_s`).
    """
    longest = max((gap.length for gap in found), default=0)
    return {"longest_s": round(longest / 1e9, 3), "without_s": round(_total_s(_standstills(found, least_s)), 3)}
