"""Finds torn-txn and lost-txn: only a part of a transaction, or nothing of it, is visible in the final reads."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery, has_transactions
from squall.checkers.anomalies.logs import ObservedValue, logs_of
from squall.checkers.anomalies.transactions import committed_reads, ended_late
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import ABORT, LATE_END, OK, History, ObservedPartition, PartitionFinalRead, Txn

EOS = "KIP-98: Exactly Once Delivery and Transactional Messaging (atomic writes to several partitions)"

ANOMALIES = (
    AnomalyDefinition(
        "torn-txn",
        AnomalyFamily.TRANSACTIONS,
        "the final read_committed reads show some acknowledged records of a transaction, but not this record; the "
        "commit of the transaction was acknowledged, or nobody knows whether it happened",
        source=EOS,
        other="how many of its records are visible",
        needs=(HistoryNeed.TRANSACTIONS, HistoryNeed.COMMITTED_FINAL_READS),
        meaning="records are missing, although other records of their transactions are visible",
        meaning_of_one="record is missing, although other records of its transaction are visible",
    ),
    AnomalyDefinition(
        "lost-txn",
        AnomalyFamily.TRANSACTIONS,
        "the commit of a transaction was acknowledged, or a read_committed reader got a record of it, but no final "
        "read_committed read shows any of its records",
        source=EOS,
        other="how many of its acknowledged records are not visible",
        needs=(HistoryNeed.TRANSACTIONS, HistoryNeed.COMMITTED_FINAL_READS),
        meaning="committed transactions are not visible at all",
        meaning_of_one="committed transaction is not visible at all",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each transaction of which only a part, or nothing, is visible in the final reads. The
    partitions of a transaction are looked at together.
    """
    finals = _committed_finals(seen.history)
    standing = _final_values(seen.history)
    of_txn: dict[int, list[tuple[ObservedValue, ObservedPartition]]] = {}
    late = seen.view(ended_late)
    damaged = {(log.partition.part, off) for log in seen.view(logs_of) for off in log.corrupt_finally}
    for log in seen.view(logs_of):
        for value in log.values.values():
            if value.txn is not None and value.st == OK and value.sent and not value.txn.never_commits:
                of_txn.setdefault(value.txn.op, []).append((value, log.partition))
    proven = {got.txn.op for got in seen.view(committed_reads)}
    for members in of_txn.values():
        txn = members[0][0].txn
        assert txn is not None
        visible = [value for value, _ in members if (value.part, value.val) in standing]
        missing = [
            value
            for value, partition in members
            if (value.part, value.val) not in standing
            and (value.part, value.acked_at) not in damaged
            and _judged(value, partition, txn, finals.get(value.part, []))
        ]
        # If nothing shows a commit, a transaction that is not visible may have been aborted.
        committed = txn.committed or txn.op in proven
        yield from _of(txn, visible, missing if visible or committed else [], late[txn.op])


def _of(
    txn: Txn, visible: list[ObservedValue], missing: list[ObservedValue], late: frozenset[int]
) -> Iterator[Witness]:
    """Yield the witnesses of one transaction. `late` has the results (COMMIT, ABORT) that an EndTxn request of an
    earlier transaction may have given this one: a late commit or abort may leave half a transaction visible, and a late
    abort may make all of it vanish.
    """
    if visible:
        evidence = LATE_END if late else ""
        for value in missing:
            yield Witness("torn-txn", evidence, value.part, value.acked_at, value.val, txn.op, txn.proc, len(visible))
    elif missing:
        first = min(missing, key=lambda value: value.val)
        evidence = LATE_END if ABORT in late else ""
        yield Witness("lost-txn", evidence, first.part, first.acked_at, first.val, txn.op, txn.proc, len(missing))


def _judged(value: ObservedValue, partition: ObservedPartition, txn: Txn, finals: list[PartitionFinalRead]) -> bool:
    """Return whether a final read_committed read would have shown the value if its transaction had committed.

    A read shows it if the reader went past the value's offset, because the outcome of the transaction was known there;
    or if the reader read to the end, and began after the commit was acknowledged. In a compacted partition a later
    record may have the same key, so nothing is judged there.
    """
    if partition.compacted or partition.may_lack(value.acked_at):
        return False
    passed = any(final.whole and final.start <= value.acked_at < final.reached for final in finals)
    return passed or (txn.committed and any(final.complete and txn.t1 <= final.t0 for final in finals))


def _committed_finals(history: History) -> dict[int, list[PartitionFinalRead]]:
    found: dict[int, list[PartitionFinalRead]] = {}
    for final in history.finals:
        if final.iso == 1:
            found.setdefault(final.part, []).append(final)
    return found


def _final_values(history: History) -> set[tuple[int, int]]:
    """Return (partition, value) of each record that final read_committed reads returned."""
    return {(record.part, record.val) for record in history.records.rows() if record.final and record.iso == 1}


SQL = """
with sent_in as (
  select t.txn, t.txn_proc, t.txn_t1, t.committed, t.late_abort,
         t.late_abort or t.late_commit late, t.committed or r.txn is not null proven,
         s.part, s.val, s.acked_at, c.val is not null visible
  from standing s join txn_values t on t.part = s.part and t.val = s.val
  left join (select distinct txn from committed_reads) r on r.txn = t.txn
  left join (select part, val from committed_reads where final) c on c.part = s.part and c.val = s.val
  where s.sent = 1 and s.st = 0 and not t.never_commits),
seen_by as (
  select m.txn, m.part, m.val,
         max(coalesce(f.whole = 1 and f.start <= m.acked_at and m.acked_at < f.reached, false)) passed,
         max(coalesce(f.whole = 1 and f.end >= 0 and f.end <= f.reached and f.start <= greatest(f.log_start, 0)
                      and m.committed and m.txn_t1 <= f.t0, false)) read_after
  from sent_in m left join (select * from finals where iso = 1) f on f.part = m.part
  where not m.visible group by m.txn, m.part, m.val),
damaged as (select distinct part, off from places where val < 0 and is_final = 1),
missing as (
  select m.*
  from sent_in m join seen_by b on b.txn = m.txn and b.part = m.part and b.val = m.val
  join partitions p on p.part = m.part
  left anti join damaged d on d.part = m.part and d.off = m.acked_at
  where not m.visible and (passed or read_after) and not p.compacted
    and not (p.judged_from > 0 and m.acked_at < p.judged_from)),
visible as (select txn, count(*) records from sent_in where visible group by txn)
select 'torn-txn' anomaly, if(m.late, 'late end', '') evidence,
       m.part, m.acked_at off, m.val, m.txn op, bigint(m.txn_proc) proc, records other
from missing m join visible v on v.txn = m.txn
union all
select 'lost-txn' anomaly, if(late_abort, 'late end', '') evidence,
       first.part, first.acked_at off, first.val, txn op, bigint(txn_proc) proc, other
from (select txn, txn_proc, late_abort, min(struct(val, part, acked_at)) first, count(*) other
      from missing m left anti join visible v on v.txn = m.txn
      where proven group by txn, txn_proc, late_abort)
"""
"""Selects the witnesses. A record of a transaction counts as missing only if the final read_committed reads did not
return it although one of them should have. Such a read went past the record's offset (`passed`), or it covers the whole
log and began after the transaction's commit was acknowledged (`read_after`).
"""


def _queries(history: ConversionResult) -> Queries:
    if not has_transactions(history):
        return []
    views = ("standing", "txn_values", "committed_reads", "finals", "places", "partitions")
    return [WitnessQuery(SQL, views)]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
