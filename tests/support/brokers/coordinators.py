"""A broker in memory whose transaction or group coordinator runs, with its log's followers played by the test."""

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
    """Broker 1, which may lead partition 0 of a coordinator's log, the only one. Subclasses make the coordinator."""

    TOPIC: ClassVar[str]
    SETTINGS: ClassVar[dict[str, str]]
    decode: ClassVar[Callable[..., Any]]
    """What a record of the log says, from its key and value."""
    coordinator: Any

    def __init__(self, **settings: str) -> None:
        super().__init__(**{**self.SETTINGS, **settings})

    @property
    def log(self) -> HostedPartition:
        """The replica of the coordinator's log."""
        found = self.replicas.find(IDS[self.TOPIC], 0)
        assert found is not None
        return found

    async def lead(self, epoch: int = 5, *, commit: bool = True) -> None:
        """Lead the coordinator's log in an epoch; with `commit` both followers have all of it, and follow."""
        self.give(self.TOPIC, epoch=epoch, partition_epoch=10 * epoch)
        if commit:
            self.replicate(epoch)
            self.replicate(epoch)
        await trio.testing.wait_all_tasks_blocked()

    def replicate(self, epoch: int = 5) -> None:
        """Both followers fetch from the end of the log."""
        for replica in (2, 3):
            self.follower_has(replica, self.log.log.log_end_offset, epoch=epoch, name=self.TOPIC)

    def submit(self, request: Any) -> list[Any]:
        """Hand a request in. The list gets the answer."""
        answers: list[Any] = []
        self.coordinator.submit(request, answers.append)
        return answers

    def logged(self) -> Iterator[tuple[BatchHeader, memoryview, list[tuple[int, Any]]]]:
        """The batches of the log, each with the offsets of its records and what they say. Markers have none."""
        log = self.log.log
        for header, batch in log.read_batches(log.log_start_offset, log.log_end_offset):
            view = memoryview(batch)
            records = [] if header.is_control else decode_batch(header, view)
            said = [(record.offset, self.decode(record.key, record.value)) for record in records]
            assert all(each is not None for _, each in said)
            yield header, view, said


# -------------------------------------------------------------------------------------------------------- transactions


class Blocks:
    """Plays the controller's blocks of producer ids."""

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
    """Plays the leaders of partitions: what they were asked, and what they answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.errors: dict[tuple[str, int], list[ErrorCode | None]] = {}
        """By partition, what is answered first; None: silence, by a link that breaks."""
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
        """(node, topic, partition, producer epoch, commit, coordinator epoch) of each marker asked for."""
        return [
            (node, topic.name, index, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch)
            for node, request in self.asked
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]


class TransactionBroker(CoordinatorBroker):
    """Broker 1, which coordinates transactions."""

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
        """Hand a request in and replicate until it is answered."""
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
        """The states of an id, as its records tell them."""
        return [w.transaction.state.name for w in self.written() if w.transaction and w.transactional_id == name]

    def now(self, name: str = "x") -> TransactionMetadata:
        """An id as the shard has it."""
        return self.coordinator.shards[0].machine.transactions[name]


# -------------------------------------------------------------------------------------------------------------- groups

T0 = ("t", 0)
PID = 7
FETCH = FetchOffsets("g", (T0,), stable=True)
JOIN = JoinGroup("g", "", None, "c", "/h", 10_000, 30_000, "consumer", (("range", b"sub"),), "c-1", needs_id=False)


def commit(offset: int) -> CommitOffsets:
    """Return a commit for `T0`, by no member."""
    return CommitOffsets("g", -1, "", None, ((T0, OffsetAndMetadata(offset, topic_id=IDS["t"])),))


def in_transaction(offset: int) -> TxnOffsetCommit:
    """The same, in a transaction of `PID`."""
    return TxnOffsetCommit("g", -1, "", None, ((T0, OffsetAndMetadata(offset, topic_id=IDS["t"])),), PID, 0)


def told(answers: list[Any]) -> list[int | ErrorCode | None]:
    """The offset, or the error, in each answer to FETCH."""
    found = [answer.offsets[0] for answer in answers]
    return [error or (committed and committed.offset) for _, committed, error in found]


class GroupBroker(CoordinatorBroker):
    """Broker 1, which coordinates groups. Transactions are not verified, because no broker coordinates them."""

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
        """Hand a request in, and replicate what it has written."""
        answers = self.submit(request)
        if not answers:
            self.replicate(epoch)
        [answer] = answers
        return answer

    def replayed(self) -> ReplayedGroupState:
        """Return the ledger that a replay of the log makes."""
        made = ReplayedGroupState()
        for header, view, said in self.logged():
            if header.is_control:
                marker = read_marker(header, view)
                assert isinstance(marker, TxnMarker)
                made.end_transaction(header.producer_id, marker.commit, header.last_offset)
            for offset, written in said:
                made.replay(written, offset, header.producer_id if header.is_transactional else -1)
        return made
