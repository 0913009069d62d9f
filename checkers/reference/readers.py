"""What each reader got, in the order it got it, against the version order that everybody together saw."""

from __future__ import annotations

from collections.abc import Iterator

from checkers.findings import Witness
from checkers.history.tables import POLL, SEND, History, Record


def version_orders(history: History) -> dict[int, dict[int, int]]:
    """Partition -> offset -> its dense index, over offsets of all polls and of acknowledged sends."""
    offsets: dict[int, set[int]] = {}
    for record in history.records.rows():
        if record.kind in (SEND, POLL) and record.off >= 0:
            offsets.setdefault(record.part, set()).add(record.off)
    return {part: {off: index for index, off in enumerate(sorted(seen))} for part, seen in offsets.items()}


def find(history: History) -> Iterator[Witness]:
    """poll-skip, nonmonotonic-poll, and both inside one poll.

    A compacted partition is full of holes by design, and which ones depends on when one reads: there, nothing counts
    as skipped.
    """
    orders = version_orders(history)
    compacted = {partition.part for partition in history.partitions if partition.compacted}
    before: dict[tuple[int, int, int], Record] = {}
    for record in sorted(_reads(history), key=lambda record: (record.op, record.idx)):
        reader = (record.proc, record.part, record.seg)
        previous = before.get(reader)
        before[reader] = record
        if previous is None:
            continue
        order = orders[record.part]
        inside = "int-" if previous.op == record.op else ""
        if record.off <= previous.off:
            yield _witness(f"{inside}nonmonotonic-poll", record, previous)
        elif order[record.off] - order[previous.off] > 1 and record.part not in compacted:
            yield _witness(f"{inside}poll-skip", record, previous)


def _reads(history: History) -> Iterator[Record]:
    return (record for record in history.records.rows() if record.kind == POLL)


def _witness(name: str, record: Record, previous: Record) -> Witness:
    return Witness(name, "", record.part, record.off, record.val, record.op, record.proc, previous.off)
