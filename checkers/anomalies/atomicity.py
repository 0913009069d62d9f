"""Finds torn-txn and lost-txn: only a part of a transaction, or nothing of it, is visible in the final reads."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyCheck, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.logs import ObservedValue, logs_of
from squall.checkers.anomalies.transactions import committed_reads, ended_late
from squall.checkers.findings import Witness
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


CHECK = AnomalyCheck(__name__, ANOMALIES, find)
