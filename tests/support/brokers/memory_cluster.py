"""A cluster of whole nodes over sockets and files in memory: everything between these is the real broker.

Time is trio's: with `autojump_clock` a test of minutes takes as long as its work does. For one broker whose data plane
is enough, `in_memory.py` costs far less.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from squall.broker.config import BrokerConfig, load_config
from squall.broker.control.kraft.plane import KraftControlPlane
from squall.broker.control.planes import control_plane
from squall.broker.coordinators.partitions import partition_of
from squall.broker.net.peers import PeerClient
from squall.broker.node import Node, broker_main
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import decode_batch
from squall.broker.protocol.schema.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from squall.broker.protocol.schema.describe_transactions import DescribeTransactionsRequest
from squall.broker.protocol.schema.end_txn import EndTxnRequest
from squall.broker.protocol.schema.find_coordinator import FindCoordinatorRequest
from squall.broker.protocol.schema.init_producer_id import InitProducerIdRequest
from squall.workloads.client.client import Client
from squall.workloads.client.connection import RequestFailed
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.producer import Producer
from squall.workloads.client.settings import ProducerSettings
from tests.support.brokers.memory_env import FakeEnv, MemoryListener, MemoryNetwork, MemoryTransport
from tests.support.disks.memory_fs import MemoryFs

if TYPE_CHECKING:
    from squall.broker.control.planes import Make

T = TypeVar("T")
CLIENT_PORT, INTERNAL_PORT = 1000, 2000
HASTE = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "100",
    "num.partitions": "1",
    "leader.imbalance.check.interval.seconds": "100000",
}
LOG = "__transaction_state"
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)
GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""
SMALL = {"transaction_state_log_num_partitions": "3", "transaction_state_log_min_isr": "2"}
"""Settings of a cluster whose coordinator's log is created quickly."""


class NodeEnv(FakeEnv):
    """The Env of one incarnation of a node."""

    def __init__(self, network: MemoryNetwork, name: str, incarnation: int, fs: MemoryFs) -> None:
        super().__init__(network, seed=incarnation * 100 + sum(name.encode()), fs=fs, name=name)
        self.incarnation = incarnation
        self._opened: list[MemoryTransport] = []
        self._listening: list[MemoryListener] = []
        self.cut = False

    async def listen(self, host: str, port: int) -> MemoryListener:
        listener = await super().listen(host, port)
        self._listening.append(listener)
        return listener

    def cut_links(self) -> None:
        """Break every connection of the node."""
        for link in [*self._opened, *(link for listener in self._listening for link in listener.links)]:
            link.close()

    async def connect(self, host: str, port: int) -> MemoryTransport:
        if self.cut and port > INTERNAL_PORT:
            raise ConnectionRefusedError("cut off")
        link = await super().connect(host, port)
        self._opened.append(link)
        return link

    def hang_up(self) -> None:
        """Close all sockets of the node, as the end of its OS process does."""
        for listener in self._listening:
            listener.close()
        self.cut_links()


class MemoryNode:
    """One node: its disk, which outlives its incarnations, and the broker that runs on it, if any."""

    def __init__(self, cluster: MemoryCluster, node_id: int) -> None:
        self.id, self._cluster = node_id, cluster
        self.fs = MemoryFs()
        self.incarnation = 0
        self.node: Node | None = None
        self.env: NodeEnv
        self.stop_event = trio.Event()
        self.scope: trio.CancelScope | None = None

    async def life(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self.incarnation += 1
        self.env = NodeEnv(self._cluster.network, f"broker-{self.id}", self.incarnation, self.fs)
        self.stop_event = trio.Event()
        with trio.CancelScope() as self.scope:
            task_status.started()
            env: Any = self.env
            status: Any = self
            config, make_control = self._cluster.config(self.id), self._cluster.make_control
            await broker_main(env, config, stop=self.stop_event, make_control=make_control, task_status=status)
        self.node, self.scope = None, None
        self.env.hang_up()

    def started(self, node: Node) -> None:
        """Keep the node that serves now. `broker_main` calls it as trio.TaskStatus."""
        self.node = node


class MemoryCluster:
    """Nodes 1 to `count`; the first `voters` of them are voters of the metadata quorum."""

    def __init__(
        self,
        nursery: trio.Nursery,
        count: int = 3,
        *,
        voters: int | None = None,
        make_control: Make = control_plane,
        **settings: str,
    ) -> None:
        self.nursery, self.network, self.make_control = nursery, MemoryNetwork(), make_control
        self.settings = {**HASTE, **{name.replace("_", "."): value for name, value in settings.items()}}
        self._voters = range(1, (count if voters is None else voters) + 1)
        self.nodes = {node_id: MemoryNode(self, node_id) for node_id in range(1, count + 1)}

    def config(self, node_id: int) -> BrokerConfig:
        quorum = ",".join(f"{voter}@n{voter}:{INTERNAL_PORT + voter}" for voter in self._voters)
        return load_config(
            {
                "node.id": str(node_id),
                "process.roles": "broker,controller" if node_id in self._voters else "broker",
                "listeners": f"CLIENT://n{node_id}:{CLIENT_PORT + node_id},"
                f"INTERNAL://n{node_id}:{INTERNAL_PORT + node_id}",
                "controller.quorum.voters": quorum,
                "log.dirs": "data",
                **self.settings,
            }
        )

    async def start(self, *node_ids: int, ready: bool = True) -> None:
        """Start these nodes (all, if none is named) and wait until they serve."""
        started = node_ids or tuple(self.nodes)
        for node_id in started:
            await self.nursery.start(self.nodes[node_id].life)
        if ready:
            await self.until(lambda: all(self.nodes[node_id].node is not None for node_id in started))

    async def kill(self, node_id: int, *, lose_power: bool = False) -> None:
        """End a node at once, as SIGKILL does. With `lose_power` its unsynced writes may be lost too."""
        node = self.nodes[node_id]
        assert node.scope is not None
        node.scope.cancel()
        await self.until(lambda: node.scope is None)
        node.fs = node.fs.after_crash(node.env.rng if lose_power else None)

    async def stop(self, node_id: int) -> None:
        """Shut a node down in a controlled way, and wait for its end."""
        node = self.nodes[node_id]
        node.stop_event.set()
        await self.until(lambda: node.scope is None)

    def cut(self, node_id: int) -> None:
        """Cut this node off: no other reaches it, and it reaches no other."""
        self.network.refused |= {CLIENT_PORT + node_id, INTERNAL_PORT + node_id}
        self.nodes[node_id].env.cut = True
        self.nodes[node_id].env.cut_links()

    def heal(self) -> None:
        """Let all nodes reach each other again."""
        self.network.refused.clear()
        for node in self.nodes.values():
            node.env.cut = False

    def running(self) -> dict[int, Node]:
        return {node_id: node.node for node_id, node in self.nodes.items() if node.node is not None}

    async def until(self, holds: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until `holds` returns true. Fails after `seconds`."""
        with trio.fail_after(seconds):
            while not holds():
                await trio.sleep(0.005)

    def controller(self) -> Node | None:
        """Return the node with the active controller."""
        return next((node for node in self.running().values() if kraft(node).service.is_active), None)

    def image(self) -> Any:
        """Return the active controller's image of the cluster."""
        controller = self.controller()
        assert controller is not None
        return controller.feed.image

    def partition(self, topic: str, index: int = 0) -> Any:
        """Return one partition of that image; None if the image does not have it."""
        controller = self.controller()
        found = controller.feed.image.topic(topic) if controller is not None else None
        return found.partitions.get(index) if found is not None else None

    def folders(self, node_id: int) -> Sequence[str]:
        """Return the names of the files and folders in a node's data directory."""
        return self.nodes[node_id].fs.list("data")

    async def client(self, *, between_nodes: bool = False) -> Client:
        """Return a running client that connects to the listener for clients, or to the one between nodes."""
        env: Any = NodeEnv(self.network, "client", 1, MemoryFs())
        port = INTERNAL_PORT if between_nodes else CLIENT_PORT
        client = Client(env, [(f"n{node_id}", port + node_id) for node_id in self.nodes])
        await self.nursery.start(client.run)
        return client


class RetryingClient:
    """Sends requests to the nodes of a cluster, and retries as a client library does."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        env: Any = NodeEnv(cluster.network, "client", 1, MemoryFs())
        self.env = env
        self._peers = PeerClient(env, lambda node_id: (f"n{node_id}", INTERNAL_PORT + node_id), "talk")

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self._peers.run(task_status=task_status)

    async def ask(self, node_id: int, key: ApiKey, version: int, request: Any, timeout_ms: int = 3000) -> Any:
        """Send one request to one node. Raises OSError if no answer comes."""
        return await self._peers.request(node_id, key, version, request, timeout_ms)

    async def coordinator(self, of: str, key_type: int = TRANSACTION) -> int:
        """Find the node that coordinates a transactional id or, with `GROUP`, a group."""
        while True:
            for node_id in self._cluster.running():
                request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[of])
                try:
                    response = await self.ask(node_id, ApiKey.FIND_COORDINATOR, 4, request)
                except OSError:
                    continue
                [found] = response.coordinators
                if not found.error_code:
                    return int(found.node_id)
            await self.env.sleep(0.05)

    async def settled(
        self, of: str, key: ApiKey, version: int, request: Any, error_of: Any, key_type: int = TRANSACTION
    ) -> Any:
        """Send a request to the coordinator, again and again while the answer has a retriable error. Returns the final
        answer.
        """
        while True:
            node_id = await self.coordinator(of, key_type)
            try:
                response = await self.ask(node_id, key, version, request)
            except OSError:
                await self.env.sleep(0.05)
                continue
            if error_of(response) not in RETRIABLE:
                return response
            await self.env.sleep(0.02)

    async def init(self, name: str, *, timeout_ms: int = 60_000, version: int = 4) -> tuple[int, int]:
        """Send InitProducerId. Returns (producer id, epoch)."""
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        found = await self.settled(name, ApiKey.INIT_PRODUCER_ID, version, request, lambda r: r.error_code)
        assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code)
        return found.producer_id, found.producer_epoch

    async def add(self, name: str, producer: tuple[int, int], topic: str, *partitions: int) -> ErrorCode:
        """Send AddPartitionsToTxn in version 3."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

        def error_of(response: Any) -> int:
            return int(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        response = await self.settled(name, ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, error_of)
        return ErrorCode(error_of(response))

    async def end(self, name: str, producer: tuple[int, int], commit: bool, *, version: int = 3) -> Any:
        """Send EndTxn, and return its response."""
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        return await self.settled(name, ApiKey.END_TXN, version, request, lambda r: r.error_code)

    async def state(self, name: str) -> str:
        """Return the state of a transactional id from DescribeTransactions, or the name of its error."""
        request = DescribeTransactionsRequest(transactional_ids=[name])
        response = await self.settled(
            name, ApiKey.DESCRIBE_TRANSACTIONS, 0, request, lambda r: r.transaction_states[0].error_code
        )
        [found] = response.transaction_states
        return ErrorCode(found.error_code).name if found.error_code else str(found.transaction_state)

    def log_of(self, name: str) -> int:
        """Return the partition of `__transaction_state` that a transactional id belongs to."""
        topic = self._cluster.image().topic(LOG)
        return partition_of(name, len(topic.partitions))


class Load:
    """Sends records one after another with acks=all, and keeps the outcome of each."""

    def __init__(self, cluster: MemoryCluster, topic: str, index: int = 0, every_s: float = 0.01) -> None:
        self.topic, self.index, self.every_s = topic, index, every_s
        self.acknowledged: dict[bytes, int] = {}
        self.failed: list[tuple[bytes, str]] = []
        self.slowest_s = 0.0
        self.sent = 0
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self._cluster = cluster

    async def run(self, client: Client) -> None:
        """Send until `finish` is called. When a producer has given a record up, a new producer replaces it."""
        client.track([self.topic])
        with self.scope:
            while True:
                await self._run_producer(client)
        self.ended.set()

    async def _run_producer(self, client: Client) -> None:
        producer = Producer(client, ProducerSettings(linger_ms=0, delivery_timeout_ms=10_000))
        async with trio.open_nursery() as nursery:
            await nursery.start(producer.run)
            while not producer.retired:
                value = b"%s-%d-%d" % (self.topic.encode(), self.index, self.sent)
                self.sent += 1
                done = partial(self._done, value, client.env.mono())
                producer.send(self.topic, self.index, None, value, [], client.env.wall_ms(), done)
                await client.env.sleep(self.every_s)
            await producer.finish()
            producer.close()

    def _done(self, value: bytes, sent_at: float, outcome: Outcome) -> None:
        self.slowest_s = max(self.slowest_s, trio.current_time() - sent_at)
        if outcome.status is OperationStatus.OK:
            self.acknowledged[value] = outcome.offset
        else:
            self.failed.append((value, outcome.error))


def kraft(node: Node) -> KraftControlPlane:
    """Return a node's KRaft control plane, so that a test can inspect it."""
    assert isinstance(node.control, KraftControlPlane)
    return node.control


def values_of(log: Any) -> dict[int, bytes]:
    """Return the value at each offset of a log on disk."""
    found = {}
    for header, batch in log.read_batches(log.log_start_offset, log.log_end_offset):
        for record in decode_batch(header, memoryview(batch)):
            found[record.offset] = record.value
    return found


async def finish(nursery: trio.Nursery, *loads: Load) -> None:
    """End a test: first the producers, then the client that they share."""
    for load in loads:
        load.scope.cancel()
        await load.ended.wait()
    nursery.cancel_scope.cancel()


async def surely(ask: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
    """Call `ask` again until it gets an answer: the first broker that a client tries may be down."""
    while True:
        try:
            return await ask(*args, **named)
        except RequestFailed:
            await trio.sleep(0.1)
