"""The search for cycles of transactions, in random graphs, agrees with a naive computation of reachability."""

from __future__ import annotations

from random import Random

import pytest

from squall.checkers.anomalies.wr_cycle import Edge, components, on_cycles

NODES = 9


def graph(seed: int) -> list[Edge]:
    """Return random edges between a few transactions, sparse or dense. Each edge has a record of its own."""
    rng = Random(repr((seed, "graph")))
    pairs = [(a, b) for a in range(NODES) for b in range(NODES) if a != b]
    chosen = rng.sample(pairs, rng.randrange(4 * NODES))
    return [(writer, reader, 0, 100 + reader, 0, off, off) for off, (writer, reader) in enumerate(chosen)]


def reaches(edges: list[Edge], start: int) -> set[int]:
    """Return all transactions that can be reached from `start` by at least one edge."""
    found: set[int] = set()
    while new := {edge[1] for edge in edges if edge[0] in {start, *found}} - found:
        found |= new
    return found


@pytest.mark.parametrize("seed", range(60))
def test_a_transaction_is_on_a_cycle_if_it_reaches_itself(seed: int) -> None:
    edges = graph(seed)
    known = {node: reaches(edges, node) for node in range(NODES)}
    found = {witness.op: witness for witness in on_cycles(edges)}
    assert found.keys() == {node for node in range(NODES) if node in known[node]}
    for reader, witness in found.items():
        within = [edge for edge in edges if edge[1] == reader and edge[0] in known[reader]]
        first = min(within, key=lambda edge: edge[4:])
        assert (witness.other, witness.off, witness.proc) == (first[0], first[5], 100 + reader)


@pytest.mark.parametrize("seed", range(60))
def test_two_transactions_are_in_one_component_if_each_reaches_the_other(seed: int) -> None:
    edges = graph(seed)
    component = components(edges)
    assert component.keys() == {node for edge in edges for node in edge[:2]}
    known = {node: reaches(edges, node) for node in component}
    for one in component:
        for other in component:
            together = one == other or (one in known[other] and other in known[one])
            assert (component[one] == component[other]) == together


def test_a_long_ring_needs_no_deep_stack() -> None:
    length = 20_000
    ring = [(each, (each + 1) % length, 0, 0, 0, each, each) for each in range(length)]
    assert len(list(on_cycles(ring))) == length
    assert list(on_cycles(ring[1:])) == []


@pytest.mark.parametrize("late", [0, 1])
def test_a_late_end_explains_the_cycles_that_its_transaction_is_on_and_no_others(late: int) -> None:
    edges = [(0, 1, late, 9, 0, 0, 0), (1, 0, 0, 9, 0, 1, 1), (2, 3, 0, 9, 0, 2, 2), (3, 2, 0, 9, 0, 3, 3)]
    edges.append((4, 2, 1, 9, 0, 4, 4))
    evidence = {witness.op: witness.evidence for witness in on_cycles(edges)}
    explained = "late end" if late else ""
    assert evidence == {0: explained, 1: explained, 2: "", 3: ""}
