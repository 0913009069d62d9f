"""Builds, for each partition, a view of what was sent and acknowledged and what readers found at each offset. Most
finders read this view.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from squall.checkers.anomalies.anomaly import ACKS, FINAL, READS
from squall.checkers.anomalies.transactions import TransactionIndex, transactions_of
from squall.checkers.findings import Witness
from squall.checkers.history.tables import FAIL, INFO, OK, POLL, SEND, History, ObservedPartition, RecordRow, Txn
from squall.checkers.history.values import producer_of

EVIDENCE = (ACKS, READS, FINAL)
"""Lists the kinds of evidence from the weakest (0) to the best (2)."""


@dataclass(slots=True)
class ObservedValue:
    """Holds all that the history says of one value in one partition."""

    part: int
    val: int
    sent: bool = False
    st: int = INFO
    op: int = -1
    """Is the operation id of the send; or of the first poll that returned the value, if no producer sent it to this
    partition.
    """
    t0: int = -1
    t1: int = -1
    acked_at: int = -1
    """Is the acknowledged offset; -1 if no offset was acknowledged."""
    key: int = -1
    read_at: set[int] = field(default_factory=set)
    final_at: set[int] = field(default_factory=set)
    """Holds the offsets of `read_at` at which a final read found the value."""
    rounds: list[int] = field(default_factory=lambda: [0, 0])
    """Holds the last round of final reads that found the value, at read_uncommitted and at read_committed; 0 if none
    did.
    """
    first_read: int = -1
    """Is when the first read that returned the value came back, in ns; -1 if no read returned it."""
    txn: Txn | None = None
    """Is the transaction in which the value was sent; None if it was sent in no transaction."""

    @property
    def acked(self) -> bool:
        """Return whether the broker promised to keep the value: its send was acknowledged, and so was the commit of its
        transaction, if it has one.
        """
        return self.sent and self.st == OK and (self.txn is None or self.txn.committed)

    def vanished(self, partition: ObservedPartition) -> bool:
        """Return whether a final read found the value, but the complete final read of a later round at the same
        isolation level did not.
        """
        last = partition.last_round, partition.last_committed_round
        return not partition.compacted and any(
            0 < mine < newest for mine, newest in zip(self.rounds, last, strict=True)
        )

    @property
    def best_offset(self) -> tuple[int, int] | None:
        """Return (offset, index in `EVIDENCE` of what shows it): the lowest offset of final reads, else the lowest of
        other reads, else the acknowledged offset. None if no offset is known.
        """
        if self.final_at:
            return min(self.final_at), 2
        if self.read_at:
            return min(self.read_at), 1
        return (self.acked_at, 0) if self.acked_at >= 0 else None


@dataclass(slots=True)
class ObservedLog:
    """Represents one partition's log as all clients together observed it."""

    partition: ObservedPartition
    values: dict[int, ObservedValue] = field(default_factory=dict)
    at: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """Maps each offset and value to (the best evidence 0, 1 or 2 that the value is there, the operation that shows it).
    That operation is the send that was acknowledged there, else the first poll that read the value there.
    """
    corrupt: dict[int, int] = field(default_factory=dict)
    """Maps each offset to the first operation that read a payload there that does not verify."""
    corrupt_finally: set[int] = field(default_factory=set)
    seen: int = -1
    """Is the highest offset that any reader saw; -1 if none saw a record."""


def logs_of(history: History) -> list[ObservedLog]:
    """Return the observed log of each partition, by partition id."""
    logs = {partition.part: ObservedLog(partition) for partition in history.partitions}
    transactions = transactions_of(history)
    for record in history.records.rows():
        if record.kind == SEND:
            _add_send(logs[record.part], record, transactions)
        elif record.kind == POLL:
            _add_read(logs[record.part], record)
    return list(logs.values())


def _add_send(log: ObservedLog, record: RecordRow, transactions: TransactionIndex) -> None:
    # A read that was recorded first may have made the entry: a send is recorded as it ends.
    value = log.values.setdefault(record.val, ObservedValue(record.part, record.val))
    value.sent, value.st, value.op, value.key = True, record.st, record.op, record.key
    value.t0, value.t1, value.txn = record.t0, record.t1, transactions.of_value.get(record.val)
    if record.off >= 0:
        value.acked_at = record.off
        there = log.at.setdefault(record.off, {})
        there[record.val] = (there.get(record.val, (0, 0))[0], record.op)


def _add_read(log: ObservedLog, record: RecordRow) -> None:
    log.seen = max(log.seen, record.off)
    if record.val < 0:
        log.corrupt[record.off] = min(record.op, log.corrupt.get(record.off, record.op))
        if record.final:
            log.corrupt_finally.add(record.off)
        return
    value = log.values.setdefault(record.val, ObservedValue(record.part, record.val))
    value.read_at.add(record.off)
    if record.final:
        value.final_at.add(record.off)
        value.rounds[record.iso] = max(value.rounds[record.iso], record.final)
    if not value.sent:
        value.op = record.op if value.op < 0 else min(value.op, record.op)
    value.first_read = record.t1 if value.first_read < 0 else min(value.first_read, record.t1)
    there = log.at.setdefault(record.off, {})
    level, op = there.get(record.val, (0, record.op))
    acked_here = value.acked_at == record.off
    there[record.val] = (max(level, 2 if record.final else 1), op if acked_here else min(op, record.op))


def witness(name: str, value: ObservedValue, off: int, other: int, evidence: str = "") -> Witness:
    """Return a witness of the anomaly `name` for one value at `off`. `AnomalyDefinition.other` says what `other` is.
    The settings of the value's producer decide whether the anomaly is permitted.
    """
    return Witness(name, evidence, value.part, off, value.val, value.op, producer_of(value.val), other)


def sent(log: ObservedLog) -> Iterable[ObservedValue]:
    """Return the values whose sends may have succeeded."""
    return (value for value in log.values.values() if value.sent and value.st != FAIL)
