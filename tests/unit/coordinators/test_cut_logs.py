"""Consumer groups of a log whose beginning somebody has cut off: by retention, or by DeleteRecords."""

from __future__ import annotations

import pytest

from broker.coordinators.groups.consumer.facts import Subscribed
from broker.coordinators.groups.values import DeleteGroup
from broker.protocol.errors import ErrorCode
from tests.unit.coordinators.consumer_room import Consumer, ConsumerRoom


def cut_off() -> ConsumerRoom:
    """What a member owns and is to own is in the log, and not who it is."""
    room = ConsumerRoom()
    room.together(Consumer("m"))
    room.log = [(written, producer_id) for written, producer_id in room.log if not isinstance(written, Subscribed)]
    room.fail_over()
    assert not room.consumers.members
    assert room.consumers.current
    assert room.consumers.target
    return room


def test_a_classic_member_takes_such_a_group_over() -> None:
    """What was left kept the group there for good: a join wrote tombstones until the broker ended."""
    room = cut_off()
    room.join("c")
    assert room.joined("c").error == ErrorCode.NONE
    assert "g" not in room.machine.ledger.consumers


def test_such_a_group_can_be_deleted() -> None:
    room = cut_off()
    assert room.do("delete", DeleteGroup("g")).error == ErrorCode.NONE
    assert "g" not in room.machine.ledger.consumers
    assert room.machine.ledger.inspect_consumers() == room.replayed().inspect_consumers() == {}


@pytest.mark.parametrize("name", ["m", "n"])
def test_a_member_of_the_consumer_protocol_joins_such_a_group(name: str) -> None:
    room = cut_off()
    one = Consumer(name)
    room.enter(one)
    for _ in range(5):
        assert not room.turn(one).error
    assert set(room.machine.ledger.consumers["g"].members) == {name}
