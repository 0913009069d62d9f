"""Holds a client's connections and its view of the cluster, shared by its producer, consumer and admin.

There are two kinds of connection: one *data* connection to each leader, and one *control* connection to any broker that
answers, for metadata, producer ids and admin requests. They are separate because responses come in order: a metadata
request on a data connection would wait behind a Produce that waits for replicas, just when the leader is needed most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import trio

from squall.broker.env import Env
from squall.broker.protocol.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from squall.broker.protocol.wire import Message
from squall.workloads.client.cluster import Address, ClusterMetadata, Leader, Place
from squall.workloads.client.connection import BrokerConnection, RequestFailed, UnsupportedApi
from squall.workloads.client.outcomes import CONNECTION_LOST, TIMED_OUT
from squall.workloads.client.settings import ClientSettings
from squall.workloads.client.task_notifier import TaskNotifier

R = TypeVar("R", bound=Message)

METADATA_TOPIC_IDS_FROM = 10


@dataclass(slots=True)
class _NodeConnection:
    """Holds the data connection to one broker, or the state of connecting to it."""

    address: Address
    connection: BrokerConnection | None = None
    connecting: bool = False
    failures: int = 0
    next_try: float = 0.0


class AnotherCluster(Exception):
    """Reports that a broker of another cluster answers at an address of this cluster: two clusters share ports, or a
    cluster was replaced while clients lived. Its responses are useless.
    """


class Client:
    """Sends requests of a client to the cluster. Run `run` in a nursery (`await nursery.start(client.run)`): all other
    methods need it.
    """

    def __init__(
        self, env: Env, bootstrap: Sequence[Address], settings: ClientSettings | None = None, *, cluster_id: str = ""
    ) -> None:
        """Set up the client. If `cluster_id` is empty, the id of the first response is used as the cluster's id."""
        assert bootstrap, "no bootstrap server"
        self._cluster_id = cluster_id
        self.env = env
        self.settings = settings or ClientSettings()
        self.view = ClusterMetadata()
        self._bootstrap = tuple((host, port) for host, port in bootstrap)
        self._topics: dict[str, None] = {}
        self._listeners: list[Callable[[Sequence[Place]], None]] = []
        self._slots: dict[int, _NodeConnection] = {}
        self._connections: dict[int, BrokerConnection] = {}
        self._next_serial = 0
        self._controls: dict[Address, BrokerConnection] = {}
        self._control_lock = trio.Lock()
        # A draw spreads the clients over the bootstrap servers.
        self._candidate = env.rng.randrange(len(self._bootstrap))
        self._stale = env.signal()
        self._updated = TaskNotifier()
        self._connected = TaskNotifier()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Maintain connections and metadata until `close`. Raises AnotherCluster."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._watch)
            nursery.start_soon(self._keep_metadata)
            task_status.started()

    def close(self) -> None:
        """Close all connections and end all tasks. Outstanding requests end as CONNECTION_LOST."""
        for connection in list(self._connections.values()):
            connection.close()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def listen(self, changed: Callable[[Sequence[Place]], None]) -> None:
        """Call `changed` when a connection or metadata has changed, with the partitions that have another leader."""
        self._listeners.append(changed)

    def track(self, topics: Iterable[str]) -> None:
        """Fetch metadata of these topics from now on."""
        new = [topic for topic in topics if topic not in self._topics]
        self._topics.update(dict.fromkeys(new))
        if new:
            self.refresh_soon()

    def refresh_soon(self) -> None:
        """Request metadata, because the known metadata is stale."""
        self._stale.set()

    async def refreshed(self) -> None:
        """Request metadata and wait for the response."""
        updates = self.view.updates
        self.refresh_soon()
        while self.view.updates == updates:
            await self._updated.wait()

    def hint(self, place: Place, leader: Leader, endpoint: Address | None) -> bool:
        """Apply a broker's information about a partition's leader. Return True if it is new: then metadata need not be
        requested.
        """
        news = self.view.hint(*place, leader, endpoint)
        if news:
            self._notify([place])
        return news

    def connection(self, node_id: int) -> BrokerConnection | None:
        """Return the open data connection to a broker, or None: then a connection is being opened."""
        address = self.view.nodes.get(node_id)
        if address is None:
            return None
        slot = self._slots.get(node_id)
        if slot is None:
            slot = self._slots[node_id] = _NodeConnection(address)
        # The broker has restarted elsewhere: the back-off of its old address says nothing about the new one.
        if slot.address != address:
            slot.address = address
            slot.next_try = 0.0
            if slot.connection is not None:
                slot.connection.close()
        if slot.connection is not None and not slot.connection.closed:
            return slot.connection
        slot.connection = None
        if slot.failures:
            # A request waits for an unreachable broker: another broker may lead by now, so keep asking for metadata.
            self.refresh_soon()
        if not slot.connecting and self._nursery is not None:
            slot.connecting = True
            self._nursery.start_soon(self._fill_slot, node_id, slot)
        return None

    async def ask(self, request: Message, response: type[R], *, version: int | None = None) -> R:
        """Send a request to any broker over the control connection, trying one after the other until one answers.

        This never gives up: limit it with env.timeout. A request that is not idempotent must use `ask_once`.
        """
        failures = 0
        while True:
            try:
                return await self.ask_once(request, response, version=version)
            except (RequestFailed, UnsupportedApi):
                failures += 1
                await self.env.sleep(self.backoff(failures))

    async def ask_once(self, request: Message, response: type[R], *, version: int | None = None) -> R:
        """Send a request once, to the broker of the control connection. After a failure the next call uses another
        broker. Raises RequestFailed, UnsupportedApi.
        """
        # One request at a time: a time-out closes the connection, and would fail all others on it.
        async with self._control_lock:
            connection = await self._control_connection()
            chosen = version
            if chosen is None:
                chosen = connection.version(request.API_KEY, request.MAX_VERSION, request.MIN_VERSION)
            try:
                return await connection.request(request, response, chosen, self.settings.control_timeout_ms / 1000)
            except RequestFailed:
                self._next_candidate()
                raise

    async def version(self, request: type[Message]) -> int:
        """Return the version that `ask_once` would use now. Raises RequestFailed, UnsupportedApi."""
        async with self._control_lock:
            connection = await self._control_connection()
            return connection.version(request.API_KEY, request.MAX_VERSION, request.MIN_VERSION)

    async def ask_node(
        self,
        node_id: int,
        request: Message,
        response: type[R],
        *,
        version: int | None = None,
        limit_s: float | None = None,
    ) -> R:
        """Send a request to one broker over its data connection. Raises RequestFailed, UnsupportedApi.

        With a `version`, the broker need not list the request in its ApiVersions response, which leaves out requests
        between brokers. `limit_s` is the time-out in seconds (None: the request time-out).
        """
        if limit_s is None:
            limit_s = self.settings.request_timeout_ms / 1000
        with self.env.timeout(limit_s):
            while (connection := self.connection(node_id)) is None:
                if node_id not in self.view.nodes:
                    raise RequestFailed(CONNECTION_LOST, sent=False, detail=f"node {node_id} has no address")
                await self._connected.wait()
            chosen = version
            if chosen is None:
                chosen = connection.version(request.API_KEY, request.MAX_VERSION, request.MIN_VERSION)
            return await connection.request(request, response, chosen, limit_s)
        # Whether the time ended before or after the request left is not known here, so it counts as sent.
        raise RequestFailed(TIMED_OUT, sent=True, detail=f"node {node_id}")

    def backoff(self, failures: int) -> float:
        """Return the seconds to wait after this number of consecutive failures, with jitter."""
        settings = self.settings
        exponential = settings.retry_backoff_ms << min(failures - 1, 16)
        return min(exponential, settings.retry_backoff_max_ms) * (0.8 + 0.4 * self.env.rng.random()) / 1000

    async def _keep_metadata(self) -> None:
        failures = 0
        while True:
            if await self._stale.wait(self.settings.metadata_max_age_ms / 1000) and not failures:
                # A broker that is cut off from the controller keeps answering old metadata: ask another broker.
                self._next_candidate()
            try:
                await self._refresh()
                failures = 0
            except (RequestFailed, UnsupportedApi):
                failures += 1
                self._stale.set()
            if failures % len(self._candidates()) == 0:
                # At most one response per back-off, however many errors request it. After an unreachable broker the
                # next broker is asked at once, until all have been tried.
                await self.env.sleep(self.backoff(max(1, failures // len(self._candidates()))))

    async def _refresh(self) -> None:
        topics = [MetadataRequestTopic(name=topic) for topic in self._topics]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = await self.ask_once(request, MetadataResponse)
        self._check_cluster(answer.cluster_id or "")
        known = {topic.name for topic in answer.topics}
        moved = self.view.apply(answer, self._topics)
        self._close_departed()
        self._updated.notify_all()
        # A topic was tracked while the request was on its way.
        if not all(topic in known for topic in self._topics):
            self._stale.set()
        self._notify(moved)

    def _check_cluster(self, cluster_id: str) -> None:
        """Raise AnotherCluster if the id is not this cluster's. A broker without a cluster id is accepted."""
        if cluster_id and self._cluster_id and cluster_id != self._cluster_id:
            candidates = self._candidates()
            host, port = candidates[self._candidate % len(candidates)]
            raise AnotherCluster(
                f"{host}:{port} is a broker of the cluster {cluster_id}, and {self._cluster_id} was expected there: "
                "two clusters share this address, or another one has taken its place"
            )
        self._cluster_id = self._cluster_id or cluster_id

    def _close_departed(self) -> None:
        """Close connections to brokers that left the cluster, so that their number stays bounded."""
        for node_id in [node_id for node_id in self._slots if node_id not in self.view.nodes]:
            slot = self._slots.pop(node_id)
            if slot.connection is not None:
                slot.connection.close()

    async def _control_connection(self) -> BrokerConnection:
        """Return the control connection to the current candidate broker. If it cannot be reached, the next candidate is
        tried at the next call.
        """
        candidates = self._candidates()
        for address in [address for address in self._controls if address not in candidates]:
            self._controls.pop(address).close()
        address = candidates[self._candidate % len(candidates)]
        connection = self._controls.get(address)
        if connection is None or connection.closed:
            try:
                connection = self._controls[address] = await self._open(address)
            except RequestFailed:
                self._next_candidate()
                raise
        return connection

    def _candidates(self) -> list[Address]:
        if self.settings.only_bootstrap:
            return list(self._bootstrap)
        nodes = [self.view.nodes[node_id] for node_id in sorted(self.view.nodes)]
        # The bootstrap servers remain: all brokers of the last response may be gone by now.
        return list(dict.fromkeys((*nodes, *self._bootstrap)))

    def _next_candidate(self) -> None:
        self._candidate += 1

    async def _fill_slot(self, node_id: int, slot: _NodeConnection) -> None:
        try:
            pause = slot.next_try - self.env.mono()
            if pause > 0:
                await self.env.sleep(pause)
            address = slot.address
            connection = await self._open(address)
            # Meanwhile the broker may have moved, or left the cluster.
            if slot.address == address and self._slots.get(node_id) is slot:
                slot.connection = connection
            else:
                connection.close()
            slot.failures = 0
        except RequestFailed:
            slot.failures += 1
            self.refresh_soon()
        finally:
            slot.connecting = False
        slot.next_try = self.env.mono() + self._reconnect_backoff(slot.failures)
        self._connected.notify_all()
        self._notify(())

    def _reconnect_backoff(self, failures: int) -> float:
        settings = self.settings
        exponential = min(settings.reconnect_backoff_ms << min(failures, 16), settings.reconnect_backoff_max_ms)
        return exponential * (0.8 + 0.4 * self.env.rng.random()) / 1000

    async def _open(self, address: Address) -> BrokerConnection:
        """Return a new connection that is ready for requests. Raises RequestFailed."""
        limit_s = self.settings.connect_timeout_ms / 1000
        assert self._nursery is not None, "run is not running"
        with self.env.timeout(limit_s):
            try:
                link = await self.env.connect(*address)
            except OSError as error:
                raise RequestFailed(CONNECTION_LOST, sent=False, detail=f"{address}: {error}") from error
            serial = self._next_serial
            self._next_serial += 1
            connection = BrokerConnection(self.env, link, self.settings, serial, self._nursery.start_soon)
            self._connections[serial] = connection
            self._nursery.start_soon(self._run_connection, connection)
            try:
                await connection.negotiate(limit_s)
            # Cancellation too, or an unused connection would stay open.
            except BaseException:
                connection.close()
                raise
            return connection
        raise RequestFailed(TIMED_OUT, sent=False, detail=f"connecting to {address}")

    async def _run_connection(self, connection: BrokerConnection) -> None:
        try:
            await connection.run()
        finally:
            self._connections.pop(connection.serial, None)
        self._notify(())

    async def _watch(self) -> None:
        """Close connections that have a request whose time-out has passed."""
        settings = self.settings
        # No time-out is shorter than this, so requests sent later cannot expire before the next check.
        shortest_s = min(settings.request_timeout_ms, settings.connect_timeout_ms, settings.control_timeout_ms) / 1000
        while True:
            now = self.env.mono()
            look_at = now + shortest_s
            for connection in list(self._connections.values()):
                connection.expire(now)
                deadline = connection.next_deadline()
                if deadline is not None and not connection.closed:
                    look_at = min(look_at, deadline)
            await self.env.sleep(max(look_at - now, 0.001))

    def _notify(self, moved: Sequence[Place]) -> None:
        for listener in self._listeners:
            listener(moved)
