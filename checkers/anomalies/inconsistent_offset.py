"""Finds inconsistent-offset: one offset of a partition had two values."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import JEPSEN, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery
from squall.checkers.anomalies.logs import EVIDENCE, ObservedLog, logs_of
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.values import producer_of

ANOMALIES = (
    AnomalyDefinition(
        "inconsistent-offset",
        AnomalyFamily.DATA,
        "one offset of a partition with two values, in reads or between an acknowledgement and reads",
        source=f"{JEPSEN}; KIP-101: Alter Replication Protocol to use Leader Epoch (logs must not diverge)",
        jepsen="inconsistent-offsets",
        other="the value that displaced this one",
        needs=(HistoryNeed.PLACES,),
        meaning="offsets held two different records",
        meaning_of_one="offset held two different records",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each offset of a partition that had two values."""
    for log in seen.view(logs_of):
        yield from _of(log)


def _of(log: ObservedLog) -> Iterator[Witness]:
    """Yield a witness for each offset with two values; the value with the least evidence counts as the displaced one.
    """
    for off, there in log.at.items():
        if len(there) > 1:
            ranked = sorted((level, val, op) for val, (level, op) in there.items())
            # A contradiction is proven as well as the weaker of its two best sides.
            (_, val, op), second_best, (_, stands, _) = ranked[0], ranked[-2][0], ranked[-1]
            where = (log.partition.part, off, val, op, producer_of(val))
            yield Witness("inconsistent-offset", EVIDENCE[second_best], *where, stands)


# `level` is 0 for an acknowledgement, 1 for a read, 2 for a final read, as in `logs.EVIDENCE`.
SQL = """
select 'inconsistent-offset' anomaly, if(finals > 1, 'final', if(reads > 1, 'reads', 'acks')) evidence,
       part, off, displaced.val val, displaced.op op, shiftright(displaced.val, 40) proc, stands.val other
from (select part, off, sum(is_final) finals, sum(is_read) reads, count(*) n,
             min(struct(is_read + is_final as level, val, coalesce(send_op, read_op) as op)) displaced,
             max(struct(is_read + is_final as level, val)) stands
      from places where off >= 0 and val >= 0 group by part, off having n > 1)
"""


def _queries(_: ConversionResult) -> Queries:
    return [WitnessQuery(SQL, ("places",))]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
