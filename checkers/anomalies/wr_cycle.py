"""Finds G1c: transactions that read each other's records in a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from squall.checkers.anomalies.anomaly import JEPSEN, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, SparkDriverSearch
from squall.checkers.anomalies.transactions import TransactionIndex, ended_late, transactions_of
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
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


# An edge between equal stamps counts as one that goes back, because it may close a cycle.
INSIDE_SPANS = """
with back as (select reader_at since, writer_at till from wr_edges where reader_at <= writer_at),
reached as (
  select since, till, max(till) over (order by since, till rows between unbounded preceding and 1 preceding) before
  from back),
numbered as (
  select since, till, sum(if(since <= before, 0, 1)) over (order by since, till rows unbounded preceding) span
  from reached),
spans as (select min(since) since, max(till) till from numbered group by span)
select writer, reader, int(late) late, proc, read.part, read.off, read.val
from wr_edges e join spans s
  on e.writer_at between s.since and s.till and e.reader_at between s.since and s.till
"""
"""Selects the edges inside spans of time that backward edges cover. A backward edge leads to a reader that requested
its commit no later than the writer; it covers the time between both requests. Overlapping spans are joined, because a
cycle with several backward edges lies inside their union.
"""

Edge = tuple[int, int, int, int, int, int, int]
"""Is (writer, reader, late, process of the reader, partition, offset, value). `late` is 1 if a delayed EndTxn of an
earlier transaction may have committed the writer (KAFKA-17754).
"""
Graph = Mapping[int, Sequence[int]]


def _queries(history: ConversionResult) -> Queries:
    return [SparkDriverSearch(INSIDE_SPANS, ("wr_edges",), on_cycles)] if history.read_inside else []


def on_cycles(edges: Sequence[Edge]) -> Iterator[Witness]:
    """Yield a witness for each transaction on a cycle: the first record that it read of another transaction on the same
    cycle.
    """
    component = components(edges)
    first: dict[int, tuple[tuple[int, int, int], int, int]] = {}
    explained = set()
    for writer, reader, late, proc, part, off, val in edges:
        if component[writer] == component[reader]:
            if late:
                explained.add(component[writer])
            found = (part, off, val), writer, proc
            first[reader] = min(found, first.get(reader, found))
    for reader, ((part, off, val), writer, proc) in first.items():
        evidence = LATE_END if component[reader] in explained else ""
        yield Witness("G1c", evidence, part, off, val, reader, proc, writer)


def components(edges: Iterable[Edge]) -> dict[int, int]:
    """Return the number of the strongly connected component of each transaction, by Kosaraju's algorithm.

    The algorithm takes the transactions in the reverse order in which a search along the edges ends; each search
    against the edges then finds one component.
    """
    forward: dict[int, list[int]] = {}
    backward: dict[int, list[int]] = {}
    for writer, reader, *_ in edges:
        for graph, one, other in ((forward, writer, reader), (backward, reader, writer)):
            graph.setdefault(one, []).append(other)
            graph.setdefault(other, [])
    ended: list[int] = []
    seen: dict[int, int] = {}
    for node in forward:
        ended += _search(forward, node, seen, 0)
    found: dict[int, int] = {}
    for number, node in enumerate(reversed(ended)):
        _search(backward, node, found, number)
    return found


def _search(graph: Graph, root: int, seen: dict[int, int], number: int) -> list[int]:
    """Search depth-first from `root`, without entering nodes in `seen`. Add the reached nodes to `seen` with the value
    `number`, and return them in postorder: each after all nodes that were reached from it.
    """
    if root in seen:
        return []
    seen[root] = number
    ended, path = [], [(root, iter(graph[root]))]
    while path:
        node, neighbours = path[-1]
        following = next((each for each in neighbours if each not in seen), None)
        if following is None:
            ended.append(node)
            path.pop()
        else:
            seen[following] = number
            path.append((following, iter(graph[following])))
    return ended


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
