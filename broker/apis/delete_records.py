"""Handles DeleteRecords (mechanism L4 in docs/mechanisms.md): the leader moves a log's start, and responds once every
replica has done so, except replicas on fenced brokers.

Only committed records may be deleted. A follower learns the leader's new log start from the response to its next Fetch,
and reports its own log start in the Fetch after that. The smallest log start is the low watermark. Records below a
log's start are not served; the next check of retention deletes their segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from squall.broker.replicas.purgatory import DelayedDeleteRecords

if TYPE_CHECKING:
    from squall.broker.env import Env
    from squall.broker.net.connection import PendingResponse
    from squall.broker.protocol.schema.delete_records import DeleteRecordsPartition, DeleteRecordsRequest
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager


class DelayedDeleteRecordsResponse:
    """Waits until the deletions of one request are done on every replica."""

    def __init__(self) -> None:
        self.waiting: dict[DelayedDeleteRecords, None] = {}
        self.done = trio.Event()

    def add(self, hosted: HostedPartition, offset: int, result: DeleteRecordsPartitionResult) -> None:
        """Make the response wait until the partition's low watermark reaches `offset`. Until then `result`, the
        partition's part of the response, has the error REQUEST_TIMED_OUT.
        """
        deletion = DelayedDeleteRecords(self, hosted.state, hosted.deletions, offset, result)
        self.waiting[deletion] = None
        deletion.try_complete()

    def settled(self, deletion: DelayedDeleteRecords) -> None:
        """Stop waiting for one partition, whose result is known. The last partition wakes the response."""
        deletion.forget()
        del self.waiting[deletion]
        if not self.waiting:
            self.done.set()

    def abandon(self) -> None:
        """Stop waiting, because the connection has ended or the time is over. The other replicas still delete the
        records.
        """
        for deletion in self.waiting:
            deletion.forget()
        self.waiting.clear()
        self.done.set()


class DeleteRecordsApi:
    """Handles DeleteRecords requests on the leaders of the partitions."""

    def __init__(self, env: Env, replicas: ReplicaManager) -> None:
        self._env, self._replicas = env, replicas

    def delete_records(
        self, request: DeleteRecordsRequest, slot: PendingResponse
    ) -> DeleteRecordsResponse | DeferredResponse:
        """Move the starts of the logs durably, and wait up to `timeout_ms` for the followers. Later requests of the
        connection see the new starts.
        """
        delayed = DelayedDeleteRecordsResponse()
        asked: dict[str, dict[int, DeleteRecordsPartition]] = {}
        for topic in request.topics:  # The last mention of a partition counts, as in Kafka's map.
            asked.setdefault(topic.name, {}).update((part.partition_index, part) for part in topic.partitions)
        topics = [
            DeleteRecordsTopicResult(
                name=name, partitions=[self._delete(name, part, delayed) for part in parts.values()]
            )
            for name, parts in asked.items()
            if parts
        ]
        self._replicas.log_starts_moved()
        if not delayed.waiting:
            return DeleteRecordsResponse(topics=topics)
        slot.parked = delayed

        async def wait() -> DeleteRecordsResponse:
            with self._env.timeout(max(0, request.timeout_ms) / 1000):
                await delayed.done.wait()
            delayed.abandon()
            return DeleteRecordsResponse(topics=topics)

        return DeferredResponse(wait)

    def _delete(
        self, name: str, asked: DeleteRecordsPartition, delayed: DelayedDeleteRecordsResponse
    ) -> DeleteRecordsPartitionResult:
        key, index = name.encode(), asked.partition_index
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
        h = self._replicas.by_name.get(key, {}).get(index)
        if h is None:
            result.error_code = int(self._replicas.absent(key, index, by_id=False)[0])
        elif h.internal:
            # Its coordinator reads all of it when it is loaded, whatever the topic's settings say.
            result.error_code = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        elif not h.state.is_leader:
            result.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif "delete" not in h.log.config.cleanup_policy:
            # As with Kafka: records of a compacted log go by their keys, and not by their offsets.
            result.error_code = int(ErrorCode.POLICY_VIOLATION)
        elif (offset := h.state.deletion_offset(asked.offset)) is None:
            result.error_code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
        else:
            self._replicas.delete_records(h, offset)
            delayed.add(h, offset, result)
        return result
