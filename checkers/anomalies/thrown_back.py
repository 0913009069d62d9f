"""Finds thrown-back: a reader learns that records which it has read are no longer in the log."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.reader_tables import InvalidatedPosition
from squall.checkers.history.tables import OUT_OF_RANGE, ObservedPartition

ANOMALIES = (
    AnomalyDefinition(
        "thrown-back",
        AnomalyFamily.READERS,
        "a reader's position, behind what it has read, is beyond the leader's log (OFFSET_OUT_OF_RANGE), or the leader "
        "has other records there (LOG_TRUNCATED): what was read was committed, and is gone",
        source="KIP-320: Allow fetchers to detect and handle log truncation; Kafka documentation, design, Replication",
        other="where the leader's log ends, or begins to differ",
        needs=(HistoryNeed.OWN_READERS, HistoryNeed.READS),
        meaning="positions of readers became impossible: what had been read before them is gone",
        meaning_of_one="position of a reader became impossible: what had been read before it is gone",
    ),
)

EVIDENCE = ("log truncated", "offset out of range")
"""Names the errors by which a reader learns that its position is invalid. `InvalidatedPosition.kind` is the index."""


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each position of a reader that was found to be invalid.

    Only our own client gets exact reports: it sends the leader epoch that it knows, and asks each new leader where the
    epoch of its last record ends. Reports of client libraries are not judged. A reader that cannot learn a better
    position asks again from the same one, and gets the same error in every poll; that counts once, by its first report.
    """
    partitions = {partition.part: partition for partition in seen.history.partitions}
    first: dict[tuple[int, int, int], InvalidatedPosition] = {}
    for each in seen.history.thrown.rows():
        if _is_wrong(each, partitions[each.part]):
            reader = (each.proc, each.part, each.position)
            first[reader] = min(first.get(reader, each), each)
    for each in first.values():
        yield Witness("thrown-back", EVIDENCE[each.kind], each.part, each.position, -1, -1, each.proc, each.end)


def _is_wrong(each: InvalidatedPosition, partition: ObservedPartition) -> bool:
    """Return whether a reader's report of an invalid position contradicts what the log must still hold. The report
    proves nothing if retention or a request may have removed the records there, because the leader then forgets where
    their epochs ended. OFFSET_OUT_OF_RANGE does not say where the log begins, and the next leader's log may begin at a
    lower offset: one that was paused has removed records by its own clock and by settings that are no longer in force.
    """
    if each.kind == OUT_OF_RANGE:
        return each.position >= partition.explained_to
    return each.end >= 0 or not partition.deletable


SQL = """
select 'thrown-back' anomaly, if(first.kind = 0, 'log truncated', 'offset out of range') evidence, part, position off,
       -1L val, -1L op, bigint(proc) proc, first.end other
from (
  select t.part, t.proc, t.position, min(struct(t.t, t.kind, t.log_start, t.end)) first
  from thrown t join partitions p on p.part = t.part
  where if(kind = 1, position >= explained_to, end >= 0 or not deletable)
  group by t.part, t.proc, t.position)
"""


def _queries(_: ConversionResult) -> Queries:
    return [WitnessQuery(SQL, ("thrown", "partitions"))]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
