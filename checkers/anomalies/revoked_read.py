"""Finds revoked-read: a member of a group got, or processed, a record of a partition that it had released."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.group_tables import REVOKED, PartitionOwnership
from squall.checkers.history.tables import POLL

ANOMALIES = (
    AnomalyDefinition(
        "revoked-read",
        AnomalyFamily.GROUPS,
        "a member released a partition in good order, and then got or processed a record of it before the partition "
        "was assigned to it again",
        source="KIP-429: once onPartitionsRevoked has returned, the partitions may have another owner",
        needs=(HistoryNeed.MEMBERS, HistoryNeed.READS),
        meaning="records were processed by members that had given their partitions up",
        meaning_of_one="record was processed by a member that had given its partition up",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each record that a group member got after it had released the partition and before it owned
    the partition again. One process reports both events, so their order is certain.

    Only ownerships that ended by a revocation count. A member may learn late that it lost a partition in another way,
    while it still works on records that it got before.
    """
    holds: dict[tuple[int, int], list[PartitionOwnership]] = {}
    for hold in seen.history.holds.rows():
        holds.setdefault((hold.proc, hold.part), []).append(hold)
    for record in seen.history.records.rows():
        if record.kind != POLL or record.final:
            continue
        before = [hold for hold in holds.get((record.proc, record.part), ()) if hold.t0 <= record.t1]
        last = max(before, key=lambda hold: hold.t0, default=None)
        if last is not None and last.how == REVOKED and last.t1 < record.t1:
            yield Witness("revoked-read", "", record.part, record.off, record.val, record.op, record.proc, -1)


SQL = f"""
with held as (select *, lead(t0) over (partition by proc, part order by t0) next from holds)
select 'revoked-read' anomaly, '' evidence, r.part, r.off, r.val, r.op, bigint(r.proc) proc, -1L other
from records r join held h on h.proc = r.proc and h.part = r.part
where r.kind = 1 and r.final = 0 and h.how = {REVOKED} and h.t1 < r.t1 and coalesce(r.t1 < h.next, true)
"""


def _queries(history: ConversionResult) -> Queries:
    return [WitnessQuery(SQL, ("holds", "records"))] if history.holds else []


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
