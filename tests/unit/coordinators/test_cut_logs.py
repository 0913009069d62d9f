"""Consumer groups of a log whose beginning somebody has cut off: by retention, or by DeleteRecords."""

from __future__ import annotations

import pytest

from squall.broker.coordinators.groups.consumer.members import SubscriptionRecord
from squall.broker.coordinators.groups.values import DeleteGroup
from squall.broker.protocol.errors import ErrorCode
from tests.unit.coordinators.consumer_harness import Consumer, ConsumerHarness


def cut_off() -> ConsumerHarness:
    """Return a group with a log that has what a member owns and is to own, and not its metadata."""
    harness = ConsumerHarness()
    harness.together(Consumer("m"))
    harness.log = [
        (written, producer_id) for written, producer_id in harness.log if not isinstance(written, SubscriptionRecord)
    ]
    harness.fail_over()
    assert not harness.consumers.members
    assert harness.consumers.current
    assert harness.consumers.target
    return harness


def test_a_classic_member_takes_such_a_group_over() -> None:
    """Check that a join takes over what was left: it kept the group there for good, and a join wrote tombstones until
    the broker ended.
    """
    harness = cut_off()
    harness.join("c")
    assert harness.joined("c").error == ErrorCode.NONE
    assert "g" not in harness.machine.ledger.consumers


def test_such_a_group_can_be_deleted() -> None:
    harness = cut_off()
    assert harness.do("delete", DeleteGroup("g")).error == ErrorCode.NONE
    assert "g" not in harness.machine.ledger.consumers
    assert harness.machine.ledger.inspect_consumers() == harness.replayed().inspect_consumers() == {}


@pytest.mark.parametrize("name", ["m", "n"])
def test_a_member_of_the_consumer_protocol_joins_such_a_group(name: str) -> None:
    harness = cut_off()
    one = Consumer(name)
    harness.enter(one)
    for _ in range(5):
        assert not harness.turn(one).error
    assert set(harness.machine.ledger.consumers["g"].members) == {name}
