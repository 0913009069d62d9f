"""Finds wrong-lookup: a look-up of an offset by time passes over a record."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.reader_tables import TimeLookup
from squall.checkers.history.tables import ObservedPartition

ANOMALIES = (
    AnomalyDefinition(
        "wrong-lookup",
        AnomalyFamily.READERS,
        "the answer to a look-up by time is an offset behind a record, or none, although its reader had got that "
        "record before, from the same leader epoch, and the record's timestamp is not before the time asked for",
        source="KIP-79: ListOffsetRequest v1 and add timestamp search methods to new consumer (the first message whose "
        "timestamp is greater than or equals to the target timestamp)",
        other="the answer (-1: none)",
        needs=(HistoryNeed.LOOKUPS,),
        meaning="look-ups by time passed over a record",
        meaning_of_one="look-up by time passed over a record",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each look-up whose answer is above a record that should have been found: its reader had got
    the record from a leader of the same epoch.

    A leader never truncates its own log, so while it leads, a record that it returned stays, unless retention or a
    request removes it. The epochs are known for certain, because Squall's own client names an epoch in its request, and
    only the leader of that epoch answers. In partitions whose records may be removed, a look-up is judged only if a
    final read that began later shows what had been removed by then.
    """
    partitions = {partition.part: partition for partition in seen.history.partitions}
    for each in seen.history.lookups.rows():
        if _is_wrong(each, partitions[each.part]):
            yield Witness("wrong-lookup", "", each.part, each.known, -1, each.op, each.proc, each.off)


def _is_wrong(each: TimeLookup, partition: ObservedPartition) -> bool:
    if partition.compacted or partition.deleted or each.known < partition.judged_from:
        return False
    if partition.deletable and partition.cover_t0 < each.t1:
        return False
    return each.off < 0 or each.off > each.known


SQL = """
select 'wrong-lookup' anomaly, '' evidence, l.part, l.known off, -1L val, l.op, bigint(l.proc) proc, l.off other
from lookups l join partitions p on p.part = l.part
where not compacted and not deleted and l.known >= judged_from and (not deletable or cover_t0 >= l.t1)
  and (l.off < 0 or l.off > l.known)
"""


def _queries(history: ConversionResult) -> Queries:
    return [WitnessQuery(SQL, ("lookups", "partitions"))] if history.lookups else []


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
