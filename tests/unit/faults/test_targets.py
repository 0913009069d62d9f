"""Names of targets: what each resolves to, what it leaves out, and what is refused with what to write instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from squall.chaos.faults.framed import framed_links
from squall.chaos.faults.shapes import asked_over, links_of, partition_cuts
from squall.chaos.faults.targets import (
    BUT,
    CLIENT_TARGETS,
    LINK_TARGET,
    NODE_TARGETS,
    ZONE_TARGET,
    ClusterSnapshot,
    UnresolvedTargetError,
    coordinated_names,
    link_of,
    resolve,
)
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.plan import PlanError, make_plan
from squall.chaos.runtimes.contract import Cut, CutMode, Link, StreamDirection
from squall.chaos.runtimes.layout import links, zone_names
from squall.workloads.registry import SCENARIOS

NODES = (1, 2, 3)
LINKS = links(NODES, zone_names(1))
VIEW = ClusterSnapshot(
    NODES, 1, {"t-0": 1, "t-1": 2}, {"t-0": (1, 2), "t-1": (2, 1)}, {"t-0": (1, 2, 3), "t-1": (2, 3, 1)}
)


COORDINATED = replace(VIEW, coordinators={"a": 2, "b": 3, "c": -1})


def resolved(target: str, view: ClusterSnapshot = VIEW) -> set[tuple[int, ...]]:
    """Everything that it may be."""
    return {resolve(target, view, Random(seed)) for seed in range(40)}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("followers:t-0", {(2, 3)}),
        ("followers", {(2, 3), (1, 3)}),
        ("leader not controller", {(2,)}),
        ("follower:t-1 not controller", {(3,)}),
        ("followers:t-1 not controller", {(3,)}),
        ("all not controller", {(2, 3)}),
        ("random not node:3", {(1,), (2,)}),
        ("minority not leader:t-1", {(1,), (3,)}),
        ("isr:t-0 not controller", {(2,)}),
        ("node:2 not controller", {(2,)}),
    ],
)
def test_what_a_target_may_be(target: str, expected: set[tuple[int, ...]]) -> None:
    assert resolved(target) == expected


def test_a_leader_is_one_of_the_workloads_partitions() -> None:
    """An administrator may have added others, and hardly anybody writes to them."""
    view = replace(VIEW, places=("t-1",))
    assert resolved("leader", view) == {(2,)}
    assert resolved("leader:t-0", view) == {(1,)}


def test_a_leader_is_that_of_a_partition_that_has_one() -> None:
    view = replace(VIEW, leaders={"t-0": -1, "t-1": 2})
    assert resolved("leader", view) == {(2,)}
    with pytest.raises(UnresolvedTargetError, match="t-0 has no leader"):
        resolve("leader:t-0", view, Random(1))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("coordinator:a", {(2,)}),
        ("coordinator", {(2,), (3,)}),
        ("coordinator not node:3", {(2,)}),
        ("all not coordinator:b", {(1, 2)}),
        ("leader not coordinator:a", {(1,)}),
    ],
)
def test_a_coordinator_is_whom_brokers_name(target: str, expected: set[tuple[int, ...]]) -> None:
    assert resolved(target, COORDINATED) == expected


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("coordinator:c", "coordinator:c: nobody coordinates it now"),
        ("coordinator:a not node:2", "coordinator:a: that is broker 2 now"),
    ],
)
def test_nobody_is_hit_where_nobody_coordinates(target: str, why: str) -> None:
    with pytest.raises(UnresolvedTargetError, match=why):
        resolve(target, COORDINATED, Random(1))


@pytest.mark.parametrize(
    ("targets", "asked"),
    [
        (["leader", "link:1->2"], ()),
        (["coordinator:b", "node:1"], ("b",)),
        (["link:zone:1->coordinator:a"], ("a",)),
        (["leader not coordinator:b"], ("b",)),
        (["coordinator:b", "coordinator"], ("a", "b")),
    ],
)
def test_only_coordinators_that_a_target_may_name_are_asked_for(targets: list[str], asked: tuple[str, ...]) -> None:
    assert coordinated_names(targets, ("a", "b")) == asked


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("leader:t-0 not controller", "every leader of t-0 is broker 1 now"),
        ("node:1 not controller", "that is broker 1 now"),
        ("majority not node:1", None),
        ("controller not node:1", "that is broker 1 now"),
        ("link:leader:t-0->controller", "both ends are broker 1 now"),
    ],
)
def test_nobody_is_left_just_now(target: str, why: str | None) -> None:
    if why is None:
        assert resolved(target) == {(2, 3)}
        return
    with pytest.raises(UnresolvedTargetError, match=why):
        assert link_of(target, VIEW, Random(1)) or resolve(target, VIEW, Random(1))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("link:1->2", {Link(1, 2)}),
        ("link:controller->leader:t-1", {Link(1, 2)}),
        ("link:zone:1->2", {Link("CLIENT", 2)}),
        ("link:follower:t-0 not node:3->leader:t-0", {Link(2, 1)}),
        ("link:1->random not controller", {Link(1, 2), Link(1, 3)}),
        ("leader", {None}),
    ],
)
def test_a_link_has_two_ends(target: str, expected: set[Link | None]) -> None:
    assert {link_of(target, VIEW, Random(seed)) for seed in range(40)} == expected


def test_a_fault_of_one_link_is_on_no_other() -> None:
    one = Link(1, 2)
    for action in ("latency", "reset", "bandwidth", "protocol"):
        params = make_fault(0, 0, 2, action, "link:1->2", {}).params
        assert params["side"] == "peers"
        assert links_of(params, [one], LINKS) == asked_over(params, [one], LINKS) == [one]
    cut = make_fault(0, 0, 2, "partition", "link:1->2", {"manner": "hold"}).params
    assert partition_cuts(cut, [one], NODES, LINKS) == [(one, Cut(CutMode.HOLD))]


def test_one_way_no_byte_of_the_source_reaches_the_target() -> None:
    params = make_fault(0, 0, 2, "partition", "link:1->2", {"manner": "drop", "shape": "one-way"}).params
    assert partition_cuts(params, [Link(1, 2)], NODES, LINKS) == [
        (Link(1, 2), Cut(CutMode.DROP, StreamDirection.THERE)),
        (Link(2, 1), Cut(CutMode.DROP, StreamDirection.BACK)),
    ]
    clients = make_fault(0, 0, 2, "partition", "link:zone:1->2", {"manner": "drop", "shape": "one-way"}).params
    link = Link("CLIENT", 2)
    assert partition_cuts(clients, [link], NODES, LINKS) == [(link, Cut(CutMode.DROP, StreamDirection.THERE))]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("link:1->2", ["1->2"]),
        ("link:zone:1->leader", ["CLIENT->1", "CLIENT->2", "CLIENT->3"]),
        ("link:2->leader", ["2->1", "2->3"]),
        ("node:2 not controller", ["1->2", "3->2", "CLIENT->2"]),
    ],
)
def test_relays_stand_where_a_link_may_be(target: str, expected: list[str]) -> None:
    fault = make_fault(0, 0, 2, "protocol", target, {})
    assert [str(link) for link in framed_links([fault], NODES, LINKS)] == expected


def plan(target: str, action: str = "partition", nodes: int = 3, **params: Any) -> Any:
    fault = {"at_s": 2, "duration_s": 2, "action": action, "target": target, "params": params}
    few = {"name": params.pop("workload", "appends"), "replication_factor": min(3, nodes), "min_isr": 1}
    return make_plan({"runtime": "sim", "cluster": {"nodes": nodes}, "workload": few, "faults": [fault]})


@pytest.mark.parametrize(
    ("target", "more", "said"),
    [
        ("link:1", {}, "a link has two ends, as in link:1->2"),
        ("link:1->", {}, "a link has two ends"),
        ("link:1->1", {}, "nobody has a link to itself"),
        ("link:1->7", {}, "there is no node 7"),
        ("link:zone:2->1", {}, "there is no zone 2"),
        ("link:1->zone:1", {}, "'zone:1' is not a broker: a link has one at each end"),
        ("link:all->1", {}, "'all' is not a broker or a zone"),
        ("link:1->2", {"action": "kill"}, "a link is no broker: of faults that take a side"),
        ("link:1->2", {"side": "clients"}, "this link is of peers: leave it out"),
        ("link:1->2", {"shape": "ring"}, "the target is one: shape = 'isolate' or 'one-way'"),
        ("leader not random", {}, "behind `not` stands controller, node:N, leader:TOPIC-N or coordinator:ID"),
        ("coordinator", {}, "the workload has no transactional producers"),
        ("coordinator:squall-0", {"action": "kill"}, "the workload has no transactional producers"),
        ("link:zone:1->coordinator", {}, "the workload has no transactional producers"),
        ("coordinator:", {"workload": "transactions"}, "nothing stands behind the colon"),
        ("leader not coordinator:", {"workload": "transactions"}, "behind `not` stands"),
        ("link:1->coordinator:", {"workload": "transactions"}, "nothing stands behind the colon"),
        ("leader:", {}, "nothing stands behind the colon"),
        ("leader not coordinator:a", {"workload": "transactions"}, "there is no transactional id a"),
        ("coordinator:squall-3", {"workload": "transactions"}, "the workload has squall-0, squall-1, squall-2"),
        ("coordinator:squall-0", {"workload": "groups"}, "there is no group squall-0: the workload has squall-group"),
        ("coordinator:a", {"workload": "pipeline"}, "there is no transactional id or group a: the workload has squall"),
        ("leader not leader", {}, "behind `not` stands"),
        ("leader not node:8", {}, "there is no node 8"),
        ("node:2 not node:2", {}, "nobody is left"),
        ("zone:1 not controller", {}, "no `not` behind zone"),
        ("followers:appends-7-0", {}, "there is no partition appends-7-0"),
        ("leader not controller", {"nodes": 1, "action": "kill"}, "a cluster of 1 has nobody else"),
    ],
)
def test_what_cannot_be_is_refused_when_the_plan_is_read(target: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError) as refused:
        plan(target, **more)
    assert said in str(refused.value)


def test_a_name_is_that_of_a_transactional_id_or_of_a_group_and_never_of_both() -> None:
    loads = [
        SCENARIOS[name].model_validate({"name": name}).traffic()
        for name in SCENARIOS
        if name != "command"  # which is nothing without a command
    ]
    semantics = {f"squall-{name}" for name in ("at-most-once", "at-least-once", "exactly-once")}
    assert {name for load in loads for name in load.groups} == {"squall-group", "squall-pipeline", *semantics}
    assert not [load for load in loads if {*load.ids} & {*load.groups}]


@pytest.mark.parametrize(
    ("workload", "target"),
    [
        ("groups", "coordinator"),
        ("groups", "all not coordinator:squall-group"),
        ("pipeline", "coordinator:squall-pipeline"),
        ("pipeline", "coordinator:squall-1"),
    ],
)
def test_coordinators_of_groups_can_be_hit(workload: str, target: str) -> None:
    assert plan(target, workload=workload, action="kill").faults[0].target == target


def test_the_page_has_a_row_for_each_target() -> None:
    page = (Path(__file__).parents[3] / "docs/faults.md").read_text()
    rows = [line.split("|")[1] for line in page.partition("## Targets")[2].splitlines() if line.startswith("| `")]
    named = {name.strip("`").partition(":")[0] for row in rows for name in row.replace(",", " ").split()}
    assert {*NODE_TARGETS, ZONE_TARGET, LINK_TARGET, *CLIENT_TARGETS} <= named
    assert any(f"{BUT}X" in row for row in rows)
