"""AlterPartition: what is refused, in which order, and what an accepted ISR changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations

import pytest

from squall.broker.cluster.image import RECOVERING
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import alter_partition as wire
from squall.broker.protocol.schema.metadata_records import PartitionChangeRecord
from tests.support.brokers.controller_harness import ControllerHarness, broker_state

UNKNOWN = b"?" * 16


@dataclass
class Ask:
    """A request for partition 0 of topic "t" (replicas 1 2 3, ISR 1 2, leader 1, leader epoch 1, partition epoch 3)."""

    sender: int = 1
    leader_epoch: int = 1
    partition_epoch: int = 3
    isr: tuple[int, ...] = (1, 2)
    recovering: bool = False
    index: int = 0
    topic_id: bytes | None = None
    stale_members: tuple[int, ...] = ()
    stale_sender: bool = False
    harness: ControllerHarness = field(default_factory=lambda: prepared())


def prepared() -> ControllerHarness:
    """Brokers 1 to 5; 4 is fenced, 5 is stopping."""
    harness = ControllerHarness(brokers=5)
    harness.topic("t", [2, 1, 3, 4, 5])
    harness.topic("v", [5, 1])
    harness.lose(4)
    harness.beat(5, stop=True)
    harness.beat(2, want_fence=True)
    assert not harness.beat(2).is_fenced
    harness.alter("t", [1, 2])
    partition = harness.partition("t")
    assert (partition.leader, partition.isr) == (1, (1, 2))
    assert harness.image.brokers[5].in_controlled_shutdown
    return harness


def ask(what: Ask) -> ErrorCode:
    harness = what.harness
    topic_id = harness.image.topic_ids["t"] if what.topic_id is None else what.topic_id
    brokers = harness.image.brokers
    members = [
        broker_state(member, brokers[member].epoch - (member in what.stale_members) if member in brokers else 1)
        for member in what.isr
    ]
    now = harness.partition("t")
    asked = wire.AlterPartitionRequestPartitionData(
        partition_index=what.index,
        leader_epoch=now.leader_epoch + what.leader_epoch - 1,
        partition_epoch=now.partition_epoch + what.partition_epoch - 3,
        new_isr_with_epochs=members,
        leader_recovery_state=int(what.recovering),
    )
    reply = harness.do(
        ApiKey.ALTER_PARTITION,
        wire.AlterPartitionRequest(
            broker_id=what.sender,
            broker_epoch=brokers[what.sender].epoch - what.stale_sender,
            topics=[wire.AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[asked])],
        ),
    )
    if reply.error_code:
        return ErrorCode(reply.error_code)
    return ErrorCode(reply.topics[0].partitions[0].error_code)


Fault = Callable[[Ask], Ask]

FAULTS: list[tuple[str, Fault, ErrorCode]] = [
    ("broker epoch behind", lambda a: replace(a, stale_sender=True), ErrorCode.STALE_BROKER_EPOCH),
    ("unknown topic", lambda a: replace(a, topic_id=UNKNOWN), ErrorCode.UNKNOWN_TOPIC_ID),
    ("unknown partition", lambda a: replace(a, index=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("leader epoch ahead", lambda a: replace(a, leader_epoch=2), ErrorCode.NOT_CONTROLLER),
    ("partition epoch ahead", lambda a: replace(a, partition_epoch=4), ErrorCode.NOT_CONTROLLER),
    ("leader epoch behind", lambda a: replace(a, leader_epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
    ("not the leader", lambda a: replace(a, sender=2), ErrorCode.INVALID_REQUEST),
    ("partition epoch behind", lambda a: replace(a, partition_epoch=2), ErrorCode.INVALID_UPDATE_VERSION),
    ("no replica", lambda a: replace(a, isr=(*a.isr, 9)), ErrorCode.INVALID_REQUEST),
    ("a member twice", lambda a: replace(a, isr=(*a.isr, *a.isr)), ErrorCode.INVALID_REQUEST),
    ("lacks the leader", lambda a: replace(a, isr=(2,)), ErrorCode.INVALID_REQUEST),
    ("grows while recovering", lambda a: replace(a, recovering=True), ErrorCode.INVALID_REQUEST),
    ("fenced member", lambda a: replace(a, isr=(*a.isr, 4)), ErrorCode.INELIGIBLE_REPLICA),
    ("stopping member", lambda a: replace(a, isr=(*a.isr, 5)), ErrorCode.INELIGIBLE_REPLICA),
    ("restarted member", lambda a: replace(a, stale_members=(2,)), ErrorCode.INELIGIBLE_REPLICA),
]
"""Every error that a request can have, in the order in which the controller checks for them."""

EXCLUSIVE = [
    {"leader epoch ahead", "leader epoch behind"},
    {"partition epoch ahead", "partition epoch behind"},
]
"""Errors that one request cannot have at the same time."""

PAIRS = [(first, second) for first, second in combinations(FAULTS, 2) if {first[0], second[0]} not in EXCLUSIVE]


def test_without_a_fault_the_isr_is_accepted() -> None:
    assert ask(Ask()) == ErrorCode.NONE


@pytest.mark.parametrize(("name", "fault", "expected"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_each_fault_has_its_error_and_writes_nothing(name: str, fault: Fault, expected: ErrorCode) -> None:
    asked = fault(Ask())
    before = len(asked.harness.log)
    assert ask(asked) == expected
    assert len(asked.harness.log) == before


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{a[0]} + {b[0]}" for a, b in PAIRS])
def test_of_two_faults_the_earlier_one_is_answered(
    first: tuple[str, Fault, ErrorCode], second: tuple[str, Fault, ErrorCode]
) -> None:
    assert ask(second[1](first[1](Ask()))) == first[2]


def test_an_isr_that_is_empty_is_malformed() -> None:
    assert ask(Ask(isr=())) == ErrorCode.INVALID_REQUEST


def test_success_bumps_the_partition_epoch_only() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    answer = harness.alter("t", [1, 2])
    assert answer.error_code == ErrorCode.NONE
    assert (answer.leader_id, answer.leader_epoch, answer.partition_epoch, answer.isr) == (1, 0, 1, [1, 2])
    partition = harness.partition("t")
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((1, 2), 0, 1)


def test_an_unchanged_isr_is_accepted_and_writes_nothing() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    before = len(harness.log)
    answer = harness.alter("t", [1, 2, 3])
    assert (answer.error_code, answer.partition_epoch) == (ErrorCode.NONE, 0)
    assert len(harness.log) == before


def test_a_retried_request_finds_its_epoch_taken() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    harness.alter("t", [1, 2])
    assert harness.alter("t", [1, 2], partition_epoch=-1).error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_an_unknown_broker_epoch_of_a_member_is_not_compared() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    assert harness.alter("t", [1, 2], broker_epochs={2: -1}).error_code == ErrorCode.NONE


def test_a_member_that_restarted_since_its_fetches_is_not_admitted() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    old = harness.image.brokers[2].epoch
    harness.lose(2)
    harness.join(2, incarnation=2)
    assert harness.alter("t", [1, 2, 3], broker_epochs={2: old}).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert harness.alter("t", [1, 2, 3]).error_code == ErrorCode.NONE


def test_the_isr_cannot_grow_before_the_leader_has_recovered() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2], unclean_leader_election_enable="true")
    harness.lose(2)
    harness.lose(1)
    assert not harness.beat(2).is_fenced
    partition = harness.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), RECOVERING)
    assert not harness.beat(1).is_fenced
    assert harness.alter("t", [1, 2], recovering=True).error_code == ErrorCode.INVALID_REQUEST
    assert harness.alter("t", [1, 2]).error_code == ErrorCode.NONE
    assert harness.partition("t").leader_recovery_state == 0


def test_a_partition_named_twice_in_a_request_is_altered_once() -> None:
    harness = ControllerHarness()
    topic_id = harness.topic("t", [1, 2, 3])

    def asked(*isr: int) -> wire.AlterPartitionRequestPartitionData:
        members = [broker_state(member, harness.image.brokers[member].epoch) for member in isr]
        return wire.AlterPartitionRequestPartitionData(partition_index=0, new_isr_with_epochs=members)

    request = wire.AlterPartitionRequest(
        broker_id=1,
        broker_epoch=harness.image.brokers[1].epoch,
        topics=[wire.AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[asked(1, 2), asked(1, 3)])],
    )
    (topic,) = harness.do(ApiKey.ALTER_PARTITION, request).topics
    errors = [partition.error_code for partition in topic.partitions]
    assert errors == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert harness.partition("t").isr == (1, 2)


def test_an_isr_that_completes_a_reassignment_may_cost_the_sender_its_leadership() -> None:
    harness = ControllerHarness()
    topic_id = harness.topic("t", [1, 2])
    moving = PartitionChangeRecord(
        topic_id=topic_id, partition_id=0, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[1]
    )
    from squall.broker.cluster.replay import MetadataRecord
    from squall.broker.controller.decision import Decision

    harness.commit(Decision(None, (MetadataRecord(moving, 2),)))
    assert harness.alter("t", [1, 2, 3]).error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = harness.partition("t")
    assert (partition.leader, partition.replicas, partition.isr) == (2, (2, 3), (2, 3))
