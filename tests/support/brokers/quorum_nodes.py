"""Nodes that run only the metadata quorum: real files, real sockets on loopback, no broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import trio

from squall.broker.cluster.names import METADATA_TOPIC, METADATA_TOPIC_ID
from squall.broker.config import BrokerConfig, load_config
from squall.broker.control.kraft.metadata_quorum import MetadataQuorum
from squall.broker.log.config import LogConfig
from squall.broker.log.recovery import load
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.net.peers import PeerClient
from squall.broker.net.server import Route, Server
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.hot import decode_fetch
from squall.broker.protocol.schema.metadata_records import NoOpRecord, TopicRecord
from squall.broker.real_env import RealEnv

CLUSTER_ID = "cluster-of-a-test"
HASTE = {
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.request.timeout.ms": "500",
}
"""Short quorum time-outs, for tests that wait for them."""
Settings = Mapping[str, str]
NO_SETTINGS: Settings = {}


class QuorumNode:
    """One voter or observer. `life` runs one incarnation until it is cancelled, which is as abrupt as a kill."""

    def __init__(self, ensemble: Ensemble, node_id: int) -> None:
        self.node_id = node_id
        self.incarnation = 0
        self.directory = str(ensemble.root / f"node-{node_id}" / f"{METADATA_TOPIC}-0")
        self.committed: list[tuple[int, int, Any]] = []
        """Committed records that this incarnation has received."""
        self.terms: list[tuple[bool, int]] = []
        self.traces: list[tuple[str, dict[str, Any]]] = []
        self.scope: trio.CancelScope | None = None
        self.cluster_id = CLUSTER_ID
        self._ensemble = ensemble

    async def life(self, task_status: trio.TaskStatus[None]) -> None:
        self.incarnation += 1
        self.committed, self.terms = [], []
        env = RealEnv(f"node-{self.node_id}", self.incarnation, seed=self.node_id * 100 + self.incarnation)
        env.trace = lambda event, **fields: self.traces.append((event, fields))  # type: ignore[method-assign]
        with trio.CancelScope() as self.scope:
            config = self._ensemble.config(self.node_id)
            self.log = load(
                env.fs, self.directory, LogConfig(), topic=METADATA_TOPIC, partition=0, topic_id=METADATA_TOPIC_ID,
                clean=False,
            )  # fmt: skip
            self.peers = PeerClient(env, self._ensemble.address_of, f"node-{self.node_id}")
            self.quorum = MetadataQuorum(
                env, config, self.log, self.peers, self.cluster_id,
                on_committed=self._on_committed, on_snapshot=self._on_snapshot,
                on_leadership=lambda *term: self.terms.append(term),
            )  # fmt: skip
            try:
                async with trio.open_nursery() as nursery:
                    server = Server(env, config, {}, nursery)
                    server.route({}, self._routes(server))
                    name = config.inter_broker_listener
                    await server.listen(name, "127.0.0.1", self._ensemble.ports.get(self.node_id, 0))
                    self._ensemble.ports[self.node_id] = server.ports[name]
                    await nursery.start(self.peers.run)
                    await nursery.start(self.quorum.run)
                    task_status.started()
            finally:
                server.close()
                self.scope = None

    def _routes(self, server: Server) -> dict[int, Route]:
        """Return the handlers of the quorum's requests, by API key."""
        asked = self.quorum.requests
        fetch = server.answer_later(asked.fetch)
        handlers: dict[int, Callable[[Any], Awaitable[Any]]] = {
            ApiKey.VOTE: asked.vote,
            ApiKey.BEGIN_QUORUM_EPOCH: asked.begin_quorum_epoch,
            ApiKey.END_QUORUM_EPOCH: asked.end_quorum_epoch,
            ApiKey.DESCRIBE_QUORUM: self.quorum.describe_quorum,
            ApiKey.FETCH_SNAPSHOT: asked.fetch_snapshot,
        }

        def waits(key: int) -> Route:
            return Route(key, plain=lambda request, slot: DeferredResponse(partial(handlers[key], request)))

        hot = Route(ApiKey.FETCH, hot=lambda slot, view, at: fetch(slot, decode_fetch(view, at, slot.version)))
        return {ApiKey.FETCH: hot, **{key: waits(key) for key in handlers}}

    def _on_committed(self, records: list[tuple[int, int, Any]]) -> None:
        self.committed += records
        self._ensemble.stir()

    def _on_snapshot(self, records: list[Any], offset: int, epoch: int) -> None:
        self.committed = [(offset, epoch, record) for record in records]
        self._ensemble.stir()

    def names(self) -> list[str]:
        """Return the topics among the committed records, in order."""
        return [record.name for _, _, record in self.committed if isinstance(record, TopicRecord)]


class Ensemble:
    """Quorum nodes: 1 to `voters` are voters, those above are observers."""

    def __init__(
        self,
        root: Path,
        nursery: trio.Nursery,
        voters: int = 3,
        observers: int = 0,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.root, self._nursery, self._settings = root, nursery, settings or {}
        self._voters = range(1, voters + 1)
        self.ports: dict[int, int] = {}
        self._stirred = trio.Event()
        self.nodes = {node_id: QuorumNode(self, node_id) for node_id in range(1, voters + observers + 1)}

    def config(self, node_id: int) -> BrokerConfig:
        return load_config(
            {
                "node.id": str(node_id),
                "process.roles": "broker,controller" if node_id in self._voters else "broker",
                "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{1000 + voter}" for voter in self._voters),
                **self._settings,
            }
        )

    def address_of(self, node_id: int) -> tuple[str, int] | None:
        port = self.ports.get(node_id, 0)
        return ("127.0.0.1", port) if port else None

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids or self.nodes:
            await self._nursery.start(self.nodes[node_id].life)

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            scope = self.nodes[node_id].scope
            assert scope is not None
            scope.cancel()

    async def restart(self, *node_ids: int) -> None:
        """Kill these nodes, wait until they have ended, and start them again on their disks."""
        self.kill(*node_ids)
        await self.until(lambda: all(self.nodes[node_id].scope is None for node_id in node_ids))
        await self.start(*node_ids)

    def stir(self) -> None:
        stirred, self._stirred = self._stirred, trio.Event()
        stirred.set()

    async def until(self, holds: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait until `holds` returns true. Fails after `seconds`."""
        with trio.fail_after(seconds):
            while not holds():
                with trio.move_on_after(0.005):
                    await self._stirred.wait()

    def running(self) -> list[QuorumNode]:
        return [node for node in self.nodes.values() if node.scope is not None]

    async def leader(self) -> QuorumNode:
        """Wait until exactly one node is a leader that has delivered all earlier records, and return it."""
        found: list[QuorumNode] = []

        def elected() -> bool:
            found[:] = [node for node in self.running() if node.terms and node.terms[-1][0] and node.quorum.is_leader]
            return len(found) == 1

        await self.until(elected)
        return found[0]

    async def commit(self, name: str) -> int:
        """Let the leader append a topic of that name, wait until it is committed, and return its offset."""
        leader = await self.leader()
        offset = leader.quorum.append([(TopicRecord(name=name, topic_id=bytes(16)), 0), (NoOpRecord(), 0)])
        await leader.quorum.wait_committed(offset, leader.quorum.epoch)
        return offset

    async def all_know(self, *names: str) -> None:
        """Wait until every running node has received exactly these topics, in this order."""
        await self.until(lambda: all(node.names() == list(names) for node in self.running()))
