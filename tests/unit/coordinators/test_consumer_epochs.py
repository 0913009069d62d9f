"""Epochs of consumer groups, and members on their way to a target, as Apache Kafka 4.3.1 has them (KIP-848)."""

from __future__ import annotations

import pytest

from squall.broker.coordinators.groups.consumer.members import LEAVES, LEAVES_FOR_NOW
from squall.broker.coordinators.groups.values import GroupState
from squall.broker.protocol.errors import ErrorCode
from tests.unit.coordinators.consumer_harness import A, B, Consumer, ConsumerHarness, places

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
    assert (described.state, described.epoch, described.target_epoch) == (GroupState.STABLE, 1, 1)
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


def test_a_member_that_becomes_static_has_nothing_until_the_next_epoch(harness: ConsumerHarness) -> None:
    """As Kafka, which finds the target of a static member by its instance id (ConsumerGroup.targetAssignment)."""
    one, two = Consumer("m1"), Consumer("m2")
    harness.together(one)
    harness.enter(two)
    harness.alive(one)
    one.instance_id = "i1"
    answer = harness.enter(one)
    assert (answer.epoch, answer.assigned) == (harness.consumers.epoch, ())
    harness.settle_down(one, two)
    assert (one.owned, len(two.owned)) == ((), 2), "what is its own in the target has no owner"
    assert harness.described().state == GroupState.STABLE
    harness.ask("m2", LEAVES)
    harness.settle_down(one)
    assert one.owned == places(A, 0, 1, 2, 3)


def test_a_member_that_takes_an_instance_id_gets_what_it_had_itself_with_its_next_heartbeat(
    harness: ConsumerHarness,
) -> None:
    """As Kafka: what a heartbeat gives up is free once that is in the log."""
    one, other = Consumer("m1"), Consumer("m2", "i")
    harness.together(one)
    harness.enter(other)
    harness.ask("m2", LEAVES_FOR_NOW, instance_id="i")
    one.instance_id = "i"
    assert harness.enter(one).assigned == ()
    assert harness.turn(one).assigned == places(A, 2, 3)


def test_a_member_that_has_to_give_up_more_stops_reading_what_it_unsubscribes_from(harness: ConsumerHarness) -> None:
    """At once, not only when it has given up the rest (KAFKA-19431)."""
    one = Consumer("m1")
    harness.enter(one)
    harness.enter(Consumer("m2"))
    assert harness.alive(one).assigned == places(A, 0, 1)
    assert harness.alive(one, topics=("b",)).assigned == ()
    assert one.epoch == 2
    harness.turn(one)
    assert (one.epoch, one.owned) == (4, places(B, 0, 1))
