"""Decides AlterPartition, by which a leader proposes a new ISR (mechanism C1 in docs/mechanisms.md, KIP-497, KIP-841,
KIP-903).

The order of the checks is part of the contract. If the leader's epochs are newer than this controller's, the leader
must look for a newer controller. If they are older, it must wait for metadata. The proposed ISR is checked only if the
epochs are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.cluster.image import RECOVERED, RECOVERING
from squall.broker.cluster.replay import LEADER_UNCHANGED, MetadataRecord, changed
from squall.broker.controller.decision import Decision, Refusal, check_broker_epoch
from squall.broker.controller.elections import PARTITION_CHANGE_VERSION, partition_change
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema import alter_partition as wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.broker.cluster.image import ClusterImage, PartitionImage
    from squall.broker.controller.decision import Command

    Asked = wire.AlterPartitionRequestPartitionData

ANY_BROKER_EPOCH = -1
"""Is the broker epoch of an ISR member in AlterPartition if the leader does not know it. It is not compared with the
registered epoch.
"""


def alter_partitions(command: Command, request: wire.AlterPartitionRequest) -> Decision[wire.AlterPartitionResponse]:
    """Decide on the ISRs that a broker proposes. A refusal for one partition affects no other. Top-level error:
    STALE_BROKER_EPOCH.
    """
    try:
        check_broker_epoch(command.image, request.broker_id, request.broker_epoch)
    except Refusal as refused:
        return Decision(wire.AlterPartitionResponse(error_code=refused.code))
    work = _AlterPartitionHandler(command, request.broker_id)
    topics = [
        wire.AlterPartitionResponseTopicData(
            topic_id=topic.topic_id,
            partitions=[work.answer(topic.topic_id, asked) for asked in topic.partitions],
        )
        for topic in request.topics
    ]
    assert len(work.decided) <= len(work.writes)
    return Decision(wire.AlterPartitionResponse(topics=topics), tuple(work.writes))


class _AlterPartitionHandler:
    """Decides one request partition by partition. Earlier changes of the request are visible to later ones."""

    def __init__(self, command: Command, broker_id: int) -> None:
        self.command, self.broker_id = command, broker_id
        self.writes: list[MetadataRecord] = []
        self.decided: dict[tuple[bytes, int], PartitionImage] = {}

    def answer(self, topic_id: bytes, asked: Asked) -> wire.AlterPartitionResponsePartitionData:
        index = asked.partition_index
        try:
            partition = self.alter(topic_id, asked)
        except Refusal as refused:
            return wire.AlterPartitionResponsePartitionData(partition_index=index, error_code=refused.code)
        return wire.AlterPartitionResponsePartitionData(
            partition_index=index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def alter(self, topic_id: bytes, asked: Asked) -> PartitionImage:
        image, index = self.command.image, asked.partition_index
        if topic_id not in image.topics_by_id:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
        before = self.decided.get((topic_id, index)) or image.partition(topic_id, index)
        if before is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        check_epochs(before, self.broker_id, asked)
        check_isr(before, asked)
        if ineligible(image, asked.new_isr_with_epochs):
            raise Refusal(ErrorCode.INELIGIBLE_REPLICA)
        return self._change(topic_id, index, before, asked)

    def _change(self, topic_id: bytes, index: int, before: PartitionImage, asked: Asked) -> PartitionImage:
        assert before.leader == self.broker_id
        assert before.leader != NO_NODE
        change = partition_change(self.command, topic_id, index, before)
        change.isr = tuple(member.broker_id for member in asked.new_isr_with_epochs)
        change.leader_recovery_state = asked.leader_recovery_state
        record = change.plan()
        if record is None:
            return before
        after = changed(before, record)
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch - before.leader_epoch in (0, 1)
        assert set(after.isr) <= set(after.replicas), f"ISR {after.isr} of {after.replicas}"
        self.decided[topic_id, index] = after
        self.writes.append(MetadataRecord(record, PARTITION_CHANGE_VERSION))
        if record.leader not in (LEADER_UNCHANGED, self.broker_id):
            # The change completed a reassignment that takes the leadership from the sender.
            raise Refusal(ErrorCode.NEW_LEADER_ELECTED)
        return after


def check_epochs(partition: PartitionImage, broker_id: int, asked: Asked) -> None:
    """Refuse the proposal `asked` if its sender is not the leader, or if its leader epoch or partition epoch is not
    that of `partition`.
    """
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        # The sender has seen a later controller than this one.
        raise Refusal(ErrorCode.NOT_CONTROLLER)
    if asked.leader_epoch < partition.leader_epoch:
        raise Refusal(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    check_partition_epoch(partition, asked.partition_epoch)


def check_partition_epoch(partition: PartitionImage, partition_epoch: int) -> None:
    """Refuse a change that was made from an older state of the partition (compare and swap, KIP-497)."""
    if partition_epoch < partition.partition_epoch:
        raise Refusal(ErrorCode.INVALID_UPDATE_VERSION)


def check_isr(partition: PartitionImage, asked: Asked) -> None:
    """Refuse an ISR that is malformed, lacks its leader, or grows while the leader recovers (KIP-704)."""
    isr = [member.broker_id for member in asked.new_isr_with_epochs]
    malformed = not isr or len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas)
    if malformed or partition.leader not in isr:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    recovery = asked.leader_recovery_state
    if recovery not in (RECOVERED, RECOVERING) or (recovery == RECOVERING and len(isr) > 1):
        raise Refusal(ErrorCode.INVALID_REQUEST)
    if partition.leader_recovery_state == RECOVERED and recovery == RECOVERING:
        raise Refusal(ErrorCode.INVALID_REQUEST)


def ineligible(image: ClusterImage, members: Sequence[wire.BrokerState]) -> list[int]:
    """Return members that may not enter an ISR: unknown, fenced, stopping (KIP-841), or of another incarnation
    (KIP-903).
    """
    return [
        member.broker_id
        for member in members
        if not is_available(image, member.broker_id) or not is_same_incarnation(image, member)
    ]


def is_available(image: ClusterImage, broker_id: int) -> bool:
    """Return whether a broker is registered, unfenced and not shutting down, so that it can stay in the ISR."""
    return image.is_active(broker_id)


def is_same_incarnation(image: ClusterImage, member: wire.BrokerState) -> bool:
    """Return whether the request gives the registered broker epoch for this ISR member, or ANY_BROKER_EPOCH. Another
    epoch means that the member has restarted since it caught up with the leader, and may have lost records.
    """
    if member.broker_epoch == ANY_BROKER_EPOCH:
        return True
    broker = image.brokers.get(member.broker_id)
    return broker is not None and broker.epoch == member.broker_epoch
