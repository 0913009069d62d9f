"""A scripted cluster at the level of links, for tests of clients: bytes in, bytes out, and wrong answers on demand.

It speaks through the real codec and keeps real logs with real sequence checks, so what it answers by itself is what a
healthy cluster answers. A test changes that by `script`: functions that see each request first and may answer it,
withhold the answer, or break the connection at any byte. Time is trio's mock clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

import trio

from squall.broker.env import LinkClosed
from squall.broker.protocol.apis import APIS, ApiKey, request_class
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.header import decode_request_header, encode_response_header
from squall.broker.protocol.records import BatchHeader, read_header
from squall.broker.protocol.schema.api_versions import ApiVersion, ApiVersionsResponse
from squall.broker.protocol.schema.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from squall.broker.protocol.schema.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from squall.broker.protocol.schema.init_producer_id import InitProducerIdResponse
from squall.broker.protocol.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from squall.broker.protocol.schema.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from squall.broker.protocol.schema.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from squall.broker.protocol.schema.produce import (
    LeaderIdAndEpoch as ProduceLeader,
)
from squall.broker.protocol.schema.produce import (
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from squall.broker.protocol.wire import Message
from squall.workloads.client.client import Client
from squall.workloads.client.settings import ClientSettings
from tests.support.brokers.memory_env import FakeEnv, MemoryTransport, Pipe

SIZE = Struct(">i")
WINDOW = 5


@dataclass
class StoredBatch:
    """A batch in a log."""

    header: BatchHeader
    data: bytearray
    base_offset: int
    leader_epoch: int


@dataclass
class FakePartition:
    """One partition, whose log all nodes share."""

    leader: int
    epoch: int = 0
    batches: list[StoredBatch] = field(default_factory=list)
    log_start: int = 0
    hidden_from: int | None = None
    """The last stable offset, if it is below the end of the log: records from here on are hidden at read_committed."""
    aborted: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].base_offset + self.batches[-1].header.record_count if self.batches else self.log_start

    def refuses(self, node: int, epoch: int) -> ErrorCode:
        """Return the error, or NONE, with which a node answers a request that names this leader epoch (-1: it names
        none).
        """
        if node != self.leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch in (-1, self.epoch):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        header = read_header(memoryview(data), 0)
        if header.producer_id >= 0:
            mine = [batch for batch in self.batches if batch.header.producer_id == header.producer_id]
            for batch in mine[-WINDOW:]:
                if (batch.header.base_sequence, batch.header.record_count) == (header[11], header[12]):
                    return ErrorCode.NONE, batch.base_offset
            if mine and header.base_sequence != mine[-1].header.last_sequence + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.store(data)
        return ErrorCode.NONE, self.batches[-1].base_offset

    def store(self, data: bytes) -> None:
        """Append a batch, with its base offset and leader epoch set and all other bytes unchanged."""
        base = self.end
        stored = bytearray(data)
        stored[0:8] = base.to_bytes(8, "big")
        stored[12:16] = self.epoch.to_bytes(4, "big")
        header = read_header(memoryview(stored), 0)
        self.batches.append(StoredBatch(header, stored, base, self.epoch))

    def read(self, offset: int) -> bytes:
        return b"".join(bytes(batch.data) for batch in self.batches if batch.header.last_offset >= offset)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return (largest leader epoch that is at most `epoch`, its end offset), as OffsetForLeaderEpoch does."""
        below = [batch.leader_epoch for batch in self.batches if batch.leader_epoch <= epoch]
        found = max(below, default=-1)
        later = [batch.base_offset for batch in self.batches if batch.leader_epoch > epoch]
        return found, min(later, default=self.end)


@dataclass
class Seen:
    """A request that a node has received, as scripts see it."""

    node: int
    link: int
    api_key: int
    version: int
    message: Any
    at: float


class Withhold:
    """Script result: never answer this request, nor any later one on its connection."""


class Break:
    """Script result: send these bytes, and close the connection."""

    def __init__(self, data: bytes = b"", *, apply: bool = False) -> None:
        self.data = data
        self.apply = apply
        """Whether the request takes effect first, as if only the answer were lost."""


class Raw:
    """Script result: send these bytes as the answer, whatever they are."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class Delay:
    """Script result: answer as usual, after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


Script = Callable[[Seen], Any]
"""Returns a response message, one of the results above, or None to leave the request to the next script."""


class FakeCluster:
    """A cluster of nodes 1 to n at the addresses ("node-<id>", 9092)."""

    def __init__(self, nodes: int = 3, capacity: int = 1 << 20) -> None:
        self.node_ids = list(range(1, nodes + 1))
        self.down: set[int] = set()
        self.refusing: set[int] = set()
        """Nodes that refuse connections, though metadata lists them."""
        self.frozen = False
        """Whether nodes accept connections but read nothing more."""
        self.capacity = capacity
        self.partitions: dict[tuple[str, int], FakePartition] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.seen: list[Seen] = []
        self.script: list[Script] = []
        self.max_versions: dict[int, int] = {}
        self.next_producer_id = 1000
        self.cluster_id: str | None = "fake"
        self.connects: list[int] = []
        self._links: dict[int, list[MemoryTransport]] = {node: [] for node in self.node_ids}
        self._pending: deque[tuple[int, int, MemoryTransport]] = deque()
        self._arrival = trio.Event()

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [self.address(node) for node in self.node_ids]

    def address(self, node: int) -> tuple[str, int]:
        return f"node-{node}", 9092

    def topic(self, name: str, leaders: Sequence[int]) -> None:
        self.topic_ids[name] = (len(self.topic_ids) + 1).to_bytes(16, "big")
        for index, leader in enumerate(leaders):
            self.partitions[name, index] = FakePartition(leader)

    def move(self, topic: str, index: int, leader: int) -> None:
        part = self.partitions[topic, index]
        part.leader, part.epoch = leader, part.epoch + 1

    def stop(self, node: int) -> None:
        """End a node: its connections are reset, and new ones refused."""
        self.down.add(node)
        links, self._links[node] = self._links[node], []
        for link in links:
            link.close()

    def start(self, node: int) -> None:
        self.down.discard(node)

    def requests(self, api_key: ApiKey) -> list[Seen]:
        return [seen for seen in self.seen if seen.api_key == api_key]

    # ----------------------------------------------------------------------------------------------- network

    def connect(self, host: str, port: int) -> MemoryTransport:
        node = int(host.removeprefix("node-"))
        self.connects.append(node)
        if node in self.down | self.refusing or node not in self.node_ids:
            raise ConnectionRefusedError(111, f"nobody listens at {host}:{port}")
        there, back = Pipe(self.capacity), Pipe(self.capacity)
        server = MemoryTransport("client:1", there, back)
        self._links[node].append(server)
        self._pending.append((node, len(self.connects), server))
        self._arrival.set()
        return MemoryTransport(f"{host}:{port}", back, there)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                while self._pending:
                    nursery.start_soon(self._serve, *self._pending.popleft())
                self._arrival = trio.Event()
                await self._arrival.wait()

    @asynccontextmanager
    async def client(
        self, settings: ClientSettings, bootstrap: Sequence[int] = (), *, seed: int = 1, cluster_id: str = ""
    ) -> AsyncIterator[Client]:
        """Serve, and run a client. `bootstrap` has the nodes that the client knows at first; by default all."""
        env: Any = FakeEnv(self, seed)
        addresses = [self.address(node) for node in bootstrap or self.node_ids]
        client = Client(env, addresses, settings, cluster_id=cluster_id)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.run)
            await nursery.start(client.run)
            yield client
            nursery.cancel_scope.cancel()

    async def _serve(self, node: int, number: int, link: MemoryTransport) -> None:
        try:
            while True:
                size = await receive_exactly(link, 4)
                if self.frozen:
                    await trio.sleep_forever()
                frame = await receive_exactly(link, SIZE.unpack(size)[0])
                await self._handle(node, number, link, frame)
        except LinkClosed:
            link.close()

    async def _handle(self, node: int, number: int, link: MemoryTransport, frame: bytes) -> None:
        view = memoryview(frame)
        header = decode_request_header(view)
        api = APIS[header.api_key]
        if header.api_version > self.max_versions.get(api.key, api.max_version):
            assert api.key == ApiKey.API_VERSIONS, "negotiated, but not supported"
            unsupported = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(18, 0, 4)])
            await send_all(link, framed(SIZE.pack(header.correlation_id) + unsupported.encode(0)))
            return
        message, _ = request_class(api.key).decode(view, header.body, header.api_version)
        seen = Seen(node, number, api.key, header.api_version, message, trio.current_time())
        self.seen.append(seen)
        result: Any = None
        for script in self.script:
            result = script(seen)
            if result is not None:
                break
        if isinstance(result, Withhold):
            await trio.sleep_forever()
        if isinstance(result, Break):
            if result.apply:
                await self.respond(seen)
            await send_all(link, result.data)
            raise LinkClosed("as the script says")
        if isinstance(result, Raw):
            await send_all(link, result.data)
            return
        if isinstance(result, Delay):
            await trio.sleep(result.seconds)
        answer = result if isinstance(result, Message) else await self.respond(seen)
        if answer is not None:
            head = encode_response_header(api.key, header.api_version, header.correlation_id)
            await send_all(link, framed(head + answer.encode(header.api_version)))

    # ----------------------------------------------------------------------------------------------- answers

    async def respond(self, seen: Seen) -> Message | None:
        """Return what a healthy cluster answers."""
        match seen.api_key:
            case ApiKey.API_VERSIONS:
                keys = [
                    ApiVersion(api.key, api.min_version, self.max_versions.get(api.key, api.max_version))
                    for api in APIS.values()
                ]
                return ApiVersionsResponse(api_keys=keys)
            case ApiKey.METADATA:
                return self.metadata(seen.message)
            case ApiKey.INIT_PRODUCER_ID:
                self.next_producer_id += 1
                return InitProducerIdResponse(producer_id=self.next_producer_id)
            case ApiKey.CREATE_TOPICS:
                return self.create_topics(seen.message)
            case ApiKey.PRODUCE:
                return self.produce(seen)
            case ApiKey.FETCH:
                return await self.fetch(seen)
            case ApiKey.LIST_OFFSETS:
                return self.list_offsets(seen.node, seen.message)
            case ApiKey.OFFSET_FOR_LEADER_EPOCH:
                return self.epoch_ends(seen.message)
        raise AssertionError(seen)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topic_ids) if request.topics is None else [topic.name or "" for topic in request.topics]
        up = [node for node in self.node_ids if node not in self.down]
        brokers = [MetadataResponseBroker(node, *self.address(node)) for node in up]
        topics = []
        for name in names:
            if name not in self.topic_ids:
                topics.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))
                continue
            parts = [
                MetadataResponsePartition(0, index, part.leader, part.epoch, self.node_ids, self.node_ids)
                for (topic, index), part in self.partitions.items()
                if topic == name
            ]
            topics.append(MetadataResponseTopic(0, name, self.topic_ids[name], False, parts))
        return MetadataResponse(brokers=brokers, cluster_id=self.cluster_id, controller_id=1, topics=topics)

    def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            error = ErrorCode.TOPIC_ALREADY_EXISTS if topic.name in self.topic_ids else ErrorCode.NONE
            if error is ErrorCode.NONE:
                leaders = [self.node_ids[index % len(self.node_ids)] for index in range(topic.num_partitions)]
                self.topic(topic.name, leaders)
            results.append(CreatableTopicResult(topic.name, error_code=error))
        return CreateTopicsResponse(topics=results)

    def name_of(self, topic_id: bytes) -> str:
        return next((name for name, found in self.topic_ids.items() if found == topic_id), "")

    def produce(self, seen: Seen) -> ProduceResponse | None:
        request: ProduceRequest = seen.message
        topics = []
        nodes: dict[int, NodeEndpoint] = {}
        for data in request.topic_data:
            name = data.name or self.name_of(data.topic_id)
            answers = []
            for wanted in data.partition_data:
                part = self.partitions[name, wanted.index]
                answer = PartitionProduceResponse(wanted.index, log_start_offset=part.log_start)
                if part.leader != seen.node:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                    answer.base_offset = -1
                    if seen.version >= 10:
                        answer.current_leader = ProduceLeader(part.leader, part.epoch)
                        nodes[part.leader] = NodeEndpoint(part.leader, *self.address(part.leader))
                else:
                    answer.error_code, answer.base_offset = part.append(bytes(wanted.records or b""))
                answers.append(answer)
            topics.append(TopicProduceResponse(data.name, data.topic_id, answers))
        return ProduceResponse(topics, 0, list(nodes.values())) if request.acks else None

    async def fetch(self, seen: Seen) -> FetchResponse:
        request: FetchRequest = seen.message
        answer, empty = self.fetch_now(seen, request)
        if empty:
            await trio.sleep(request.max_wait_ms / 1000)
            answer, _ = self.fetch_now(seen, request)
        return answer

    def fetch_now(self, seen: Seen, request: FetchRequest) -> tuple[FetchResponse, bool]:
        topics, empty = [], True
        for wanted_topic in request.topics:
            name = wanted_topic.topic or self.name_of(wanted_topic.topic_id)
            parts = []
            for wanted in wanted_topic.partitions:
                part = self.partitions[name, wanted.partition]
                data = PartitionData(wanted.partition, 0, part.end, part.end, part.log_start)
                committed = request.isolation_level == 1
                if committed and part.hidden_from is not None:
                    data.last_stable_offset = part.hidden_from
                data.error_code = part.refuses(seen.node, wanted.current_leader_epoch)
                if data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    data.current_leader = LeaderIdAndEpoch(part.leader, part.epoch)
                elif data.error_code:
                    pass
                elif not part.log_start <= wanted.fetch_offset <= part.end:
                    data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                else:
                    data.records = part.read(wanted.fetch_offset)
                    if committed:
                        data.aborted_transactions = [AbortedTransaction(*one) for one in part.aborted]
                empty &= not data.records and data.error_code == 0
                parts.append(data)
            topics.append(FetchableTopicResponse(wanted_topic.topic, wanted_topic.topic_id, parts))
        return FetchResponse(responses=topics), empty

    def list_offsets(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for wanted_topic in request.topics:
            parts = []
            for wanted in wanted_topic.partitions:
                part = self.partitions[wanted_topic.name, wanted.partition_index]
                end = part.end
                if request.isolation_level == 1 and part.hidden_from is not None:
                    end = part.hidden_from
                offset = part.log_start if wanted.timestamp == -2 else end
                error = part.refuses(node, wanted.current_leader_epoch)
                answer = ListOffsetsPartitionResponse(wanted.partition_index, error, -1, offset, part.epoch)
                parts.append(answer)
            topics.append(ListOffsetsTopicResponse(wanted_topic.name, parts))
        return ListOffsetsResponse(topics=topics)

    def epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for wanted_topic in request.topics:
            parts = []
            for wanted in wanted_topic.partitions:
                part = self.partitions[wanted_topic.topic, wanted.partition]
                parts.append(EpochEndOffset(0, wanted.partition, *part.epoch_end(wanted.leader_epoch)))
            topics.append(OffsetForLeaderTopicResult(wanted_topic.topic, parts))
        return OffsetForLeaderEpochResponse(topics=topics)


def framed(data: bytes) -> bytes:
    """Return `data` with its length in front of it."""
    return SIZE.pack(len(data)) + data


async def receive_exactly(link: MemoryTransport, count: int) -> bytes:
    """Return the next `count` bytes. Raises LinkClosed if the stream ends before."""
    data = bytearray(count)
    view, got = memoryview(data), 0
    while got < count:
        await link.wait_readable()
        received = link.recv_into(view[got:])
        if received == 0:
            raise LinkClosed("end of stream")
        got += received or 0
    return bytes(data)


async def send_all(link: MemoryTransport, data: bytes) -> None:
    """Send all bytes. Raises LinkClosed if the connection ends."""
    sent = 0
    while sent < len(data):
        sent += link.send([data[sent:]])
        if sent < len(data):
            await link.wait_writable()
