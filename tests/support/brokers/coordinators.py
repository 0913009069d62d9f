"""A broker in memory with a real transaction or group coordinator. The test simulates the followers of the
coordinator's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import trio

from squall.broker.cluster.image import ImageDelta
from squall.broker.coordinators.groups import records as group_records
from squall.broker.coordinators.groups.ledger import ReplayedGroupState
from squall.broker.coordinators.groups.values import (
    CommitOffsets,
    FetchOffsets,
    JoinGroup,
    OffsetAndMetadata,
    TxnOffsetCommit,
)
from squall.broker.coordinators.transactions import records as txn_records
from squall.broker.coordinators.transactions.values import (
    Request,
    TransactionLogRecord,
    TransactionMetadata,
    TxnResponse,
)
from squall.broker.log.markers import TxnMarker, read_marker
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import BatchHeader, decode_batch
from squall.broker.protocol.schema.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from squall.broker.replicas.coordinators import group_coordinator, transaction_coordinator
from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator
from squall.broker.replicas.coordinators.marker_sender import MarkerSender
from squall.broker.replicas.coordinators.producer_ids import ProducerIdManager
from squall.broker.replicas.coordinators.transaction_coordinator import TransactionCoordinator
from squall.broker.replicas.hosted_partition import HostedPartition
from tests.support.brokers.in_memory import IDS, MemoryBroker


class CoordinatorBroker(MemoryBroker):
    """Broker 1, which can lead the coordinator's log; that log has one partition, 0. Subclasses add the coordinator."""

    TOPIC: ClassVar[str]
    SETTINGS: ClassVar[dict[str, str]]
    decode: ClassVar[Callable[..., Any]]
    """Decodes a record of the coordinator's log, from its key and value."""
    coordinator: Any

    def __init__(self, **settings: str) -> None:
        super().__init__(**{**self.SETTINGS, **settings})

    @property
    def log(self) -> HostedPartition:
        """Return the replica of the coordinator's log."""
        found = self.replicas.find(IDS[self.TOPIC], 0)
        assert found is not None
        return found

    async def lead(self, epoch: int = 5, *, commit: bool = True) -> None:
        """Make the broker the leader of the coordinator's log, in this leader epoch. With `commit` both followers then
        fetch all of the log.
        """
        self.give(self.TOPIC, epoch=epoch, partition_epoch=10 * epoch)
        if commit:
            self.replicate(epoch)
            self.replicate(epoch)
        await trio.testing.wait_all_tasks_blocked()

    def replicate(self, epoch: int = 5) -> None:
        """Let both followers fetch from the end of the log, so that all of it is committed."""
        for replica in (2, 3):
            self.follower_has(replica, self.log.log.log_end_offset, epoch=epoch, name=self.TOPIC)

    def submit(self, request: Any) -> list[Any]:
        """Hand a request to the coordinator. The returned list is empty until the answer comes, and then holds it."""
        answers: list[Any] = []
        self.coordinator.submit(request, answers.append)
        return answers

    def logged(self) -> Iterator[tuple[BatchHeader, memoryview, list[tuple[int, Any]]]]:
        """Yield each batch of the log: its header, its bytes, and (offset, decoded record) of each record. For a
        control batch that list is empty.
        """
        log = self.log.log
        for header, batch in log.read_batches(log.log_start_offset, log.log_end_offset):
            view = memoryview(batch)
            records = [] if header.is_control else decode_batch(header, view)
            said = [(record.offset, self.decode(record.key, record.value)) for record in records]
            assert all(each is not None for _, each in said)
            yield header, view, said


# -------------------------------------------------------------------------------------------------------- transactions


class Blocks:
    """Replaces the controller that allocates blocks of producer ids."""

    def __init__(self, size: int = 10) -> None:
        self.given = 0
        self.fails: Exception | None = None
        self._size = size

    async def allocate_producer_ids(self) -> range:
        await trio.lowlevel.checkpoint()
        if self.fails is not None:
            raise self.fails
        self.given += self._size
        return range(self.given, self.given + self._size)


class Peers:
    """Simulates the partition leaders to which a coordinator sends WriteTxnMarkers: keeps the requests, and answers as
    the test says.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.errors: dict[tuple[str, int], list[ErrorCode | None]] = {}
        """The next answers for each partition. None breaks the connection instead of answering."""
        self.held: trio.Event | None = None

    async def request(
        self, node_id: int, api_key: int, version: int, message: Any, timeout_ms: int, *, lane: str = ""
    ) -> WriteTxnMarkersResponse:
        self.asked.append((node_id, message))
        await trio.lowlevel.checkpoint()
        if self.held is not None:
            await self.held.wait()
        markers = []
        for marker in message.markers:
            topics = []
            for topic in marker.topics:
                parts = [(index, self._error(topic.name, index)) for index in topic.partition_indexes]
                if any(error is None for _, error in parts):
                    raise OSError("the link broke")
                results = [
                    WritableTxnMarkerPartitionResult(partition_index=i, error_code=int(error or 0))
                    for i, error in parts
                ]
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
            markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        return WriteTxnMarkersResponse(markers=markers)

    def _error(self, name: str, index: int) -> ErrorCode | None:
        planned = self.errors.get((name, index))
        return planned.pop(0) if planned else ErrorCode.NONE

    def written(self) -> list[tuple[int, str, int, int, bool, int]]:
        """Return (node, topic, partition, producer epoch, commit, coordinator epoch) of each marker that was requested.
        """
        return [
            (node, topic.name, index, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch)
            for node, request in self.asked
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]


class TransactionBroker(CoordinatorBroker):
    """Broker 1 with a transaction coordinator."""

    TOPIC = transaction_coordinator.TOPIC
    decode = staticmethod(txn_records.decode)
    SETTINGS: ClassVar = {"transaction_state_log_num_partitions": "1", "transaction_state_log_min_isr": "1"}

    def __init__(self, nursery: trio.Nursery, **settings: str) -> None:
        super().__init__(**settings)
        self.image.features["transaction.version"] = 2
        self.blocks, self.peers = Blocks(), Peers()
        blocks: Any = self.blocks
        peers: Any = self.peers
        self.coordinator = TransactionCoordinator(self.env, self.config, self.replicas, ProducerIdManager(blocks))
        self.sender = MarkerSender(self.env, 1, self.image, peers, 1000, self.coordinator.markers_written)
        self.sender.bind(nursery.start_soon)
        self.coordinator.bind(nursery.start_soon, self.sender)

    async def do(self, request: Request, epoch: int = 5) -> TxnResponse:
        """Hand a request to the coordinator, replicate its log until the answer comes, and return the answer."""
        answers = self.submit(request)
        for _ in range(5):
            await trio.testing.wait_all_tasks_blocked()
            if answers:
                break
            self.replicate(epoch)
        [answer] = answers
        return answer

    def written(self) -> list[TransactionLogRecord]:
        """Return the records of the coordinator's log."""
        return [written for _, _, said in self.logged() for _, written in said]

    def states(self, name: str = "x") -> list[str]:
        """Return the successive states of a transactional id in the coordinator's log."""
        return [w.transaction.state.name for w in self.written() if w.transaction and w.transactional_id == name]

    def now(self, name: str = "x") -> TransactionMetadata:
        """Return the shard's present state of a transactional id."""
        return self.coordinator.shards[0].machine.transactions[name]


# -------------------------------------------------------------------------------------------------------------- groups

T0 = ("t", 0)
PID = 7
FETCH = FetchOffsets("g", (T0,), stable=True)
JOIN = JoinGroup("g", "", None, "c", "/h", 10_000, 30_000, "consumer", (("range", b"sub"),), "c-1", needs_id=False)


def commit(offset: int) -> CommitOffsets:
    """Return a request to commit `offset` for partition `T0`, from no member of the group."""
    return CommitOffsets("g", -1, "", None, ((T0, OffsetAndMetadata(offset, topic_id=IDS["t"])),))


def in_transaction(offset: int) -> TxnOffsetCommit:
    """Return a TxnOffsetCommit of `offset` for partition `T0`, by the producer `PID`."""
    return TxnOffsetCommit("g", -1, "", None, ((T0, OffsetAndMetadata(offset, topic_id=IDS["t"])),), PID, 0)


def told(answers: list[Any]) -> list[int | ErrorCode | None]:
    """Return the committed offset, None or the error in each answer to FETCH."""
    found = [answer.offsets[0] for answer in answers]
    return [error or (committed and committed.offset) for _, committed, error in found]


class GroupBroker(CoordinatorBroker):
    """Broker 1 with a group coordinator. No broker coordinates transactions, so none are verified."""

    TOPIC = group_coordinator.TOPIC
    decode = staticmethod(group_records.decode)
    SETTINGS: ClassVar = {
        "offsets_topic_num_partitions": "1",
        "group_initial_rebalance_delay_ms": "0",
        "transaction_partition_verification_enable": "false",
    }

    def __init__(self, nursery: trio.Nursery, **settings: str) -> None:
        super().__init__(**settings)
        self.coordinator = GroupCoordinator(self.env, self.config, self.replicas)
        self.coordinator.bind(nursery.start_soon)
        self.give("t", leader=2)

    def learn(self, delta: ImageDelta) -> None:
        super().learn(delta)
        if hasattr(self, "coordinator"):
            self.coordinator.image_changed(delta)

    def do(self, request: Any, epoch: int = 5) -> Any:
        """Hand a request to the coordinator, replicate the records that it wrote, and return the answer."""
        answers = self.submit(request)
        if not answers:
            self.replicate(epoch)
        [answer] = answers
        return answer

    def replayed(self) -> ReplayedGroupState:
        """Return the state of the groups that a replay of the log makes."""
        made = ReplayedGroupState()
        for header, view, said in self.logged():
            if header.is_control:
                marker = read_marker(header, view)
                assert isinstance(marker, TxnMarker)
                made.end_transaction(header.producer_id, marker.commit, header.last_offset)
            for offset, written in said:
                made.replay(written, offset, header.producer_id if header.is_transactional else -1)
        return made
