"""Finds G1c: transactions that read each other's records in a cycle."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import (
    JEPSEN,
    AnomalyCheck,
    AnomalyDefinition,
    AnomalyFamily,
    HistoryNeed,
    HistoryViews,
)
from squall.checkers.anomalies.transactions import TransactionIndex, ended_late, transactions_of
from squall.checkers.findings import Witness
from squall.checkers.history.tables import COMMIT, LATE_END, POLL, History, RecordRow, Txn

ANOMALIES = (
    AnomalyDefinition(
        "G1c",
        AnomalyFamily.TRANSACTIONS,
        "a cycle of write-read edges among transactions: each one, before its commit was asked for, read at "
        "read_committed a record of the one before it",
        source=f"{JEPSEN}; Adya 1999, G1c (circular information flow)",
        jepsen="G1c",
        other="the transaction of the same cycle that wrote the record",
        needs=(HistoryNeed.TRANSACTIONS, HistoryNeed.COMMITTED_READS, HistoryNeed.READS_INSIDE),
        meaning="transactions read each other's records in a circle",
        meaning_of_one="transaction is in a circle of transactions that read each other's records",
    ),
)

Read = tuple[int, int, int]
"""Is (partition, offset, value) of a record that was read."""
Edges = dict[int, dict[int, Read]]
"""Maps each transaction to the transactions that read its records, and each of those to the first record that it read.
"""


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each transaction in a cycle: the first record that it read of another transaction in the
    cycle.

    Write-write and read-write edges are left out, because Kafka neither isolates writes nor reads a single snapshot.
    """
    edges = seen.view(edges_of)
    by_op, late = transactions_of(seen.history).by_op, seen.view(ended_late)
    for component in _components(edges):
        evidence = LATE_END if any(COMMIT in late[op] for op in component) else ""
        for op in component:
            (part, off, val), writer = min((edges[each][op], each) for each in component if op in edges[each])
            yield Witness("G1c", evidence, part, off, val, op, by_op[op].proc, writer)


def edges_of(history: History) -> Edges:
    """Return which transaction read records of which other one. Transactions that never commit are left out: `G1a` is
    about their records.
    """
    transactions = transactions_of(history)
    edges: Edges = {}
    for record in history.records.rows():
        pair = _pair(transactions, record)
        if pair is not None:
            writer, reader = pair
            read = record.part, record.off, record.val
            readers = edges.setdefault(writer.op, {})
            readers[reader.op] = min(read, readers.get(reader.op, read))
    return edges


def _pair(transactions: TransactionIndex, record: RecordRow) -> tuple[Txn, Txn] | None:
    """Return (writer, reader) of a record that one transaction read of another one; None for any other record."""
    if record.kind != POLL or record.iso != 1 or record.val < 0:
        return None
    writer, reader = transactions.of_value.get(record.val), transactions.of_poll.get(record.op)
    if writer is None or reader is None or writer.op == reader.op:
        return None
    # A record that was read after the commit was requested is not part of the transaction.
    counts = not writer.never_commits and not reader.never_commits and record.t1 <= reader.te
    return (writer, reader) if counts else None


def _components(edges: Edges) -> Iterator[list[int]]:
    """Yield the strongly connected components with more than one transaction, by Tarjan's algorithm without recursion.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    waiting: list[int] = []
    on_stack: set[int] = set()

    def enter(node: int) -> tuple[int, Iterator[int]]:
        index[node] = low[node] = len(index)
        waiting.append(node)
        on_stack.add(node)
        return node, iter(sorted(edges.get(node, ())))

    for root in sorted(edges):
        path = [enter(root)] if root not in index else []
        while path:
            node, readers = path[-1]
            reader = next((each for each in readers if each not in index or each in on_stack), None)
            if reader is not None and reader not in index:
                path.append(enter(reader))
            elif reader is not None:
                low[node] = min(low[node], index[reader])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == index[node]:
                    component = waiting[waiting.index(node) :]
                    del waiting[-len(component) :]
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        yield component


CHECK = AnomalyCheck(__name__, ANOMALIES, find)
