"""Nodes with a real control plane on trio's clock. The test simulates the metadata quorum and the network.

There is no data plane in it. In `memory_cluster.py` the quorum elects its leaders and commits by itself; here the test
says who leads and when the log commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import trio

from squall.broker.cluster.feed import ImageFeed
from squall.broker.control.forwarder import Forwarder, open_envelope
from squall.broker.control.kraft.controller_service import ControllerService, NotQuorumLeader
from squall.broker.control.lifecycle import BrokerLifecycle
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.apis import ApiKey, request_class, response_class
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.metadata_frame import decode_metadata_record, encode_metadata_record
from squall.broker.protocol.schema.describe_quorum import (
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)
from tests.support.brokers.in_memory import broker_config
from tests.support.brokers.memory_env import FakeEnv

CLUSTER_ID = "control-plane-harness"


class PlayedQuorum:
    """Replaces the metadata quorum by one log for all nodes. It commits at once, or when the test says so; the test
    names the leader.
    """

    def __init__(self, harness: ControlPlaneHarness, node_id: int) -> None:
        self.harness, self.node_id = harness, node_id

    @property
    def is_leader(self) -> bool:
        return self.harness.leader == self.node_id

    @property
    def leader_id(self) -> int:
        return self.harness.leader if self.node_id not in self.harness.cut_off else -1

    @property
    def end_offset(self) -> int:
        return len(self.harness.log)

    def append(self, records: Sequence[tuple[Any, int]]) -> int:
        if not self.is_leader:
            raise NotQuorumLeader
        for record, version in records:
            self.harness.log.append((self.harness.epoch, encode_metadata_record(record, version)))
        if self.harness.commits:
            self.harness.commit()
        return len(self.harness.log) - 1

    async def wait_committed(self, offset: int, epoch: int) -> None:
        while True:
            if not self.is_leader or self.harness.epoch != epoch:
                raise NotQuorumLeader
            if self.harness.committed > offset:
                return
            await self.harness.moved.wait()

    async def describe_quorum(self, request: Any) -> Any:
        part = DescribeQuorumResponsePartitionData(leader_id=self.node_id, leader_epoch=self.harness.epoch)
        return DescribeQuorumResponse(topics=[DescribeQuorumResponseTopicData("__cluster_metadata", [part])])


class PlayedPeers:
    """Carries requests between nodes: encodes and decodes them, without sockets."""

    def __init__(self, harness: ControlPlaneHarness, node_id: int) -> None:
        self.harness, self.node_id = harness, node_id

    async def request(
        self,
        node_id: int,
        api_key: int,
        version: int,
        message: Any,
        timeout_ms: int,
        *,
        lane: str = "",
        left_s: float = inf,
    ) -> Any:
        with trio.move_on_after(left_s):
            return await self._answer(node_id, api_key, version, message, timeout_ms)
        raise OSError("no answer in the time that was left")

    async def _answer(self, node_id: int, api_key: int, version: int, message: Any, timeout_ms: int) -> Any:
        self.harness.requests.append((self.node_id, node_id, ApiKey(api_key)))
        if node_id in self.harness.cut_off or self.node_id in self.harness.cut_off:
            await trio.sleep(timeout_ms / 1000)
            raise OSError("no answer")
        await trio.sleep(0.001)
        request, _ = request_class(api_key).decode(memoryview(message.encode(version)), 0, version)
        service = self.harness.nodes[node_id].service
        if api_key == ApiKey.ENVELOPE:
            response = await open_envelope(self.harness.nodes[node_id].env, service, request)
        else:
            response = await handled(service, api_key, request)
        return response_class(api_key).decode(memoryview(response.encode(version)), 0, version)[0]


async def handled(service: ControllerService, api_key: int, request: Any) -> Any:
    """Send a request to the service, and wait for its response."""
    answer = service.handle(api_key, request)
    return await answer.wait() if isinstance(answer, DeferredResponse) else answer


class ControlPlaneNode:
    """One node's control plane."""

    def __init__(self, harness: ControlPlaneHarness, node_id: int, incarnation: int, previous_epoch: int) -> None:
        self.id, self.harness = node_id, harness
        self.env: Any = FakeEnv(seed=100 * incarnation + node_id, name=f"node-{node_id}")
        voters = ",".join(f"{voter}@h{voter}:1" for voter in (1, 2, 3))
        self.config = broker_config(
            **{"node_id": str(node_id), "controller_quorum_voters": voters, **harness.properties}
        )
        self.quorum = PlayedQuorum(harness, node_id)
        self.feed = ImageFeed()
        self.service = ControllerService(self.env, self.config, CLUSTER_ID, self.quorum, self.feed)
        peers: Any = PlayedPeers(harness, node_id)
        self.forwarder = Forwarder(self.env, self.config, peers, self.service, lambda: self.quorum.leader_id)
        self.lifecycle = BrokerLifecycle(
            self.env,
            self.config,
            self.forwarder,
            self.feed,
            cluster_id=CLUSTER_ID,
            endpoints={"INTERNAL": (f"h{node_id}", 1), "CLIENT": (f"h{node_id}", 2)},
            directory_id=bytes([node_id]) * 16,
            previous_broker_epoch=previous_epoch,
        )
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.service.run)
                nursery.start_soon(self.lifecycle.run)
                await self.lifecycle.caught_up.wait()
                self.lifecycle.ready()


class ControlPlaneHarness:
    """Up to three nodes with ids 1 to 3, and one metadata log with one leader."""

    def __init__(self, nursery: trio.Nursery, **properties: str) -> None:
        self.nursery = nursery
        self.properties = properties
        self.log: list[tuple[int, bytes] | None] = []
        self.committed = 0
        self.commits = True
        self.moved = trio.Event()
        self.leader, self.epoch = -1, 0
        self.nodes: dict[int, ControlPlaneNode] = {}
        self.incarnations: dict[int, int] = {}
        self.cut_off: set[int] = set()
        self.requests: list[tuple[int, int, ApiKey]] = []

    def start(self, node_id: int, *, previous_epoch: int = -1) -> ControlPlaneNode:
        """Start a node without state: it replays the metadata log before anything else."""
        self.incarnations[node_id] = self.incarnations.get(node_id, 0) + 1
        node = self.nodes[node_id] = ControlPlaneNode(self, node_id, self.incarnations[node_id], previous_epoch)
        self.cut_off.discard(node_id)
        self._replay(node, 0)
        self.nursery.start_soon(node.run)
        return node

    def kill(self, node_id: int) -> None:
        """End a node at once, as SIGKILL does."""
        self.nodes[node_id].scope.cancel()
        self.cut_off.add(node_id)
        if self.leader == node_id:
            self.leader = -1

    def elect(self, node_id: int) -> None:
        """Make a node the leader of the quorum. Records that are not committed are lost."""
        before, self.leader = self.leader, -1
        del self.log[self.committed :]
        if before >= 0:
            self.nodes[before].service.on_leadership(False, self.epoch)
        self.epoch += 1
        self.leader = node_id
        self.log.append(None)
        self.commit()
        self.nodes[node_id].service.on_leadership(True, self.epoch)

    def commit(self) -> None:
        """Commit everything in the log. Every node that is not cut off replays it."""
        at, self.committed = self.committed, len(self.log)
        for node in self.nodes.values():
            if node.id not in self.cut_off:
                self._replay(node, at)
        moved, self.moved = self.moved, trio.Event()
        moved.set()

    def heal(self, node_id: int) -> None:
        """Connect a node that was cut off. It replays what it missed."""
        self.cut_off.discard(node_id)
        self._replay(self.nodes[node_id], self.nodes[node_id].feed.image.offset + 1)

    def _replay(self, node: ControlPlaneNode, at: int) -> None:
        entries = [(offset, self.log[offset]) for offset in range(at, self.committed)]
        node.feed.committed([(at, entry[0], decode_metadata_record(entry[1])) for at, entry in entries if entry])

    async def settle(self, *node_ids: int) -> None:
        """Wait until these brokers serve."""
        for node_id in node_ids:
            await self.nodes[node_id].lifecycle.unfenced.wait()


async def start_three(nursery: trio.Nursery, **properties: str) -> ControlPlaneHarness:
    """Start three nodes, the first of them the controller, and wait until all brokers serve."""
    harness = ControlPlaneHarness(nursery, **properties)
    for node_id in (1, 2, 3):
        harness.start(node_id)
    harness.elect(1)
    await harness.settle(1, 2, 3)
    return harness


def error_of(response: Any) -> ErrorCode:
    """Return the error of a response whose request named one topic, partition or setting."""
    for name in ("topics", "responses", "results"):
        if getattr(response, name, ()):
            (only,) = getattr(response, name)
            return ErrorCode(only.error_code)
    return ErrorCode(response.error_code)
