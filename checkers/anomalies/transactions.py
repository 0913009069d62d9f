"""Assigns operations to transactions, and collects the values of transactions that read_committed readers got."""

from __future__ import annotations

from dataclasses import dataclass, field

from squall.checkers.history.tables import POLL, SEND, History, Txn


@dataclass(slots=True)
class TransactionIndex:
    """Indexes the transactions of a history by operation, value and poll."""

    by_op: dict[int, Txn] = field(default_factory=dict)
    of_value: dict[int, Txn] = field(default_factory=dict)
    of_poll: dict[int, Txn] = field(default_factory=dict)
    """Maps the operation id of a poll to the transaction of which the poll was part."""


@dataclass(slots=True)
class CommittedRead:
    """Describes how read_committed readers got one value of a transaction in one partition."""

    txn: Txn
    part: int
    val: int
    off: int
    """Is the lowest offset at which a read_committed reader got the value."""
    op: int
    """Is the id of the first operation that returned the value."""
    first: int
    """Is when a read_committed reader got the value for the first time, in ns."""
    final: bool
    """Is True if a final read was among the operations that returned the value."""


def transactions_of(history: History) -> TransactionIndex:
    """Return an index of all transactions, with their sends and polls."""
    found = TransactionIndex({txn.op: txn for txn in history.txns.rows()})
    for member in history.members.rows():
        if member.kind == SEND:
            found.of_value[member.val] = found.by_op[member.txn]
        else:
            assert member.kind == POLL, member
            found.of_poll[member.op] = found.by_op[member.txn]
    return found


def ended_late(history: History) -> dict[int, frozenset[int]]:
    """Return, for each transaction, the results (COMMIT, ABORT) that a late EndTxn may have given it. A late EndTxn is
    a request that was sent for an earlier transaction of the same producer epoch, and may arrive only now
    (KAFKA-17754).
    """
    # Not from `Txn.late_commit`, which Spark reads: so a mistake of the converter shows when both are compared.
    found: dict[int, frozenset[int]] = {}
    by_process = _by_process(history)
    for process in history.processes:
        waited: list[Txn] = []
        limit = process.request_timeout_ns
        for txn in by_process.get(process.proc, []):
            # An unknown epoch may be the same one.
            same = (each for each in waited if -1 in (each.epoch, txn.epoch) or each.epoch == txn.epoch)
            found[txn.op] = frozenset(each.how for each in same)
            if _may_come_late(txn, limit):
                waited.append(txn)
    return found


def _may_come_late(txn: Txn, limit_ns: int) -> bool:
    """Return whether a copy of this transaction's EndTxn request may still be under way although another copy was
    answered. `limit_ns` is the client's request time-out, after which it sends the request again. If a client does not
    report unanswered requests, the answer is True if the transaction took at least that long to end.
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
    """Return a CommittedRead for each value that was sent in a transaction, and each partition in which a
    read_committed reader got it.
    """
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
