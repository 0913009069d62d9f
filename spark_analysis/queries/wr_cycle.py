"""Finds the anomaly G1c with Spark, and sends only a few edges to the driver.

Each transaction is stamped with the time at which its commit was requested. In a sound history each edge from a writer
to a reader leads forward in time, so that there is no cycle. Each cycle has an edge that leads backward in time, and
lies inside the spans of time that such edges cover. So only edges inside these spans are sent to the driver, which
searches them. A sound history has none, whatever its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import LATE_END
from squall.spark_analysis.query import SparkDriverSearch, WitnessQuery, WitnessRule

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


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery | SparkDriverSearch]:
    """Return the Spark query for `squall.checkers.anomalies.wr_cycle`; empty if the history cannot show the anomaly."""
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
