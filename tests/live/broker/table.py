"""Defines the rows of costly requests, and helpers that their tests share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from squall.broker.protocol.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from squall.broker.protocol.schema.find_coordinator import FindCoordinatorRequest
from squall.broker.protocol.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.brokers.broker_process import BrokerProcess

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "squall.replies.max.bytes": str(64 << 20),
    "squall.decompressed.batch.max.bytes": str(32 << 20),
}
"""Settings of the broker that most rows share."""
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Row:
    """A costly request with its limits: its size, the broker's memory, and the work between two yields of a broker's
    task.
    """

    name: str
    play: Callable[[BrokerProcess], Iterator[None]]
    """Prepares the broker, yields, sends the requests, and asserts the answers. Only the part after the yield is
    measured.
    """
    sent: int
    """The most bytes that these requests have."""
    memory_mb: int = 60
    """How much the broker's memory may grow meanwhile."""
    bytes: int = 4 * KIB
    entries: int = 32
    records: int = 0
    steps: int = 0
    """The most units of work (`squall.broker.work`) that a task may do without yielding."""
    settings: Mapping[str, str] | None = None
    """Settings in addition to `SETTINGS`; then the row has a broker of its own."""
    in_gate: bool = False

    def __str__(self) -> str:
        return self.name


def topic(name: str, partitions: int = 1, **settings: str) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)


def create(broker: BrokerProcess, *topics: CreatableTopic) -> None:
    """Create topics, and wait for their logs."""
    with broker.connect() as client:
        answer = client.ask(CreateTopicsRequest(topics=list(topics), timeout_ms=60_000), 7)
    assert {made.error_code for made in answer.topics} == {0}
    logs = broker.trace.parent / "data"
    broker.wait_for(lambda: all((logs / f"{each.name}-{each.num_partitions - 1}").exists() for each in topics), 100)


def delete(broker: BrokerProcess, name: str) -> None:
    with broker.connect() as client:
        answer = client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=60_000), 6)
    assert answer.responses[0].error_code == 0


def produced(batch: bytes, name: str, *partitions: int, acks: int = 1) -> ProduceRequest:
    """Return a Produce request that appends a batch to these partitions."""
    parts = [PartitionProduceData(index=index, records=batch) for index in partitions or (0,)]
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(name=name, partition_data=parts)])


def produce(broker: BrokerProcess, name: str, *batches: bytes) -> set[ErrorCode]:
    """Produce the batches one after the other, and return the error codes."""
    found = set()
    with broker.connect() as client:
        for batch in batches or (small_batch(),):
            answer = client.ask(produced(batch, name), 9)
            found.add(ErrorCode(answer.responses[0].partition_responses[0].error_code))
    return found


def small_batch() -> bytes:
    return bytes(encode_batch([Record(0, now_ms(), None, b"v")]))


def now_ms() -> int:
    return int(time.time() * 1000)


def look_up(name: str, timestamp: int, *partitions: int) -> ListOffsetsRequest:
    """Return a ListOffsets request for the first record that is not earlier than `timestamp`."""
    parts = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in partitions or (0,)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=parts)])


def found_offsets(answer: Any) -> list[tuple[int, int, int]]:
    """Return (partition, error, offset) from ListOffsets' answer about one topic."""
    [found] = answer.topics
    return [(part.partition_index, part.error_code, part.offset) for part in found.partitions]


def make_coordinator(broker: BrokerProcess, key: str, kind: int) -> None:
    """Let the broker create the log of a coordinator."""
    with broker.connect() as client:
        client.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)


def logs_of(broker: BrokerProcess, name: str) -> list[Path]:
    data = broker.trace.parent / "data"
    return [path for path in data.glob(f"{name}-*") if path.name.rpartition("-")[0] == name]
