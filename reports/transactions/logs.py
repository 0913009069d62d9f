"""Reconstructs a partition's log at a moment, as far as offsets are known: records, markers, last stable offset. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from squall.reports.story_facts import FAILED
from squall.reports.transactions.observed import ObservedTxn, TransactionFacts

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
COLUMNS_AT_MOST = 10


@dataclass(frozen=True, slots=True)
class OffsetContent:
    """Describes the record or marker at an offset from `since` on. `value` is -1 for a marker."""

    offset: int
    since: float
    op: int
    value: int = -1
    commit: bool = False


class PartitionLog:
    """Holds the known records and markers of one partition, in order of offset."""

    def __init__(self, found: TransactionFacts, partition: str) -> None:
        self._known = found.known
        self.entries: dict[int, OffsetContent] = {}
        self._ended: dict[int, list[tuple[float, bool]]] = {}
        for txn in found.txns:
            for part in txn.parts:
                if part.partition == partition:
                    self._take_record(found, txn.op, part.sent.value, part.sent.offset, part.sent.done, part.sent.state)
            for marker in txn.markers:
                if marker.partition == partition and marker.offset >= 0 and not marker.error:
                    self.entries[marker.offset] = OffsetContent(marker.offset, marker.t, txn.op, commit=marker.commit)
                    self._ended.setdefault(txn.op, []).append((marker.t, marker.commit))

    def _take_record(
        self, found: TransactionFacts, op: int, value: int, offset: int, done: float | None, state: str
    ) -> None:
        reads = found.reads.get(value, ())
        offset = offset if offset >= 0 else next((read.offset for read in reads), -1)
        times = [read.t for read in reads[:1]] + ([done] if done is not None and state != FAILED else [])
        if offset >= 0 and times:
            self.entries[offset] = OffsetContent(offset, min(times), op, value)

    def state_at(self, entry: OffsetContent, t: float) -> str:
        """Return the state of the entry's transaction at `t`: open, committed or aborted."""
        ends = [commit for at, commit in self._ended.get(entry.op, ()) if at <= t]
        return OPEN if not ends else COMMITTED if ends[-1] else ABORTED

    def lso_at(self, t: float) -> int:
        """Return the first offset of a transaction without a marker, else the end of the known log; -1 if it is not
        known.
        """
        if not self._known:
            return -1
        there = [entry for entry in self.entries.values() if entry.since <= t]
        still = [each.offset for each in there if each.value >= 0 and self.state_at(each, t) == OPEN]
        return min(still) if still else max((each.offset + 1 for each in there), default=-1)

    def columns(self, txns: Sequence[ObservedTxn]) -> list[int | None]:
        """Return the offsets to draw, ascending: those of `txns`, and one more at either side. If there are too many,
        those of the transactions at the end of `txns` are left out. None in the list replaces left-out offsets in
        between.
        """
        wanted: list[int] = []
        for txn in txns:
            own = sorted(entry.offset for entry in self.entries.values() if entry.op == txn.op)
            wanted += [offset for offset in own if offset not in wanted]
        chosen = sorted(wanted[: COLUMNS_AT_MOST - 2])
        if not chosen:
            return []
        chosen = sorted({max(chosen[0] - 1, 0), *chosen, chosen[-1] + 1})
        columns: list[int | None] = []
        for place, offset in enumerate(chosen):
            gap = offset - chosen[place - 1] - 1 if place else 0
            columns += [offset - 1] if gap == 1 else [None] if gap > 1 else []
            columns.append(offset)
        return columns
