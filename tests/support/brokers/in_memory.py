"""One broker in memory with a real data plane. The test simulates metadata, clock, controller, peers and clients.

`coordinators.py` adds a coordinator to it. Whole nodes, with their listeners and a control plane, are in
`memory_cluster.py`; a controller without a broker is in `controller_harness.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from squall.broker.apis.decompression import DecompressionPool
from squall.broker.apis.fetch import FetchApi
from squall.broker.apis.fetch_session import FetchSessions
from squall.broker.apis.offsets import OffsetApis
from squall.broker.apis.produce import ProduceApi
from squall.broker.apis.record_validation import RecordValidator
from squall.broker.apis.txn_markers import TxnMarkersApi
from squall.broker.apis.txn_verification import TxnVerification
from squall.broker.cluster.image import Broker, ClusterImage, ImageDelta, PartitionImage, Topic
from squall.broker.config import BrokerConfig, load_config
from squall.broker.control.orders import orders_of
from squall.broker.log.config import LogConfig
from squall.broker.log.manager import LogManager
from squall.broker.net.connection import Connection, PendingResponse
from squall.broker.net.deadlines import TICK_MS, ParkedRequestTimers
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.net.server import Server
from squall.broker.protocol.apis import ApiKey, response_class, response_header_version
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.hot import FetchOut, FetchResponsePartition, decode_fetch_response
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from squall.broker.protocol.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from squall.broker.protocol.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from squall.broker.replicas.coordinators.add_partitions_client import Place, ProduceTransaction
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.broker.replicas.replica_manager import ReplicaManager
from tests.support.brokers.memory_env import MemoryNetwork, MemoryTransport, Pipe, SteppedEnv
from tests.support.disks.batches import batch
from tests.support.disks.memory_fs import MemoryFs

EPOCHS = {1: 101, 2: 102, 3: 103}
LISTENER = "PLAINTEXT"
IDS = {
    name: bytes(14) + b"\xaa" + bytes([n])
    for n, name in enumerate(("t", "u", "w", "v", "__transaction_state", "__consumer_offsets"))
}
"""Topic ids by name."""
NO_ID = bytes(15) + b"\x77"
"""A topic id that no topic has."""


def broker_config(**properties: str) -> BrokerConfig:
    """Return the configuration of node 1, the only voter, with these settings. In their names _ is written for each
    dot.
    """
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return load_config({"node.id": "1", "controller.quorum.voters": "1@h:1", **given})


class Orders:
    """Replaces ReplicaFetcherManager and IsrProposals, and keeps the arguments of each call."""

    def __init__(self) -> None:
        self.followed: list[tuple[str, int]] = []
        self.unfollowed: list[str] = []
        self.proposed: list[Any] = []
        self.retried: list[Any] = []

    def follow(self, h: HostedPartition) -> None:
        self.followed.append((h.log.topic, h.state.leader_id))

    def unfollow(self, h: HostedPartition) -> None:
        self.unfollowed.append(h.log.topic)

    def propose(self, h: HostedPartition, proposal: Any) -> None:
        self.proposed.append(proposal)

    def changed(self, h: HostedPartition, effect: Any) -> None:
        pass

    def retry(self, h: HostedPartition, proposal: Any) -> None:
        self.retried.append(proposal)


class PlayedCoordinators:
    """Replaces the transaction coordinators that a leader asks to verify a producer's transaction."""

    def __init__(self) -> None:
        self.asked: list[tuple[ProduceTransaction, tuple[Place, ...], bool]] = []
        """Each call: the transaction, its partitions, and whether they were to be added to it (else only verified)."""
        self.answers: list[ErrorCode] = []
        """The errors of the next calls, each for all partitions of a call. Further calls get NONE."""
        self.before_answer: Callable[[], None] = lambda: None

    async def ask(
        self, transaction: ProduceTransaction, places: Sequence[Place], *, add: bool
    ) -> dict[Place, ErrorCode]:
        self.asked.append((transaction, tuple(places), add))
        self.before_answer()
        return dict.fromkeys(places, self.answers.pop(0) if self.answers else ErrorCode.NONE)


class MemoryBroker:
    """Broker 1 of three. It hosts the partitions that `give` assigns to it, and runs no task until the test says so."""

    def __init__(self, *, fs: MemoryFs | None = None, **properties: str) -> None:
        """`fs` holds the files that an earlier incarnation has left. `properties` are broker settings, with _ for each
        dot.
        """
        self.config = broker_config(**properties)
        self.fs = fs or MemoryFs()
        self.network = MemoryNetwork()
        self.env = SteppedEnv(self.network, fs=self.fs)
        self.image = ClusterImage()
        self.logs = LogManager(self.fs, "data", lambda topic: LogConfig(), rng=random.Random(1))
        if fs is not None:
            self.logs.load_all(self.env.wall_ms())
        self.orders = Orders()
        orders: Any = self.orders
        self.replicas = ReplicaManager(self.env, self.config, self.image, self.logs, orders, orders)
        self.started: list[Any] = []
        self.replicas.bind(self.start_soon)
        tasks: Any = self
        self.server = Server(self.env, self.config, self.replicas.woken, tasks)
        self.replicas.settle = self.server.settle
        self.timers = ParkedRequestTimers()
        self.coordinators = PlayedCoordinators()
        gate = TxnVerification(self.env, self.replicas, self.coordinators, self.start_soon)
        self.unpacking = DecompressionPool(self.env)
        records = RecordValidator(self.env, self.replicas, self.unpacking, self.start_soon)
        most_batches = self.config.squall_produce_max_batches
        self.produce_api = ProduceApi(
            self.env, self.replicas, self.timers, gate, records, self.start_soon, most_batches=most_batches
        )
        self.fetch_api = FetchApi(self.env, self.replicas, self.timers, FetchSessions(10, self.env.rng), 1 << 26, {})
        self.markers_api = TxnMarkersApi(self.env, self.replicas, self.timers, 30_000, self.start_soon)
        self._correlation_id = 0
        self._of_followers: dict[int, Connection] = {}
        for broker_id, epoch in EPOCHS.items():
            endpoints = {LISTENER: (f"host{broker_id}", 9092)}
            self.image.brokers[broker_id] = Broker(broker_id, epoch, bytes(16), endpoints, fenced=False)
        self.learn(ImageDelta(brokers=dict.fromkeys(EPOCHS)))

    def start_soon(self, function: Any, *args: Any) -> None:
        """Keep a task, in place of a nursery. The tests run kept tasks by `run_started` or `run_turns`."""
        self.started.append((function, args))

    def run_started(self) -> None:
        """Run the tasks kept since the last call, one after the other, each to its end."""
        tasks, self.started[:] = list(self.started), []
        for function, args in tasks:
            trio.run(function, *args)

    def run_turns(self, between: Callable[[], None]) -> int:
        """Run the kept tasks concurrently, and call `between` in each pass of trio's loop. Returns the number of
        passes.
        """
        passes, (tasks, self.started[:]) = 0, (list(self.started), [])
        busy = len(tasks)

        async def run() -> None:
            async def others() -> None:
                nonlocal passes
                while busy:
                    await trio.lowlevel.checkpoint()
                    passes += 1
                    between()

            async def one(function: Any, args: Any) -> None:
                nonlocal busy
                await function(*args)
                busy -= 1

            async with trio.open_nursery() as nursery:
                for function, args in tasks:
                    nursery.start_soon(one, function, args)
                nursery.start_soon(others)

        trio.run(run)
        return passes

    # ------------------------------------------------------------------------------------------------ the controller

    def learn(self, delta: ImageDelta) -> None:
        """Carry out the orders that follow for this broker from a change of its image."""
        self.replicas.obey(orders_of(self.image, delta, 1))

    def give(
        self,
        name: str = "t",
        *,
        leader: int = 1,
        epoch: int = 5,
        partition_epoch: int = 10,
        isr: tuple[int, ...] = (1, 2, 3),
        replicas: tuple[int, ...] = (1, 2, 3),
        index: int = 0,
        topic_id: bytes | None = None,
    ) -> HostedPartition:
        """Set a partition's state in the metadata, and return its replica on this broker."""
        topic_id = topic_id or IDS[name]
        topic = self.image.topics_by_id.setdefault(topic_id, Topic(name, topic_id))
        self.image.topic_ids[name] = topic_id
        before = topic.partitions.get(index)
        topic.partitions[index] = PartitionImage(replicas, isr, leader, epoch, partition_epoch)
        self.learn(ImageDelta(partitions={(topic_id, index): before}))
        return self.replicas.find(topic_id, index)  # type: ignore[return-value]

    def remove(self, name: str) -> None:
        """Delete a topic from the metadata."""
        topic_id = self.image.topic_ids.pop(name)
        self.learn(ImageDelta(deleted_topics={topic_id: self.image.topics_by_id.pop(topic_id)}))

    def alter(self, kind: int, name: str, **settings: str) -> None:
        """Change settings of a topic or a broker in the metadata. `kind` is the type of the resource."""
        self.image.configs[kind, name] = {key.replace("_", "."): value for key, value in settings.items()}
        self.learn(ImageDelta(configs={(kind, name): None}))

    def fence(self, broker_id: int) -> None:
        """Mark a broker as fenced in the metadata."""
        before = self.image.brokers[broker_id]
        self.image.brokers[broker_id] = replace(before, fenced=True)
        self.learn(ImageDelta(brokers={broker_id: before}))

    def pass_ms(self, ms: int) -> None:
        """Advance the clock, and run the timers that are due."""
        self.env.now_ms += ms
        self.timers.expire(self.env.now_ms + TICK_MS)
        self.server.settle()

    # --------------------------------------------------------------------------------------------------- its clients

    def client(self, listener: str = LISTENER) -> Connection:
        """Return the broker's end of a new connection that has no other end. What the broker sends stays in its link.
        """
        link: Any = MemoryTransport("client:1", Pipe(0), Pipe(1 << 40))
        return Connection(link, listener, self.server._mark_dirty, self.start_soon)

    async def listen(self, nursery: trio.Nursery) -> None:
        """Open the listeners in the network in memory, and serve the clients that connect."""
        self.server._nursery = nursery
        for endpoint in self.config.bind_listeners:
            await self.server.listen(endpoint.name, endpoint.host, endpoint.port)
        self.server.open_to_clients()

    def accept(self, peer: str = "client:1", listener: str = LISTENER) -> tuple[Pipe, Pipe, Callable[[], Any]]:
        """Open a connection in memory. Returns the pipe from its client, the pipe to its client, and the task that
        serves it.
        """
        there, back = Pipe(1 << 30), Pipe(1 << 30)
        self.server._per_address[peer] = 1
        link: Any = MemoryTransport(peer, there, back)
        return there, back, partial(self.server._serve, link, listener, peer)

    def slot(self, conn: Connection, key: int, version: int) -> PendingResponse:
        """Add a pending response to the connection, as the arrival of a request does."""
        self._correlation_id += 1
        flexible = response_header_version(key, version) > 0
        slot = PendingResponse(conn, self._correlation_id, version, flexible)
        conn.slots.append(slot)
        return slot

    def ask(self, conn: Connection, handler: Any, key: int, request: Any, version: int) -> None:
        """Let the handler of Produce or Fetch serve a request, as the only one of its burst."""
        view = memoryview(bytearray(request.encode(version)))
        handler(self.slot(conn, key, version), view, 0)
        self.server.settle()

    def produce(
        self,
        conn: Connection,
        *parts: tuple[str, int, memoryview],
        acks: int = -1,
        version: int = 11,
        timeout_ms: int = 1000,
        transactional_id: str | None = "x",
    ) -> None:
        """Send a Produce of (topic, partition, batch) triples; by default one batch for t-0."""
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id)
        for name, index, records in parts or (("t", 0, self.batch()),):
            data = PartitionProduceData(index=index, records=records)
            topic_id = IDS.get(name, NO_ID)
            request.topic_data.append(TopicProduceData(name=name, topic_id=topic_id, partition_data=[data]))
        self.ask(conn, self.produce_api.handle, ApiKey.PRODUCE, request, version)

    def end(
        self,
        conn: Connection,
        producer_id: int,
        epoch: int,
        *places: tuple[str, int],
        commit: bool = True,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> None:
        """Send a WriteTxnMarkers that ends one transaction, in t-0 unless `places` are given."""
        topics = [WritableTxnMarkerTopic(name, [index]) for name, index in places or (("t", 0),)]
        marker = WritableTxnMarker(producer_id, epoch, commit, topics, coordinator_epoch, transaction_version)
        self.mark(conn, marker)

    def mark(self, conn: Connection, *markers: WritableTxnMarker) -> None:
        """Send a WriteTxnMarkers with these markers."""
        request = WriteTxnMarkersRequest(markers=list(markers))
        self.markers_api.handle(request, self.slot(conn, ApiKey.WRITE_TXN_MARKERS, 2))
        self.server.settle()

    def batch(self, count: int = 1, **fields: Any) -> memoryview:
        """Return a batch of `count` records with the present time as timestamp."""
        return batch(count, timestamp=self.env.wall_ms(), **fields)

    def fetch(
        self,
        conn: Connection,
        *parts: tuple[str, int],
        epoch: int = -1,
        last_epoch: int = -1,
        replica: int = -1,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        part_max_bytes: int = 1 << 20,
        session: tuple[int, int] = (0, -1),
        forget: tuple[str, ...] = (),
        version: int = 17,
        broker_epoch: int | None = None,
        log_start: int = -1,
        isolation: int = 0,
    ) -> None:
        """Send a Fetch of partition 0 of each topic, given as (topic, offset). A follower's comes over the listener
        between brokers.
        """
        state = ReplicaState(replica_id=replica, replica_epoch=broker_epoch or EPOCHS.get(replica, -1))
        request = FetchRequest(
            replica_state=state,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=session[0],
            session_epoch=session[1],
            isolation_level=isolation,
        )
        for name, offset in parts:
            part = FetchPartition(
                partition=0,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=log_start,
                partition_max_bytes=part_max_bytes,
            )
            topic_id = IDS.get(name, NO_ID)
            request.topics.append(FetchTopic(topic=name, topic_id=topic_id, partitions=[part]))
        request.forgotten_topics_data = [ForgottenTopic(topic_id=IDS[name], partitions=[0]) for name in forget]
        handler = self.fetch_api.handle if replica < 0 else self.fetch_api.handle_between_nodes
        self.ask(conn, handler, ApiKey.FETCH, request, version)

    def follower_has(
        self, replica: int, offset: int, *, epoch: int = 5, name: str = "t", log_start: int = -1
    ) -> FetchResponsePartition:
        """Let a follower fetch from `offset`, which shows that it has all records below. Returns the answer."""
        conn = self._of_followers.setdefault(replica, self.client())
        self.fetch(conn, (name, offset), replica=replica, epoch=epoch, max_wait_ms=0, log_start=log_start)
        return fetched(conn)


def answers(conn: Connection) -> list[tuple[int, bytes]]:
    """Take all responses that were sent so far off the connection, as (correlation id, rest of the frame)."""
    taken = conn.link.outgoing.data  # type: ignore[attr-defined]
    found = []
    while taken:
        length = int.from_bytes(taken[:4], "big")
        assert len(taken) >= 4 + length, "half a reply"
        found.append((int.from_bytes(taken[4:8], "big"), bytes(taken[8 : 4 + length])))
        del taken[: 4 + length]
    return found


def one_answer(conn: Connection, key: int, version: int) -> tuple[memoryview, int]:
    """Take the only response off the connection. Returns its frame behind the correlation id, and the offset of the
    body in it.
    """
    [(_, rest)] = answers(conn)
    return memoryview(rest), 1 if response_header_version(key, version) else 0


def decoded(conn: Connection, key: int, version: int) -> Any:
    """Take the only response off the connection, decoded."""
    return response_class(key).decode(*one_answer(conn, key, version), version)[0]


def produced(conn: Connection, version: int = 11) -> list[Any]:
    """Take the only response, to Produce, off the connection, and return its partitions."""
    responses = decoded(conn, ApiKey.PRODUCE, version).responses
    return [part for topic in responses for part in topic.partition_responses]


def marked(conn: Connection) -> list[int]:
    """Take the only response, to WriteTxnMarkers, off the connection, and return the errors of its partitions."""
    markers = decoded(conn, ApiKey.WRITE_TXN_MARKERS, 2).markers
    return [part.error_code for marker in markers for topic in marker.topics for part in topic.partitions]


def fetched_all(conn: Connection, version: int = 17) -> FetchOut:
    """Take the only response, to Fetch, off the connection."""
    return decode_fetch_response(*one_answer(conn, ApiKey.FETCH, version), version)


def fetched(conn: Connection, version: int = 17) -> FetchResponsePartition:
    """Take the only response, to Fetch, off the connection, and return its only partition."""
    [(_, [part])] = fetched_all(conn, version).topics
    return part


def listed(
    broker: MemoryBroker,
    timestamp: int,
    *,
    replica: int = -1,
    epoch: int = -1,
    name: str = "t",
    version: int = 7,
    isolation: int = 0,
) -> Any:
    """Return what ListOffsets answers about a partition."""
    part = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
    topic = ListOffsetsTopic(name=name, partitions=[part])
    request = ListOffsetsRequest(replica_id=replica, isolation_level=isolation, topics=[topic])
    slot = broker.slot(broker.client(), ApiKey.LIST_OFFSETS, version)
    answer = OffsetApis(broker.replicas, broker.unpacking).list_offsets(request, slot)
    if isinstance(answer, DeferredResponse):
        answer = trio.run(answer.wait)
    [found] = answer.topics
    return found.partitions[0]
