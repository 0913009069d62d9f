"""A client of one partition without retries: answers show the effect of a fault directly."""

from __future__ import annotations

import contextlib
from typing import Any

import trio

from squall.broker.env import LinkClosed
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from squall.broker.protocol.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from squall.chaos.runtimes.contract import Runtime
from squall.chaos.runtimes.layout import addresses
from squall.chaos.runtimes.sim import inquiry
from tests.support.disks.batches import batch
from tests.support.patience import LONG_S

LATEST, EARLIEST = -1, -2


class OneClient:
    """Sends requests to a cluster of one broker, in any runtime."""

    def __init__(self, runtime: Runtime) -> None:
        ((self._host, self._port),) = addresses(runtime.bootstrap("CLIENT"))
        self._env = runtime.env("client")

    async def ask(self, request: Any, version: int) -> Any:
        """Send a request, and return the answer. Raises OSError if the connection ends first."""
        return await inquiry.ask(self._env, self._host, self._port, request, version)

    async def create(self, topic: str, **settings: str) -> None:
        """Create a topic with one partition, and wait until it has a leader."""
        configs = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in settings.items()]
        made = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=configs)
        answer = await self.ask(CreateTopicsRequest(topics=[made], timeout_ms=10_000), 5)
        assert answer.topics[0].error_code == 0, answer
        with trio.fail_after(LONG_S):
            while (await self.offset(topic)) is None:
                await trio.sleep(0.02)

    async def produce(self, topic: str, *, size: int = 100) -> Any:
        """Send one record with acks=all. Returns the partition's entry of the response."""
        part = PartitionProduceData(index=0, records=bytes(batch(size=size)))
        data = [TopicProduceData(name=topic, partition_data=[part])]
        answer = await self.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data), 8)
        return answer.responses[0].partition_responses[0]

    async def must_produce(self, topic: str, count: int = 1, *, size: int = 100) -> Any:
        """Send `count` records and assert that each is acknowledged. Returns the last answer."""
        for _ in range(count):
            answer = await self.produce(topic, size=size)
            assert answer.error_code == 0, answer
        return answer

    async def refused(self, topic: str) -> bool:
        """Return whether a record is not acknowledged: by an error, by the connection's end, or without an answer for 5
        s.
        """
        with trio.move_on_after(5):
            try:
                return bool((await self.produce(topic)).error_code)
            except (OSError, LinkClosed):
                return True
        return True

    async def until_hung_up(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open a connection, send nothing, and wait until the other side closes it."""
        link = await self._env.connect(self._host, self._port)
        task_status.started()
        try:
            with contextlib.suppress(OSError, LinkClosed):
                while link.recv_into(memoryview(bytearray(1))) != 0:
                    await link.wait_readable()
        finally:
            link.close()

    async def start(self, topic: str) -> int | None:
        """Return the partition's log start offset; None while it has no leader."""
        return await self.offset(topic, EARLIEST)

    async def offset(self, topic: str, timestamp: int = LATEST) -> int | None:
        """Return the partition's end offset, or the offset for `timestamp`; None while it has no leader."""
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])])
        found = (await self.ask(asked, 4)).topics[0].partitions[0]
        return int(found.offset) if found.error_code == 0 else None

    async def end(self, topic: str) -> int:
        """Return the partition's end offset, once it has a leader."""
        with trio.fail_after(LONG_S):
            while (found := await self.offset(topic)) is None:
                await trio.sleep(0.02)
        return found

    async def fetch(self, topic: str, offset: int) -> tuple[ErrorCode, bytes]:
        """Fetch from an offset of the partition, and return the error code and the records."""
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        wanted = [FetchTopic(topic=topic, partitions=[part])]
        request = FetchRequest(replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=wanted)
        found = (await self.ask(request, 11)).responses[0].partitions[0]
        return ErrorCode(found.error_code), bytes(found.records or b"")
