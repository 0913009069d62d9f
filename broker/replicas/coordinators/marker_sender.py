"""Writes the markers of decided transactions to the leaders of their partitions (WriteTxnMarkers, mechanism P3 in
docs/mechanisms.md).

Each broker gets one request at a time, with at most MOST_IN_A_REQUEST of the markers that wait for it. A marker is sent
again, to the leader that the partition has by then, if the partition answers an error, or if the leader is unknown or
unreachable.

If this broker's metadata image lacks a partition's topic, the topic was deleted, and the partition needs no marker. An
outdated image cannot be the reason. If this coordinator added the partition, it found the topic in this image. If an
earlier coordinator added it, the topic existed before the metadata record that began this coordinator's leader epoch,
and the image includes that record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.coordinators.transactions.values import TxnState
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.cluster.image import ClusterImage
    from squall.broker.coordinators.transactions.values import TopicPartition, TransactionMetadata
    from squall.broker.env import Env
    from squall.broker.net.peers import PeerClient
    from squall.broker.replicas.coordinators.coordinator_log import CoordinatorLog

VERSION = 2
LANE = "markers"
"""Names the lane (separate connection) of markers: a marker waits until it is replicated, and must not delay a Fetch.
"""
BACKOFF_S = 0.05
MOST_IN_A_REQUEST = 500
"""Limits the partitions of one WriteTxnMarkers request. The remaining partitions follow once the request is answered.
"""

_FENCED = (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
"""Lists the errors that mean that a later coordinator or producer epoch has taken over: this broker drops its markers.
"""


class MarkerJob:
    """Holds a decided transaction and its partitions that have no marker yet."""

    __slots__ = ("in_flight", "log", "remaining", "transaction")

    def __init__(self, log: CoordinatorLog, transaction: TransactionMetadata) -> None:
        self.log, self.transaction = log, transaction
        self.remaining: dict[TopicPartition, None] = dict.fromkeys(transaction.partitions)
        self.in_flight: dict[TopicPartition, int] = {}
        """Maps a partition to the broker that its marker was last sent to. The entry is deleted when the marker is
        written, or when the pause before a retry is over. Before that, the marker is sent again only if another broker
        becomes the partition's leader, because the previous broker may never answer.
        """

    def marker(self, partitions: list[TopicPartition]) -> WritableTxnMarker:
        """Return this job's entry of a WriteTxnMarkers request. It names only `partitions`: those that the request's
        receiver leads.
        """
        topics: dict[str, list[int]] = {}
        for name, index in partitions:
            topics.setdefault(name, []).append(index)
        transaction = self.transaction
        return WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            transaction_result=transaction.state == TxnState.PREPARE_COMMIT,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=found) for name, found in topics.items()],
            coordinator_epoch=self.log.epoch,
            transaction_version=transaction.client_version,
        )


Batch = list[tuple[MarkerJob, "list[TopicPartition]"]]


class MarkerSender:
    """Sends the markers of all transactions that this broker's coordinators have decided."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        image: ClusterImage,
        peers: PeerClient,
        timeout_ms: int,
        written: Callable[[MarkerJob], None],
    ) -> None:
        """Set up the sender. `peers` sends requests to other brokers, each with the time-out `timeout_ms`. `written` is
        called, from the sender's own task, once all markers of a job are written.
        """
        self._env, self._node_id, self._image, self._peers = env, node_id, image, peers
        self._timeout_ms, self._written = timeout_ms, written
        self._jobs: dict[MarkerJob, None] = {}
        self._busy: dict[int, None] = {}
        """Holds the brokers that have not answered their last request yet."""
        self._start_soon: Callable[..., None] | None = None
        self._wanted = env.signal()

    def bind(self, start_soon: Callable[..., None]) -> None:
        """Set the function that starts tasks, and start sending."""
        self._start_soon = start_soon
        start_soon(self._run)

    def add(self, job: MarkerJob) -> None:
        """Write the markers of a transaction whose decision is committed."""
        self._jobs[job] = None
        self._wanted.set()

    def retry_all(self) -> None:
        """Try again to send the markers of all jobs, because partitions may have new leaders. Jobs are dropped if this
        broker no longer leads the partition of their coordinator's log.
        """
        if self._jobs:
            self._wanted.set()

    def inspect(self) -> list[MarkerJob]:
        """Return the jobs that are not done."""
        return list(self._jobs)

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._send_what_can_be_sent()

    def _send_what_can_be_sent(self) -> None:
        batches: dict[int, Batch] = {}
        room: dict[int, int] = {}
        for job in list(self._jobs):
            if not job.log.is_ours():
                del self._jobs[job]  # the new coordinator finds the decision in its log
                continue
            self._place(job, batches, room)
            if not job.remaining:
                del self._jobs[job]
                self._written(job)
        assert self._start_soon is not None
        for broker_id, batch in batches.items():
            self._busy[broker_id] = None
            self._start_soon(self._send, broker_id, batch)

    def _place(self, job: MarkerJob, batches: dict[int, Batch], room: dict[int, int]) -> None:
        """Put a job's partitions into the batches of their leaders. `room` maps a leader to the number of partitions
        that its batch may still take.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in list(job.remaining):
            leader = self.leader_of(partition)
            if leader == job.in_flight.get(partition, NO_NODE):
                continue  # also if there is no leader: wait for the image
            if leader is None:
                del job.remaining[partition]
            elif leader not in self._busy and leader != NO_NODE:
                found = by_leader.setdefault(leader, [])
                if len(found) < room.get(leader, MOST_IN_A_REQUEST):
                    found.append(partition)
        for leader, found in by_leader.items():
            room[leader] = room.get(leader, MOST_IN_A_REQUEST) - len(found)
            if not found:
                continue
            job.in_flight.update(dict.fromkeys(found, leader))
            batches.setdefault(leader, []).append((job, found))

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the partition's leader, NO_NODE if it has none now, or None if its topic is gone."""
        topic_id = self._image.topic_ids.get(partition[0])
        found = self._image.partition(topic_id, partition[1]) if topic_id is not None else None
        return None if found is None else found.leader

    async def _send(self, broker_id: int, batch: Batch) -> None:
        request = WriteTxnMarkersRequest(markers=[job.marker(found) for job, found in batch])
        try:
            response = await self._peers.request(
                broker_id, ApiKey.WRITE_TXN_MARKERS, VERSION, request, self._timeout_ms, lane=LANE
            )
        except OSError as error:
            self._env.trace("markers_unanswered", broker=broker_id, why=str(error))
            response = None
        finally:
            del self._busy[broker_id]
        results = {} if response is None else {result.producer_id: result for result in response.markers}
        failed: Batch = []
        for job, found in batch:
            result = results.get(job.transaction.producer_id)
            if result is not None:
                self._take(job, broker_id, result)
            for partition in found:
                if partition not in job.remaining:
                    job.in_flight.pop(partition, None)
            failed.append((job, [partition for partition in found if partition in job.remaining]))
        assert self._start_soon is not None
        if any(found for _, found in failed):
            self._start_soon(self._try_again, broker_id, failed)
        self._wanted.set()

    def _take(self, job: MarkerJob, broker_id: int, result: Any) -> None:
        """Handle a broker's response to the marker of a job. `result` is a WritableTxnMarkerResult, which has an error
        code for each partition.
        """
        for topic in result.topics:
            for part in topic.partitions:
                error = ErrorCode(part.error_code)
                if error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
                    # UNSUPPORTED_FOR_MESSAGE_FORMAT: the records were refused for it, too, so nothing has to end.
                    job.remaining.pop((topic.name, part.partition_index), None)
                    continue
                self._env.trace("marker_refused", topic=topic.name, partition=part.partition_index, broker=broker_id,
                                transactional_id=job.transaction.transactional_id, error=error.name,
                                coordinator_epoch=job.log.epoch)  # fmt: skip
                if error in _FENCED:
                    self._jobs.pop(job, None)

    async def _try_again(self, broker_id: int, failed: Batch) -> None:
        """Retry the failed markers after a pause: at once, they would probably fail for the same reason."""
        await self._env.sleep(BACKOFF_S * (0.5 + self._env.rng.random()))
        for job, found in failed:
            for partition in found:
                # A new leader may have been asked during the pause.
                if job.in_flight.get(partition) == broker_id:
                    del job.in_flight[partition]
        self._wanted.set()
