"""Checks which links the shapes of partitions cut, and what is refused before anything is cut."""

from __future__ import annotations

from typing import Any

import pytest

from squall.chaos.faults.kind import FaultError
from squall.chaos.faults.shapes import links_of, partition_cuts
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.plan import PlanError, make_plan
from squall.chaos.runtimes.contract import Cut, CutMode, Link, StreamDirection
from squall.chaos.runtimes.layout import links


def cuts_of(shape: str, targets: list[int], nodes: int, manner: str = "refuse", side: str = "peers") -> dict[Link, Cut]:
    everybody = tuple(range(1, nodes + 1))
    params = {"shape": shape, "manner": manner, "side": side}
    found = partition_cuts(params, targets, everybody, links(everybody, ("CLIENT",)))
    assert len(dict(found)) == len(found), "a link is cut once by each fault"
    return dict(found)


def named(cuts: dict[Link, Cut]) -> list[str]:
    return sorted(str(link) for link in cuts)


def hears(cuts: dict[Link, Cut], nodes: int) -> dict[int, set[int]]:
    """Whom each broker can be sent bytes by: over connections of theirs, or answers on its own."""
    found = {}
    for node in range(1, nodes + 1):
        others = set(range(1, nodes + 1)) - {node}
        found[node] = {
            o for o in others if not (_passes(cuts, Link(o, node), True) or _passes(cuts, Link(node, o), False))
        }
        found[node] = others - found[node] | {node}
    return found


def _passes(cuts: dict[Link, Cut], link: Link, there: bool) -> bool:
    cut = cuts.get(link)
    return cut is None or cut.stream not in (
        StreamDirection.BOTH,
        StreamDirection.THERE if there else StreamDirection.BACK,
    )


def test_a_one_way_partition_cuts_requests_there_and_answers_back() -> None:
    cuts = cuts_of("one-way", [1], 3, "hold")
    assert {str(link): cut.stream for link, cut in cuts.items()} == {
        "1->2": StreamDirection.THERE,
        "1->3": StreamDirection.THERE,
        "2->1": StreamDirection.BACK,
        "3->1": StreamDirection.BACK,
    }


def test_an_isolated_node_is_cut_off_both_ways_and_nobody_else_is() -> None:
    assert named(cuts_of("isolate", [2], 3)) == ["1->2", "2->1", "2->3", "3->2"]


def test_where_all_are_isolated_everybody_is_cut_off_from_everybody() -> None:
    assert named(cuts_of("isolate", [1, 2, 3], 3)) == ["1->2", "1->3", "2->1", "2->3", "3->1", "3->2"]


def test_halves_leave_every_node_on_one_side() -> None:
    cuts = cuts_of("halves", [3], 4)
    assert {link.source for link in cuts} == {1, 2, 3, 4}
    assert len(cuts) == 8


def test_clients_can_be_cut_off_from_a_broker_that_its_peers_still_see() -> None:
    assert named(cuts_of("isolate", [2], 3, side="clients")) == ["CLIENT->2"]
    assert len(cuts_of("isolate", [2], 3, side="both")) == 5
    one_way = cuts_of("one-way", [2], 3, "drop", "clients")
    assert one_way == {Link("CLIENT", 2): Cut(CutMode.DROP, StreamDirection.BACK)}


@pytest.mark.parametrize("nodes", [3, 4, 5, 7])
def test_in_a_ring_each_broker_hears_a_majority_and_no_two_the_same_one(nodes: int) -> None:
    heard = hears(cuts_of("ring", [2], nodes, "hold"), nodes)
    assert {len(each) for each in heard.values()} == {nodes // 2 + 1}
    assert len({frozenset(each) for each in heard.values()}) == nodes


@pytest.mark.parametrize("nodes", [3, 4, 5])
def test_a_bridge_is_the_only_one_that_sees_both_sides(nodes: int) -> None:
    heard = hears(cuts_of("bridge", [2], nodes), nodes)
    assert heard.pop(2) == set(range(1, nodes + 1))
    sides = {frozenset(each - {2}) for each in heard.values()}
    assert len(sides) == 2
    assert not frozenset.intersection(*sides)


def test_links_are_of_peers_of_clients_or_of_both() -> None:
    everything = links((1, 2, 3), ("CLIENT",))
    assert [str(each) for each in links_of({"side": "clients"}, [2], everything)] == ["CLIENT->2"]
    assert len(links_of({"side": "peers"}, [2], everything)) == 4
    assert len(links_of({"side": "both"}, [1, 2, 3], everything)) == 9


@pytest.mark.parametrize(
    ("action", "params", "said"),
    [
        ("partition", {"shape": "ring", "side": "clients"}, "side = 'peers'"),
        ("partition", {"shape": "one-way", "side": "both", "manner": "refuse"}, "drop or hold them"),
        ("slicer", {"average_bytes": 30_000}, "too little to be measured"),
        ("slicer", {"average_bytes": 10, "variation_bytes": 10}, "variation_bytes = 10: less than"),
        ("slicer", {"average_bytes": 1, "delay_us": 50_000}, "1000 bytes in such pieces take 50 s"),
    ],
)
def test_what_cannot_be_or_cannot_be_proven_is_refused(action: str, params: dict[str, Any], said: str) -> None:
    with pytest.raises(FaultError, match=said):
        make_fault(0, 0, 2, action, "random", params)


@pytest.mark.parametrize(
    ("nodes", "action", "params", "said"),
    [
        (2, "partition", {"shape": "bridge"}, "needs 3 brokers"),
        (1, "bandwidth", {}, "a cluster of one has no links between brokers"),
        (1, "bandwidth", {"side": "clients"}, ""),
    ],
)
def test_a_cluster_too_small_for_such_links_is_told_so(
    nodes: int, action: str, params: dict[str, Any], said: str
) -> None:
    faults = [{"at_s": 3, "duration_s": 2, "action": action, "params": params}]
    values = {"cluster": {"nodes": nodes}, "workload": {"replication_factor": 1, "min_isr": 1}, "faults": faults}
    if said:
        with pytest.raises(PlanError, match=said):
            make_plan(values)
    else:
        make_plan(values)
