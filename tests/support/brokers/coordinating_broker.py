"""A broker whose transaction coordinator runs, with its peers, its clock and its controller played by the test."""

from __future__ import annotations

from typing import Any

import trio

from broker.coordinators.transactions import records
from broker.coordinators.transactions.values import Answer, Request, Transaction, Written
from broker.protocol.errors import ErrorCode
from broker.protocol.records import decode_batch
from broker.protocol.schema.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker.replicas.coordinators.marker_sender import MarkerSender
from broker.replicas.coordinators.producer_ids import ProducerIds
from broker.replicas.coordinators.transaction_coordinator import TOPIC, TransactionCoordinator
from tests.support.brokers.coordinator_log_room import CoordinatorLogRoom
from tests.support.brokers.in_memory import IDS
from tests.support.disks.memory_fs import MemoryFs

IDS.setdefault(TOPIC, bytes(14) + b"\xaa\x7f")


class Blocks:
    """Plays the controller's blocks of producer ids."""

    def __init__(self) -> None:
        self.given = 0
        self.silent = False

    async def allocate_producer_ids(self) -> range:
        await trio.lowlevel.checkpoint()
        if self.silent:
            raise OSError("no controller")
        self.given += 10
        return range(self.given, self.given + 10)


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


class CoordinatingBroker(CoordinatorLogRoom):
    """Broker 1, which may lead partition 0 of the coordinator's log."""

    TOPIC = TOPIC

    def __init__(self, nursery: trio.Nursery, *, fs: MemoryFs | None = None, **settings: str) -> None:
        given = {"transaction_state_log_num_partitions": "1", "transaction_state_log_min_isr": "1", **settings}
        super().__init__(fs=fs, **given)
        self.image.features["transaction.version"] = 2
        self.blocks, self.peers = Blocks(), Peers()
        blocks: Any = self.blocks
        peers: Any = self.peers
        self.coordinator = TransactionCoordinator(self.env, self.config, self.replicas, ProducerIds(blocks))
        self.sender = MarkerSender(self.env, 1, self.image, peers, 1000, self.coordinator.markers_written)
        self.sender.bind(nursery.start_soon)
        self.coordinator.bind(nursery.start_soon, self.sender)

    async def do(self, request: Request, epoch: int = 5) -> Answer:
        """Hand a request in and replicate until it is answered."""
        answers = self.submit(request)
        for _ in range(5):
            await trio.testing.wait_all_tasks_blocked()
            if answers:
                break
            self.replicate(epoch)
        [answer] = answers
        return answer

    def written(self) -> list[Written]:
        """What the coordinator's log holds."""
        log = self.log.log
        found = []
        for header, batch in log.read_batches(log.log_start_offset, log.log_end_offset):
            for record in decode_batch(header, memoryview(batch)):
                assert record.key is not None
                written = records.decode(record.key, record.value)
                assert written is not None
                found.append(written)
        return found

    def states(self, name: str = "x") -> list[str]:
        """The states of an id, as its records tell them."""
        return [w.transaction.state.name for w in self.written() if w.transaction and w.transactional_id == name]

    def now(self, name: str = "x") -> Transaction:
        """An id as the shard has it."""
        return self.coordinator.shards[0].machine.transactions[name]
