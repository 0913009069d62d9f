"""Checks where replicas are placed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.brokers.controller_harness import ControllerHarness


def placed(harness: ControllerHarness, partitions: int, factor: int) -> list[tuple[int, ...]]:
    harness.create("t", partitions, factor)
    topic = harness.image.topic("t")
    assert topic is not None
    return [partition.replicas for partition in topic.partitions.values()]


@pytest.mark.parametrize("seed", range(8))
def test_leaders_and_replicas_are_spread_evenly(seed: int) -> None:
    replicas = placed(ControllerHarness(brokers=5, seed=seed), 20, 3)
    assert set(Counter(brokers[0] for brokers in replicas).values()) == {4}
    assert set(Counter(broker for brokers in replicas for broker in brokers).values()) == {12}


def test_where_placement_begins_is_random() -> None:
    assert len({placed(ControllerHarness(seed=seed), 1, 1)[0] for seed in range(20)}) == 3


def test_the_partitions_of_one_leader_do_not_all_have_the_same_followers() -> None:
    replicas = placed(ControllerHarness(brokers=5), 20, 2)
    assert len({brokers[1] for brokers in replicas if brokers[0] == 1}) > 1


@pytest.mark.parametrize("seed", range(4))
def test_replicas_are_in_different_racks_while_there_are_any(seed: int) -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    for brokers in placed(ControllerHarness(brokers=6, racks=racks, seed=seed), 12, 3):
        assert {racks[broker] for broker in brokers} == {"a", "b", "c"}


def test_fenced_brokers_are_used_last_and_never_lead() -> None:
    harness = ControllerHarness(brokers=4)
    harness.lose(4)
    assert all(4 not in brokers for brokers in placed(harness, 6, 3))
    harness = ControllerHarness(brokers=4)
    harness.lose(3, 4)
    replicas = placed(harness, 4, 3)
    assert all(brokers[0] in (1, 2) and {1, 2} < set(brokers) for brokers in replicas)
    assert all(set(harness.partition("t", index).isr) == {1, 2} for index in range(4))


def test_a_stopping_broker_gets_no_replica() -> None:
    harness = ControllerHarness()
    harness.topic("u", [1, 2])
    harness.beat(1, stop=True)
    assert all(1 not in brokers for brokers in placed(harness, 4, 2))
