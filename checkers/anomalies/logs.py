"""Compares what was sent and acknowledged with what readers found at each offset. Most finders read this view."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from squall.checkers.anomalies.anomaly import ACKS, FINAL, READS
from squall.checkers.anomalies.transactions import TransactionIndex, transactions_of
from squall.checkers.findings import Witness
from squall.checkers.history.tables import FAIL, INFO, OK, POLL, SEND, History, ObservedPartition, RecordRow, Txn
from squall.checkers.history.values import producer_of

EVIDENCE = (ACKS, READS, FINAL)
"""By how good it is: 0, 1, 2."""


@dataclass(slots=True)
class ObservedValue:
    """All that the history says of one value in one partition."""

    part: int
    val: int
    sent: bool = False
    st: int = INFO
    op: int = -1
    """Of the send; of the first poll where nobody sent it there."""
    t0: int = -1
    t1: int = -1
    acked_at: int = -1
    """The acknowledged offset; -1 where there was none."""
    key: int = -1
    read_at: set[int] = field(default_factory=set)
    final_at: set[int] = field(default_factory=set)
    """Those of `read_at` at which a final read found it."""
    rounds: list[int] = field(default_factory=lambda: [0, 0])
    """The last round of final reads that found it, at read_uncommitted and at read_committed; 0: none did."""
    first_read: int = -1
    """When the first read that returned it came back."""
    txn: Txn | None = None
    """The transaction that it was sent in."""

    @property
    def acked(self) -> bool:
        """The broker promised to keep it: it was acknowledged, and so was the commit of its transaction, if any."""
        return self.sent and self.st == OK and (self.txn is None or self.txn.committed)

    def vanished(self, partition: ObservedPartition) -> bool:
        """A final read found it, and the complete one of a later round, at the same isolation level, did not."""
        last = partition.last_round, partition.last_committed_round
        return not partition.compacted and any(
            0 < mine < newest for mine, newest in zip(self.rounds, last, strict=True)
        )

    @property
    def best_offset(self) -> tuple[int, int] | None:
        """(offset, evidence) by the best evidence there is; the lowest offset where there are several."""
        if self.final_at:
            return min(self.final_at), 2
        if self.read_at:
            return min(self.read_at), 1
        return (self.acked_at, 0) if self.acked_at >= 0 else None


@dataclass(slots=True)
class ObservedLog:
    """Represents one partition as seen by all clients together."""

    partition: ObservedPartition
    values: dict[int, ObservedValue] = field(default_factory=dict)
    at: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """Offset -> value -> the best evidence (0, 1, 2) that it is there, and the operation that says so: the send that
    was acknowledged there, else the first that read it there."""
    corrupt: dict[int, int] = field(default_factory=dict)
    """Offset -> the first operation that read something there that does not verify."""
    corrupt_finally: set[int] = field(default_factory=set)
    seen: int = -1
    """The highest offset that any reader saw."""


def logs_of(history: History) -> list[ObservedLog]:
    """Return what all operations together say of each partition, by partition."""
    logs = {partition.part: ObservedLog(partition) for partition in history.partitions}
    transactions = transactions_of(history)
    for record in history.records.rows():
        if record.kind == SEND:
            _add_send(logs[record.part], record, transactions)
        elif record.kind == POLL:
            _add_read(logs[record.part], record)
    return list(logs.values())


def _add_send(log: ObservedLog, record: RecordRow, transactions: TransactionIndex) -> None:
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
    """That a value is not where, or what, it should be: a matter of its producer."""
    return Witness(name, evidence, value.part, off, value.val, value.op, producer_of(value.val), other)


def sent(log: ObservedLog) -> Iterable[ObservedValue]:
    """The values whose sends may have been done."""
    return (value for value in log.values.values() if value.sent and value.st != FAIL)
