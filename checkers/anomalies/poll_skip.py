"""Finds poll-skip, and int-poll-skip inside one poll: a reader did not get records that are in the log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import IN_ORDER, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery, has_transactions
from squall.checkers.anomalies.reads import consecutive_reads, passages, version_orders, witness
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult

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


SQL = """
with order_of as (
  select part, off, lead(off) over (partition by part order by off) next
  from (select distinct part, off from places where off >= 0))
select concat(if(inside = 1, 'int-', ''), 'poll-skip') anomaly, '' evidence, o.part, o.off, val, op,
       bigint(proc) proc, before other
from (select * from records where kind = 1 and before >= 0 and off > before + 1) o
join order_of n on n.part = o.part and n.off = o.before join partitions p on p.part = o.part
where next < o.off and not compacted
"""
"""Selects the witnesses among returned records. The converter stores for each record the offset that its reader got
before it (`before`), so no sort of all reads is needed. Only a record that does not follow `before` directly is
compared with the known offsets of its partition (`order_of`).
"""


WITH_TRANSACTIONS = """
with at as (
  select part, off, 0 iso from places where off >= 0
  union
  select p.part, p.off, 1 iso from places p left join txn_values t on t.val = p.val
  where p.off >= 0 and (t.val is null or (t.committed and not t.late_abort))
  union
  select part, off, 1 iso from records where kind = 1 and iso = 1),
order_of as (select part, off, iso, lead(off) over (partition by part, iso order by off) next from at)
select concat(if(inside = 1, 'int-', ''), 'poll-skip') anomaly, '' evidence, o.part, o.off, val, op,
       bigint(proc) proc, before other
from (select * from records where kind = 1 and before >= 0 and off > before + 1) o
join order_of n on n.part = o.part and n.off = o.before and n.iso = o.iso join partitions p on p.part = o.part
where next < o.off and not compacted
"""
"""Selects the witnesses among returned records in a history with transactions, while `SQL` is for a history without. A
read_committed reader may skip records of transactions whose commit was not acknowledged, or which a late EndTxn may
have aborted.
"""


PASSAGES = """
union all
select 'poll-skip' anomaly, '' evidence, e.part, e.off, -1L val, op, bigint(proc) proc, before other
from (
  select r.part, r.off, r.iso, r.op, r.idx, r.proc, r.before,
         explode(sequence(r.before, least(r.off - 1, p.seen))) passed
  from records r join partitions p on p.part = r.part
  where r.kind = 2 and r.before >= 0 and r.before <= p.seen and not p.compacted) e
join order_of n on n.part = e.part and n.off = e.passed{same_level}
group by e.part, e.off, op, e.idx, proc, before
"""
"""Is appended to SQL or WITH_TRANSACTIONS. Selects polls that moved the reader past records which they did not return:
before the first returned record, after the last one, or in a poll that returned none. Records above the highest offset
that any reader saw do not count. The placeholder `same_level` is a condition on isolation levels, which only
WITH_TRANSACTIONS needs.
"""


def _queries(history: ConversionResult) -> Queries:
    if not history.holes:
        return []
    if has_transactions(history):
        sql = WITH_TRANSACTIONS + PASSAGES.format(same_level=" and n.iso = e.iso")
        return [WitnessQuery(sql, ("records", "places", "partitions", "txn_values"))]
    return [WitnessQuery(SQL + PASSAGES.format(same_level=""), ("records", "places", "partitions"))]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
