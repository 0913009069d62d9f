"""Assigns operations to transactions, and collects what read_committed readers got of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from squall.checkers.history.tables import POLL, SEND, History, Txn


@dataclass(slots=True)
class TransactionIndex:
    """The transactions of a history."""

    by_op: dict[int, Txn] = field(default_factory=dict)
    of_value: dict[int, Txn] = field(default_factory=dict)
    of_poll: dict[int, Txn] = field(default_factory=dict)
    """Operation id of a poll -> the transaction that it was part of."""


@dataclass(slots=True)
class CommittedRead:
    """Holds what read_committed readers got of one value of a transaction in one partition."""

    txn: Txn
    part: int
    val: int
    off: int
    """The lowest offset at which they got it."""
    op: int
    """The first operation that returned it."""
    first: int
    """When the first of these operations returned."""
    final: bool
    """A final read was among them."""


def transactions_of(history: History) -> TransactionIndex:
    """Every transaction, with its sends and polls."""
    found = TransactionIndex({txn.op: txn for txn in history.txns.rows()})
    for member in history.members.rows():
        if member.kind == SEND:
            found.of_value[member.val] = found.by_op[member.txn]
        else:
            assert member.kind == POLL, member
            found.of_poll[member.op] = found.by_op[member.txn]
    return found


def ended_late(history: History) -> dict[int, frozenset[int]]:
    """Transaction -> how earlier ones were to end whose EndTxn may have ended this one, COMMIT or ABORT: `LATE_END`."""
    found: dict[int, frozenset[int]] = {}
    by_process = _by_process(history)
    for process in history.processes:
        waited: list[Txn] = []
        limit = process.request_timeout_ns
        for txn in by_process.get(process.proc, []):
            same = (each for each in waited if -1 in (each.epoch, txn.epoch) or each.epoch == txn.epoch)
            found[txn.op] = frozenset(each.how for each in same)
            if _may_come_late(txn, limit):
                waited.append(txn)
    return found


def _may_come_late(txn: Txn, limit_ns: int) -> bool:
    """Return whether an EndTxn of this transaction may still be on its way after its answer. If the client does not
    report unanswered requests, the end must have taken its request time-out.
    """
    if txn.unanswered >= 0:
        return txn.unanswered > 0
    return limit_ns > 0 and txn.te >= 0 and (txn.t1 < 0 or txn.t1 - txn.te >= limit_ns)


def _by_process(history: History) -> dict[int, list[Txn]]:
    found: dict[int, list[Txn]] = {}
    for txn in sorted(history.txns.rows()):
        found.setdefault(txn.proc, []).append(txn)
    return found


def committed_reads(history: History) -> list[CommittedRead]:
    """Return what read_committed readers got of values that were sent in transactions, by value and partition."""
    transactions = transactions_of(history)
    found: dict[tuple[int, int], CommittedRead] = {}
    for record in history.records.rows():
        txn = transactions.of_value.get(record.val) if record.kind == POLL and record.iso == 1 else None
        if txn is None:
            continue
        key = record.val, record.part
        got = found.setdefault(
            key, CommittedRead(txn, record.part, record.val, record.off, record.op, record.t1, record.final > 0)
        )
        got.off, got.op, got.first = min(got.off, record.off), min(got.op, record.op), min(got.first, record.t1)
        got.final |= record.final > 0
    return list(found.values())
