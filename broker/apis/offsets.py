"""ListOffsets (R6) and OffsetForLeaderEpoch (E3): answered from this broker's replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.protocol.errors import ErrorCode
from broker.protocol.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from broker.protocol.schema.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from broker.protocol.timestamps import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP

if TYPE_CHECKING:
    from broker.net.connection import Slot
    from broker.protocol.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest
    from broker.protocol.schema.offset_for_leader_epoch import OffsetForLeaderEpochRequest
    from broker.replicas.hosted import Hosted
    from broker.replicas.replica_manager import ReplicaManager

_CONSUMER = -1
_EPOCHS_FROM = 4
_NOT_AVAILABLE_FROM = 5


class OffsetApis:
    """Answers questions about offsets; never waits."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def _find(self, name: str, index: int) -> Hosted | None:
        return self._replicas.by_name.get(name.encode(), {}).get(index)

    def _absent(self, name: str, index: int) -> ErrorCode:
        known = self._replicas.knows(name.encode(), index)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def list_offsets(self, request: ListOffsetsRequest, slot: Slot) -> ListOffsetsResponse:
        """Offsets by timestamp or by the special values -1 to -5; consumers see up to HW, or at read_committed up to
        LSO, followers up to LEO (KIP-207).
        """
        topics = []
        for topic in request.topics:
            parts = [
                self._list_one(topic.name, p, request.replica_id, request.isolation_level) for p in topic.partitions
            ]
            for part in parts:
                if slot.version < _EPOCHS_FROM:
                    part.leader_epoch = -1
                if slot.version < _NOT_AVAILABLE_FROM and part.error_code == ErrorCode.OFFSET_NOT_AVAILABLE:
                    # Clients from before KIP-207 do not know OFFSET_NOT_AVAILABLE; they retry after this error.
                    part.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=parts))
        return ListOffsetsResponse(topics=topics)

    def _list_one(
        self, name: str, asked: ListOffsetsPartition, replica_id: int, isolation: int
    ) -> ListOffsetsPartitionResponse:
        index = asked.partition_index
        h = self._find(name, index)
        error = self._absent(name, index) if h is None else h.state.check_leader_epoch(asked.current_leader_epoch)
        if error or h is None:
            return ListOffsetsPartitionResponse(
                partition_index=index, error_code=int(error), timestamp=-1, offset=-1, leader_epoch=-1
            )
        state, log = h.state, h.log
        limit = state.log_end_offset
        if replica_id == _CONSUMER:
            limit = state.read_limit(isolation, h.first_unstable_offset())
        # A new leader's high watermark may be lower than one that clients already heard from the old leader. It is
        # safe to tell once it has reached the start of the new leader's epoch.
        settled = replica_id != _CONSUMER or state.latest_offset_available()
        timestamp, offset, epoch = -1, -1, -1
        if asked.timestamp == LATEST:
            offset, epoch = limit, state.leader_epoch
        elif asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
            settled = True
            offset = log.log_start_offset
            found_epoch = log.epochs.epoch_for_offset(offset)
            epoch = -1 if found_epoch is None else found_epoch
        elif asked.timestamp == MAX_TIMESTAMP or asked.timestamp >= 0:
            by_time = asked.timestamp >= 0
            found = log.offset_for_timestamp(asked.timestamp, limit) if by_time else log.offset_of_max_timestamp(limit)
            if found is not None:
                timestamp, offset, epoch = found
                settled = True
        elif asked.timestamp != LATEST_TIERED:
            return ListOffsetsPartitionResponse(
                partition_index=index,
                error_code=int(ErrorCode.UNSUPPORTED_VERSION),
                timestamp=-1,
                offset=-1,
                leader_epoch=-1,
            )
        error = ErrorCode.NONE if settled else ErrorCode.OFFSET_NOT_AVAILABLE
        if error:
            timestamp, offset, epoch = -1, -1, -1
        return ListOffsetsPartitionResponse(
            partition_index=index, error_code=int(error), timestamp=timestamp, offset=offset, leader_epoch=epoch
        )

    def offset_for_leader_epoch(self, request: OffsetForLeaderEpochRequest, slot: Slot) -> OffsetForLeaderEpochResponse:
        """Where an epoch ends here. A follower truncates by it, a consumer resumes by it (KIP-101, KIP-320). Only
        leaders answer.
        """
        topics = []
        for topic in request.topics:
            parts = []
            for p in topic.partitions:
                h = self._find(topic.topic, p.partition)
                error = (
                    self._absent(topic.topic, p.partition)
                    if h is None
                    else h.state.check_leader_epoch(p.current_leader_epoch)
                )
                epoch, end = -1, -1
                if not error and h is not None:
                    epoch, end = h.state.end_of_epoch(h.log.epochs, p.leader_epoch)
                parts.append(
                    EpochEndOffset(error_code=int(error), partition=p.partition, leader_epoch=epoch, end_offset=end)
                )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
        return OffsetForLeaderEpochResponse(topics=topics)
