"""Nodes that are nothing but their seat in the metadata quorum: real files, real sockets on loopback, no broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import trio

from broker.cluster.names import METADATA_TOPIC, METADATA_TOPIC_ID
from broker.config import BrokerConfig
from broker.control.kraft.metadata_quorum import MetadataQuorum
from broker.log.config import LogConfig
from broker.log.recovery import load
from broker.net.frames import Frames, ReceiveMemory
from broker.net.peers import PeerClient
from broker.protocol.apis import ApiKey, request_class
from broker.protocol.header import decode_request_header, encode_response_header
from broker.protocol.hot import FetchIn, decode_fetch
from broker.protocol.schema.metadata_records import NoOpRecord, TopicRecord
from broker.real_env import RealEnv

CLUSTER_ID = "cluster-of-a-test"
HASTE = {
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.request.timeout.ms": "500",
}
"""Time-outs of tests that wait for them."""
Settings = Mapping[str, str]
NO_SETTINGS: Settings = {}


class QuorumNode:
    """One voter or observer. `life` runs one incarnation of it until it is cancelled, which is as abrupt as a kill."""

    def __init__(self, ensemble: Ensemble, node_id: int) -> None:
        self.node_id = node_id
        self.incarnation = 0
        self.directory = str(ensemble.root / f"node-{node_id}" / f"{METADATA_TOPIC}-0")
        self.committed: list[tuple[int, int, Any]] = []
        """What this incarnation was told."""
        self.terms: list[tuple[bool, int]] = []
        self.traces: list[tuple[str, dict[str, Any]]] = []
        self.scope: trio.CancelScope | None = None
        self.cluster_id = CLUSTER_ID
        self._ensemble = ensemble
        self._listener: Any = None

    async def life(self, task_status: trio.TaskStatus[None]) -> None:
        self.incarnation += 1
        self.committed, self.terms = [], []
        env = RealEnv(f"node-{self.node_id}", self.incarnation, seed=self.node_id * 100 + self.incarnation)
        env.trace = lambda event, **fields: self.traces.append((event, fields))  # type: ignore[method-assign]
        with trio.CancelScope() as self.scope:
            self._listener = await env.listen("127.0.0.1", self._ensemble.ports.get(self.node_id, 0))
            self._ensemble.ports[self.node_id] = self._listener.port
            self.log = load(
                env.fs, self.directory, LogConfig(), topic=METADATA_TOPIC, partition=0, topic_id=METADATA_TOPIC_ID,
                clean=False,
            )  # fmt: skip
            self.peers = PeerClient(env, self._ensemble.address_of, f"node-{self.node_id}")
            self.quorum = MetadataQuorum(
                env, self._ensemble.config(self.node_id), self.log, self.peers, self.cluster_id,
                on_committed=self._on_committed, on_snapshot=self._on_snapshot,
                on_leadership=lambda *term: self.terms.append(term),
            )  # fmt: skip
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self.peers.run)
                    await nursery.start(self.quorum.run)
                    nursery.start_soon(self._accept, env, nursery)
                    task_status.started()
            finally:
                self._listener.close()
                self.scope = None

    def _on_committed(self, records: list[tuple[int, int, Any]]) -> None:
        self.committed += records
        self._ensemble.stir()

    def _on_snapshot(self, records: list[Any], offset: int, epoch: int) -> None:
        self.committed = [(offset, epoch, record) for record in records]
        self._ensemble.stir()

    async def _accept(self, env: RealEnv, nursery: trio.Nursery) -> None:
        while True:
            nursery.start_soon(self._serve, env, await self._listener.accept())

    async def _serve(self, env: RealEnv, link: Any) -> None:
        """One request after the other: a lane that waits must be a lane of its own."""
        frames = Frames(env, link, ReceiveMemory(1 << 30), 1 << 30)
        try:
            while True:
                for frame in await frames.burst():
                    answer = await self._answer(frame)
                    await _send(link, len(answer).to_bytes(4, "big") + answer)
        except OSError:
            pass
        finally:
            link.close()

    async def _answer(self, frame: memoryview) -> bytes:
        header = decode_request_header(frame)
        head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        if header.api_key == ApiKey.FETCH:
            chunks = await self._fetched(decode_fetch(frame, header.body, header.api_version), header.api_version)
            return head + b"".join(
                chunk.file.pread(chunk.length, chunk.position) if hasattr(chunk, "position") else bytes(chunk)
                for chunk in chunks
            )
        handlers: dict[int, Callable[[Any], Awaitable[Any]]] = {
            ApiKey.VOTE: self.quorum.requests.vote,
            ApiKey.BEGIN_QUORUM_EPOCH: self.quorum.requests.begin_quorum_epoch,
            ApiKey.END_QUORUM_EPOCH: self.quorum.requests.end_quorum_epoch,
            ApiKey.DESCRIBE_QUORUM: self.quorum.describe_quorum,
            ApiKey.FETCH_SNAPSHOT: self.quorum.requests.fetch_snapshot,
        }
        request, _ = request_class(header.api_key).decode(frame, header.body, header.api_version)
        answer = await handlers[header.api_key](request)
        return head + bytes(answer.encode(header.api_version))

    async def _fetched(self, request: FetchIn, version: int) -> list[Any]:
        chunks: list[Any] = []
        done = trio.Event()

        def answer(body: list[Any]) -> None:
            chunks.extend(body)
            done.set()

        self.quorum.requests.fetch(request, version, answer)
        await done.wait()
        return chunks

    def names(self) -> list[str]:
        """The topics among the committed records, in order."""
        return [record.name for _, _, record in self.committed if isinstance(record, TopicRecord)]


async def _send(link: Any, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[link.send((view,)) :]
        if view:
            await link.wait_writable()


class Ensemble:
    """Nodes 1 to `voters` vote, those above observe."""

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
        return BrokerConfig.from_properties(
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
        """Kill, wait until they are gone, and start again on what they left on disk."""
        self.kill(*node_ids)
        await self.until(lambda: all(self.nodes[node_id].scope is None for node_id in node_ids))
        await self.start(*node_ids)

    def stir(self) -> None:
        stirred, self._stirred = self._stirred, trio.Event()
        stirred.set()

    async def until(self, holds: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait for something that becomes true by itself. Fails after `seconds`."""
        with trio.fail_after(seconds):
            while not holds():
                with trio.move_on_after(0.005):
                    await self._stirred.wait()

    def running(self) -> list[QuorumNode]:
        return [node for node in self.nodes.values() if node.scope is not None]

    async def leader(self) -> QuorumNode:
        """The node that leads and has handed on all that was written before."""
        found: list[QuorumNode] = []

        def elected() -> bool:
            found[:] = [node for node in self.running() if node.terms and node.terms[-1][0] and node.quorum.is_leader]
            return len(found) == 1

        await self.until(elected)
        return found[0]

    async def commit(self, name: str) -> int:
        """Have the leader append a topic of that name and wait until that is certain. Its offset."""
        leader = await self.leader()
        offset = leader.quorum.append([(TopicRecord(name=name, topic_id=bytes(16)), 0), (NoOpRecord(), 0)])
        await leader.quorum.wait_committed(offset, leader.quorum.epoch)
        return offset

    async def all_know(self, *names: str) -> None:
        """Until every running node was told of exactly these topics, in this order."""
        await self.until(lambda: all(node.names() == list(names) for node in self.running()))
