"""Epochs of consumer groups as Apache Kafka 4.3.1 counts them (KIP-848, KAFKA-20268, KAFKA-19974)."""

from __future__ import annotations

import pytest

from broker.coordinators.groups.consumer.facts import LEAVES
from broker.coordinators.groups.values import State
from broker.protocol.errors import ErrorCode
from tests.unit.coordinators.consumer_harness import A, Consumer, ConsumerHarness, places

OK = ErrorCode.NONE


@pytest.fixture
def harness() -> ConsumerHarness:
    return ConsumerHarness()


def test_a_group_that_reads_nothing_has_not_left_its_first_epoch(harness: ConsumerHarness) -> None:
    """As Kafka since 4.3: an empty target at epoch 1 is what a new group has (KAFKA-20268)."""
    one = Consumer("m1", topics=())
    answer = harness.enter(one)
    assert (answer.error, answer.epoch, answer.assigned) == (OK, 1, ())
    described = harness.described()
    assert (described.state, described.epoch, described.target_epoch) == (State.STABLE, 1, 1)
    assert harness.alive(one, topics=("a",)).epoch == 2
    harness.ask("m1", LEAVES)
    assert harness.consumers.epoch == 3, "a group that its members have left is still there"


def test_a_member_that_has_to_give_up_more_stays_in_its_epoch(harness: ConsumerHarness) -> None:
    """Else two members could own a partition in one epoch, one after the other (KAFKA-19974)."""
    one, two = Consumer("m1"), Consumer("m2")
    harness.enter(one)
    harness.enter(two)
    assert harness.turn(one).assigned == places(A, 0, 1)
    harness.enter(Consumer("m3"))
    harness.enter(Consumer("m4"))
    assert harness.turn(one).assigned == places(A, 0), "the newest target takes one more"
    assert one.epoch == 2
    harness.turn(one)
    assert one.epoch == 5
