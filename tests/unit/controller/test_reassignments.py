"""Partitions on their way to other brokers."""

from __future__ import annotations

from squall.broker.cluster.image import RECOVERING
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema import alter_partition_reassignments as wire
from squall.broker.protocol.schema import list_partition_reassignments as list_wire
from tests.support.brokers.controller_harness import ControllerHarness


def move(
    harness: ControllerHarness, name: str, replicas: list[int] | None, *, index: int = 0, may_change_factor: bool = True
) -> tuple[ErrorCode, str | None]:
    target = wire.ReassignablePartition(partition_index=index, replicas=replicas)
    request = wire.AlterPartitionReassignmentsRequest(
        topics=[wire.ReassignableTopic(name=name, partitions=[target])],
        allow_replication_factor_change=may_change_factor,
    )
    reply = harness.do(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    result = reply.responses[0].partitions[0]
    return ErrorCode(result.error_code), result.error_message


def on_its_way(harness: ControllerHarness, *names: str) -> dict[str, tuple[list[int], list[int], list[int]]]:
    topics = [list_wire.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 7]) for name in names]
    request = list_wire.ListPartitionReassignmentsRequest(topics=topics if names else None)
    reply = harness.do(ApiKey.LIST_PARTITION_REASSIGNMENTS, request)
    return {
        f"{topic.name}-{partition.partition_index}": (
            partition.replicas,
            partition.adding_replicas,
            partition.removing_replicas,
        )
        for topic in reply.topics
        for partition in topic.partitions
    }


def prepared() -> ControllerHarness:
    harness = ControllerHarness(brokers=5)
    harness.topic("t", [1, 2, 3])
    return harness


def test_new_replicas_are_added_first_and_the_old_ones_stay() -> None:
    harness = prepared()
    assert move(harness, "t", [4, 5, 3]) == (ErrorCode.NONE, None)
    partition = harness.partition("t")
    assert partition.replicas == (4, 5, 3, 1, 2)
    assert (partition.adding, partition.removing) == ((4, 5), (1, 2))
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1, 2, 3))
    assert on_its_way(harness) == {"t-0": ([4, 5, 3, 1, 2], [4, 5], [1, 2])}
    assert on_its_way(harness, "t", "u") == on_its_way(harness)


def test_the_last_new_replica_in_the_isr_completes_it_and_fences_the_old_ones() -> None:
    harness = prepared()
    move(harness, "t", [4, 5, 3])
    harness.alter("t", [1, 2, 3, 4])
    assert on_its_way(harness)
    assert harness.alter("t", [1, 2, 3, 4, 5]).error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = harness.partition("t")
    assert (partition.replicas, partition.isr) == ((4, 5, 3), (3, 4, 5))
    assert (partition.leader, partition.leader_epoch) == (4, 1)
    assert on_its_way(harness) == {}


def test_a_leader_that_stays_keeps_leading_with_a_new_epoch() -> None:
    harness = prepared()
    move(harness, "t", [1, 4])
    assert harness.alter("t", [1, 2, 3, 4]).error_code == ErrorCode.NONE
    partition = harness.partition("t")
    assert (partition.leader, partition.leader_epoch, partition.replicas) == (1, 1, (1, 4))


def test_a_new_order_of_the_same_replicas_is_taken_at_once() -> None:
    harness = prepared()
    move(harness, "t", [3, 2, 1])
    partition = harness.partition("t")
    assert (partition.replicas, partition.adding, partition.removing) == ((3, 2, 1), (), ())
    assert (partition.leader, partition.leader_epoch) == (1, 0)


def test_fewer_replicas_are_taken_at_once() -> None:
    harness = prepared()
    move(harness, "t", [2, 3])
    partition = harness.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3), (2, 3), 2)


def test_a_reassignment_may_be_changed_on_its_way() -> None:
    harness = prepared()
    move(harness, "t", [1, 2, 4])
    move(harness, "t", [1, 2, 5])
    partition = harness.partition("t")
    assert (partition.replicas, partition.adding, partition.removing) == ((1, 2, 5, 4, 3), (5,), (4, 3))


def test_asking_again_for_the_same_changes_nothing() -> None:
    harness = prepared()
    move(harness, "t", [1, 2, 4])
    before = harness.partition("t")
    assert move(harness, "t", [1, 2, 4]) == (ErrorCode.NONE, None)
    assert harness.partition("t") == before


def test_a_reassignment_may_be_cancelled() -> None:
    harness = prepared()
    move(harness, "t", [4, 5])
    harness.alter("t", [1, 2, 3, 4])
    assert move(harness, "t", None) == (ErrorCode.NONE, None)
    partition = harness.partition("t")
    assert (set(partition.replicas), partition.isr) == ({1, 2, 3}, (1, 2, 3))
    assert (partition.adding, partition.removing) == ((), ())
    assert (partition.leader, partition.leader_epoch) == (1, 1)
    assert move(harness, "t", None)[0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def only_new_replicas_left(**configs: str) -> ControllerHarness:
    """The ISR is {4}, which is on its way in; the original replicas are alive again."""
    harness = ControllerHarness(brokers=5)
    harness.topic("t", [1, 2], **configs)
    move(harness, "t", [4, 5])
    harness.alter("t", [1, 2, 4])
    harness.lose(1, 2)
    for broker_id in (1, 2):
        harness.beat(broker_id)
    assert (harness.partition("t").leader, harness.partition("t").isr) == (4, (4,))
    return harness


def test_cancelling_does_not_throw_away_the_only_complete_replica() -> None:
    harness = only_new_replicas_left()
    assert move(harness, "t", None)[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert harness.partition("t").isr == (4,)


def test_cancelling_does_so_where_unclean_elections_are_allowed() -> None:
    harness = only_new_replicas_left(unclean_leader_election_enable="true")
    assert move(harness, "t", None)[0] == ErrorCode.NONE
    partition = harness.partition("t")
    assert partition.leader != NO_NODE
    assert (partition.isr, partition.leader_recovery_state) == ((partition.leader,), RECOVERING)
    assert set(partition.replicas) == {1, 2}


def test_a_reassignment_that_cannot_be_is_refused() -> None:
    harness = prepared()
    assert move(harness, "u", [1])[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(harness, "t", [1], index=7)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(harness, "t", [])[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(harness, "t", [1, 1])[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(harness, "t", [9])[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(harness, "t", [4], may_change_factor=False) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 3 to 1",
    )
    assert move(harness, "t", [4, 5, 1], may_change_factor=False)[0] == ErrorCode.NONE


def test_a_partition_named_twice_is_moved_once() -> None:
    harness = prepared()
    targets = [wire.ReassignablePartition(partition_index=0, replicas=replicas) for replicas in ([1, 2], [4, 5])]
    topic = wire.ReassignableTopic(name="t", partitions=targets)
    reply = harness.do(ApiKey.ALTER_PARTITION_REASSIGNMENTS, wire.AlterPartitionReassignmentsRequest(topics=[topic]))
    errors = [result.error_code for result in reply.responses[0].partitions]
    assert errors == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert harness.partition("t").replicas == (1, 2)


def test_a_partition_that_two_entries_name_is_moved_once() -> None:
    """Both were decided from the same state: replicas 1 and 2, of which 3 was added, and 2 and 1 were to go."""
    harness = ControllerHarness()
    harness.topic("t", [2, 1])
    harness.topic("u", [2, 1])
    topics = [
        wire.ReassignableTopic(name=name, partitions=[wire.ReassignablePartition(partition_index=0, replicas=replicas)])
        for name, replicas in (("t", [3]), ("t", [1, 2]), ("u", [1, 2]), ("t", None))
    ]
    request = wire.AlterPartitionReassignmentsRequest(topics=topics, allow_replication_factor_change=True)
    reply = harness.do(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    assert [topic.name for topic in reply.responses] == ["t", "t", "u", "t"]
    errors = [topic.partitions[0].error_code for topic in reply.responses]
    assert errors == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    partition = harness.partition("t")
    assert (partition.replicas, partition.adding, partition.removing) == ((3, 2, 1), (3,), (2, 1))
    assert harness.partition("u").replicas == (1, 2)


def test_a_new_replica_that_dies_holds_the_reassignment_up_and_not_the_partition() -> None:
    harness = prepared()
    move(harness, "t", [4, 5])
    harness.alter("t", [1, 2, 3, 4])
    harness.lose(4)
    partition = harness.partition("t")
    assert (partition.leader, partition.isr) == (1, (1, 2, 3))
    assert partition.adding == (4, 5)
