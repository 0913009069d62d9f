"""Finds poll-skip, and int-poll-skip inside one poll: a reader did not get records that are in the log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import (
    IN_ORDER,
    AnomalyCheck,
    AnomalyDefinition,
    AnomalyFamily,
    HistoryNeed,
    HistoryViews,
)
from squall.checkers.anomalies.reads import consecutive_reads, passages, version_orders, witness
from squall.checkers.findings import Witness

ANOMALIES = (
    AnomalyDefinition(
        "poll-skip",
        AnomalyFamily.READERS,
        "compared with the reader's previous poll, a poll skips records, or it moves the reader past records that it "
        "does not return",
        source=IN_ORDER,
        jepsen="poll-skip",
        other="the offset read before; where the reader was moved over records, the position before",
        needs=(HistoryNeed.READS,),
        meaning="polls skipped over records",
        meaning_of_one="poll skipped over records",
    ),
    AnomalyDefinition(
        "int-poll-skip",
        AnomalyFamily.READERS,
        "one poll skips over records",
        source=IN_ORDER,
        jepsen="int-poll-skip",
        other="the offset read before",
        needs=(HistoryNeed.READS,),
        meaning="polls left out records between those that they returned",
        meaning_of_one="poll left out records between those that it returned",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each poll that skipped records. Compacted partitions give no witnesses: they have holes by
    design, and which holes depends on the time of the read.
    """
    orders = seen.view(version_orders)
    compacted = {partition.part for partition in seen.history.partitions if partition.compacted}
    for before, after in seen.view(consecutive_reads):
        order = orders[after.iso][after.part]
        if after.off > before.off and order[after.off] - order[before.off] > 1 and after.part not in compacted:
            yield witness("poll-skip", before, after)
    seen_up_to = {partition.part: partition.seen for partition in seen.history.partitions}
    offsets = [{part: sorted(order) for part, order in level.items()} for level in orders]
    for empty in seen.view(passages):
        there = offsets[empty.iso].get(empty.part, [])
        first = bisect_left(there, empty.before)
        # Above what any reader saw, acknowledged records are lost (`unseen`), and not skipped.
        skips = first < len(there) and there[first] < min(empty.off, seen_up_to[empty.part] + 1)
        if skips and empty.part not in compacted:
            yield Witness("poll-skip", "", empty.part, empty.off, -1, empty.op, empty.proc, empty.before)


CHECK = AnomalyCheck(__name__, ANOMALIES, find)
