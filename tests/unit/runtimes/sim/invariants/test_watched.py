"""Whose beliefs are asked about: each leader whose followers moved, and nobody's that another one has followed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.runtimes.sim.invariants.known import Belief
from chaos.runtimes.sim.invariants.watched import NOTHING_SEEN, Glance, Node
from tests.support.clusters.known_partitions import known


def replica(name: str, ends: dict[int, int], epoch: int = 1, *, leads: bool = True) -> Any:
    """One of node 1. `ends`: where it believes, as a leader, that its followers' logs end."""
    followers = {node: SimpleNamespace(broker_id=node, log_end_offset=end) for node, end in ends.items()}
    state = SimpleNamespace(
        is_leader=leads,
        followers=followers if leads else {},
        local_id=1,
        leader_epoch=epoch,
        high_watermark=0,
        log_end_offset=9,
        partition_epoch=1,
        maximal_isr=(),
        isr=(),
    )
    log = SimpleNamespace(log_end_offset=9, generation=0, log_start_offset=0)
    return SimpleNamespace(name=name, state=state, log=log)


def seen_of(node: Node) -> Glance:
    node.inspect, node.image, node.by_id = (lambda: ()), SimpleNamespace(offset=1), {}
    return node.glance()


def names(found: list[Any]) -> list[str]:
    return [each.name for each in found]


@pytest.fixture
def node() -> Node:
    found = Node(SimpleNamespace(id=1, name="node-1"))  # type: ignore[arg-type]
    found.host([replica("a", {2: 5, 3: 5}), replica("b", {2: 5, 3: 5}, leads=False), replica("c", {2: 5, 3: 5})])
    return found


def test_only_the_leader_whose_follower_moved_is_asked(node: Node) -> None:
    before = seen_of(node)
    node.replicas[2].state.followers[3].log_end_offset = 6
    assert names(node.believers(before, seen_of(node))) == ["c"]


def test_where_another_replica_leads_than_before_all_leaders_are_asked_though_some_numbers_are_the_same(
    node: Node,
) -> None:
    before = seen_of(node)
    node.host([replica("a", {2: 5, 3: 5}, leads=False), replica("b", {2: 5, 3: 5}), replica("c", {2: 5, 3: 6})])
    assert set(names(node.believers(before, seen_of(node)))) == {"b", "c"}


def test_of_a_node_that_was_not_seen_before_all_leaders_are_asked(node: Node) -> None:
    assert set(names(node.believers(NOTHING_SEEN, seen_of(node)))) == {"a", "c"}


def test_what_a_leader_of_the_past_believes_hides_nothing() -> None:
    about = known()
    assert about.believes(replica("new", {2: 7}, epoch=2).state)
    assert not about.believes(replica("old", {2: 3}, epoch=1).state)
    assert about.believed == Belief(1, 2, ((2, 7),))
    assert not about.believes(replica("new", {2: 7}, epoch=2).state), "that is no news"
    assert about.believes(replica("new", {2: 8}, epoch=2).state)
