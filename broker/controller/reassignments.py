"""Decides AlterPartitionReassignments and ListPartitionReassignments (mechanism C1 in docs/mechanisms.md, KIP-455,
KIP-860).

A reassignment first adds the new replicas to the old ones. When the last of the new replicas enters the ISR, the same
`PartitionChange` removes the old replicas. It also begins a new leader epoch, which fences the removed replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.cluster.image import RECOVERING
from squall.broker.cluster.replay import MetadataRecord
from squall.broker.controller.decision import Decision, Refusal
from squall.broker.controller.elections import PARTITION_CHANGE_VERSION, ElectionType, election_for, partition_change
from squall.broker.controller.placement import check_manual
from squall.broker.controller.replica_count_limit import ReplicaCountLimit
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import alter_partition_reassignments as wire
from squall.broker.protocol.schema import list_partition_reassignments as list_wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from squall.broker.cluster.image import ClusterImage, PartitionImage, Topic
    from squall.broker.controller.decision import Command


def alter_reassignments(
    command: Command, request: wire.AlterPartitionReassignmentsRequest
) -> Decision[wire.AlterPartitionReassignmentsResponse]:
    """Begin, change or (replicas null) cancel reassignments. A refusal for one partition affects no other."""
    limit = ReplicaCountLimit(command.image, command.settings.config)
    writes: list[MetadataRecord] = []
    responses = []
    named: set[tuple[str, int]] = set()
    for asked in request.topics:
        response = wire.ReassignableTopicResponse(name=asked.name)
        for target in asked.partitions:
            result = wire.ReassignablePartitionResponse(partition_index=target.partition_index, error_message=None)
            try:
                # Each change is computed from the image before this request, so a second one would be wrong.
                if (asked.name, target.partition_index) in named:
                    raise Refusal(ErrorCode.INVALID_REQUEST, "The partition is named more than once.")
                named.add((asked.name, target.partition_index))
                writes += _reassign(command, asked.name, target, limit, request.allow_replication_factor_change)
            except Refusal as refused:
                result.error_code, result.error_message = refused.code, refused.message
            response.partitions.append(result)
        responses.append(response)
    reply = wire.AlterPartitionReassignmentsResponse(error_message=None, responses=responses)
    reply.allow_replication_factor_change = request.allow_replication_factor_change
    return Decision(reply, tuple(writes))


def _reassign(
    command: Command, name: str, target: wire.ReassignablePartition, limit: ReplicaCountLimit, may_change_factor: bool
) -> list[MetadataRecord]:
    topic = command.image.topic(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(target.partition_index)
    if partition is None:
        message = f"Unable to find partition {name}:{target.partition_index}."
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if target.replicas is None:
        return _cancel(command, topic, target.partition_index, partition)
    replicas = tuple(target.replicas)
    check_manual(command.image, replicas, None)
    before = original_replicas(partition)
    assert before
    if not may_change_factor and len(replicas) != len(before):
        message = f"The replication factor is changed from {len(before)} to {len(replicas)}"
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    limit.take([[replica for replica in replicas if replica not in partition.replicas]])
    leaving = tuple(replica for replica in partition.replicas if replica not in replicas)
    change = partition_change(command, topic.id, target.partition_index, partition)
    change.replicas = replicas + leaving
    change.removing = leaving
    change.adding = tuple(replica for replica in replicas if replica not in before)
    # No replica leaves yet: the removed ones may be the only ones with all committed records.
    assert set(partition.replicas) <= set(change.replicas)
    assert len(set(change.replicas)) == len(change.replicas)
    assert not set(change.adding) & set(change.removing)
    return _written(change.plan())


def _cancel(command: Command, topic: Topic, index: int, partition: PartitionImage) -> list[MetadataRecord]:
    if not is_reassigning(partition):
        raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    change = partition_change(command, topic.id, index, partition)
    change.replicas = original_replicas(partition)
    change.adding = change.removing = ()
    change.isr = tuple(member for member in partition.isr if member not in partition.adding)
    assert change.replicas
    if not change.isr:
        if election_for(command, topic.name) is not ElectionType.UNCLEAN:
            message = (
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
                "leader election."
            )
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        change.isr = change.replicas[:1]
        change.leader_recovery_state = RECOVERING
    assert change.isr
    return _written(change.plan())


def _written(record: object | None) -> list[MetadataRecord]:
    return [] if record is None else [MetadataRecord(record, PARTITION_CHANGE_VERSION)]


def is_reassigning(partition: PartitionImage) -> bool:
    """Return whether replicas are being added or removed."""
    return bool(partition.adding or partition.removing)


def original_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas without those that are being added."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def list_reassignments(
    command: Command, request: list_wire.ListPartitionReassignmentsRequest
) -> Decision[list_wire.ListPartitionReassignmentsResponse]:
    """List the reassignments in progress of the named partitions, or of all if none are named."""
    topics: dict[str, list_wire.OngoingTopicReassignment] = {}
    for name, index, partition in _asked(command.image, request):
        if is_reassigning(partition):
            topic = topics.setdefault(name, list_wire.OngoingTopicReassignment(name=name))
            topic.partitions.append(
                list_wire.OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding),
                    removing_replicas=list(partition.removing),
                )
            )
    return Decision(list_wire.ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values())))


def _asked(
    image: ClusterImage, request: list_wire.ListPartitionReassignmentsRequest
) -> Iterator[tuple[str, int, PartitionImage]]:
    if request.topics is None:
        for topic, index, partition in image.partitions():
            yield topic.name, index, partition
        return
    for asked in request.topics:
        found = image.topic(asked.name)
        for index in dict.fromkeys(asked.partition_indexes) if found is not None else ():
            if found is not None and index in found.partitions:
                yield asked.name, index, found.partitions[index]
