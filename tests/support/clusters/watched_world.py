"""A cluster without tasks for tests of `InvariantChecker`: real logs on simulated disks, real replication state
machines and a real metadata image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

from squall.broker.cluster.image import Broker, ClusterImage, PartitionImage, Topic
from squall.broker.control.kraft.metadata_quorum import QuorumNodeState
from squall.broker.log.config import LogConfig
from squall.broker.log.log import Log
from squall.broker.log.manager import LogManager
from squall.broker.quorum.election import Role
from squall.broker.quorum.state import QuorumState
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.broker.replication import BrokerStatuses, LeaderAndIsr, Partition, ReplicationSettings
from squall.chaos.runtimes.sim.disk import SimDisk
from squall.chaos.runtimes.sim.invariants import InvariantChecker, InvariantViolation
from tests.support.brokers.in_memory import broker_config
from tests.support.disks.batches import NEWEST, batch

TOPIC_ID = bytes(15) + b"\x07"
METADATA_ID = bytes(15) + b"\x01"
NODES = (1, 2, 3)
SNAPSHOT = 1 << 20
"""The offset at which the metadata logs begin: a snapshot holds what was before."""
PATIENCE_MS = 1500
"""How long a quorum leader remains leader while no majority fetches from it."""


class FakeQuorum:
    """A node's membership in the metadata quorum, which the test sets. If it leads, no majority has fetched from it
    since `deserted_since_ms`.
    """

    voters = NODES
    majority_timeout_ms = PATIENCE_MS
    leader_id, epoch, high_watermark, end_offset = -1, 1, 0, 0

    def __init__(self, log: Log) -> None:
        self._log = log
        self.is_leader = False
        self.now_ms: Callable[[], int] = lambda: 0
        self.deserted_since_ms = 0

    def inspect(self) -> QuorumNodeState:
        role, log = Role.LEADER if self.is_leader else Role.FOLLOWER, self._log
        return QuorumNodeState(
            QuorumState(), role, self.is_leader, 0, log.log_end_offset, log.generation, is_settled=True, has_left=False
        )

    def ms_without_majority(self) -> int:
        return self.now_ms() - self.deserted_since_ms


class FakeNode:
    """Replaces a `SimNode`: has its disk and, while it runs, its state machines. By default every node knows the newest
    metadata.
    """

    def __init__(self, world: WatchedWorld, node_id: int) -> None:
        self.id, self.name, self.incarnation, self.node = node_id, f"n{node_id}", 0, None
        self.disk = SimDisk(Random(node_id))
        self.env = SimpleNamespace(paused=False)
        self._world = world

    def start(self) -> None:
        self.incarnation += 1
        fs = self.disk.mount(lambda op, path: None)
        logs = LogManager(fs, "data", lambda topic: self._world.log_config, rng=Random(1))
        logs.load_all(0)
        metadata = logs.get_or_create("__cluster_metadata", 0, METADATA_ID)
        if not metadata.log_start_offset:
            metadata.truncate_fully_and_start_at(SNAPSHOT)  # Images are not made from records here.
            fs.open(f"{metadata.directory}/{SNAPSHOT:020}-{0:010}.checkpoint", create=True).close()
        quorum = FakeQuorum(metadata)
        by_id: dict[bytes, dict[int, HostedPartition]] = {}
        replicas = SimpleNamespace(by_id=by_id, hosted=lambda: [h for p in by_id.values() for h in p.values()])
        self.node: Any = SimpleNamespace(
            replicas=replicas, feed=SimpleNamespace(image=self._world.image.clone()), logs=logs,
            control=SimpleNamespace(quorum=quorum), config=self._world.config,
            proposals=SimpleNamespace(replicas=replicas), fetchers=None, transactions=SimpleNamespace(shards={}),
            groups=SimpleNamespace(shards={}),
        )  # fmt: skip
        log = logs.get_or_create(self._world.topic, 0, TOPIC_ID)
        settings = ReplicationSettings(min_insync_replicas=self._world.config.min_insync_replicas)
        state = Partition(self._world.topic, 0, TOPIC_ID, self.id, settings, self._world.brokers())
        state.opened(log.log_start_offset, log.log_end_offset, 0)
        by_id[TOPIC_ID] = {0: HostedPartition(state, log)}

    @property
    def hosted(self) -> HostedPartition:
        return self.node.replicas.by_id[TOPIC_ID][0]

    def learn(self) -> None:
        """Apply the newest metadata."""
        self.node.feed.image = image = self._world.image.clone()
        self._world.watch_image(self, image)
        truth, h = image.partition(TOPIC_ID, 0), self.hosted
        assert truth is not None
        said = LeaderAndIsr(truth.leader, truth.leader_epoch, truth.partition_epoch, truth.isr, truth.replicas)
        change = h.state.become_leader if truth.leader == self.id else h.state.become_follower
        change(said, h.log.log_end_offset, self._world.now_ms)
        if truth.leader == self.id:
            h.log.epochs.assign(truth.leader_epoch, h.log.log_end_offset)

    def kill(self, *, power: bool = False) -> None:
        self.node = None
        if power:
            self.disk.power_loss()
        else:
            self.disk.kill()

    # --------------------------------------------------------------------------------------------------- as leader

    def write(self, value: bytes = b"v", **producer: Any) -> int:
        """Append one record, and return its offset."""
        h = self.hosted
        done = h.log.append_as_leader(batch(1, key=value, **producer), h.state.leader_epoch, 1_000)
        assert not done.error, done
        h.state.appended(h.log.log_end_offset, self._world.now_ms)
        return done.base_offset

    def write_as_it_is(self, data: memoryview) -> None:
        """Append a batch that already has its offset, without validation."""
        h = self.hosted
        h.log.append_as_follower(data, NEWEST)
        h.state.appended(h.log.log_end_offset, self._world.now_ms)

    def fetch_from(self, leader: FakeNode) -> None:
        """Do one fetch from the leader: it shows the leader where this log ends, and brings the records behind."""
        mine, its = self.hosted, leader.hosted
        end = mine.log.log_end_offset
        its.state.follower_fetched(self.id, end, self._world.epochs[self.id], self._world.now_ms)
        data = b"".join(found for _, found in its.log.read_batches(end, its.log.log_end_offset))
        if data:
            mine.log.append_as_follower(memoryview(bytearray(data)), NEWEST)
        mine.state.apply_leader_offsets(its.state.high_watermark, 0, mine.log.log_end_offset)


class WatchedWorld:
    """A cluster of three nodes with one partition, which node 1 leads at first."""

    def __init__(
        self,
        *,
        min_isr: int = 2,
        segment_bytes: int = 1 << 20,
        index_interval: int = 4096,
        topic: str = "t",
        **properties: str,
    ) -> None:
        self.config = broker_config(
            **{"process_roles": "broker,controller", "min_insync_replicas": str(min_isr), **properties}
        )
        self.log_config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=index_interval)
        self.topic = topic
        self.now_ms = 0
        self.kernel = SimpleNamespace(now=0.0)
        self.violations: list[InvariantViolation] = []
        self.epochs = {node: 100 + node for node in NODES}
        self.image = ClusterImage(offset=0)
        self.image.topics_by_id[TOPIC_ID] = Topic(topic, TOPIC_ID, {0: PartitionImage(NODES, NODES, 1, 0, 0)})
        self.image.topic_ids[topic] = TOPIC_ID
        self.register()
        self.nodes = {node: FakeNode(self, node) for node in NODES}
        self.watch = InvariantChecker(self)
        for node in self.nodes.values():
            node.start()
            node.learn()
        self.look()

    def brokers(self) -> BrokerStatuses:
        return BrokerStatuses(dict(self.epochs))

    def register(self, node: int | None = None) -> None:
        """Put all brokers into the image. `node` is registered anew, with a higher broker epoch."""
        if node is not None:
            self.epochs[node] = max(self.epochs.values()) + 100
        self.image.brokers = {
            b: Broker(b, epoch, b"", {}, False, registered_at=epoch) for b, epoch in self.epochs.items()
        }
        self.image.offset += 1

    def decide(self, **changes: Any) -> None:
        """Change the partition's metadata, a minute later. Another `leader` begins a new leader epoch."""
        self.now_ms += 60_000
        partitions = self.image.topics_by_id[TOPIC_ID].partitions
        before = partitions[0]
        epoch = before.leader_epoch + (changes.get("leader", before.leader) != before.leader)
        partitions[0] = replace(
            before, **{"leader_epoch": epoch, "partition_epoch": before.partition_epoch + 1, **changes}
        )
        self.image.offset += 1

    def watch_image(self, node: FakeNode, image: ClusterImage) -> None:
        """Give the checker a node's new image. A real node changes one image object; here every change makes another
        object.
        """
        for seen in self.watch._nodes.values():
            if seen.id == node.id and seen.image is not None:
                seen.image = image

    def look(self) -> None:
        self.kernel.now += 0.001
        self.watch.look()

    def replicate(self, *followers: int, rounds: int = 3) -> None:
        """Copy the leader's log and then its high watermark to these followers, or to all."""
        leader = self.nodes[self.image.topics_by_id[TOPIC_ID].partitions[0].leader]
        for _ in range(rounds):
            for node in self.nodes.values():
                if node is not leader and node.node is not None and (not followers or node.id in followers):
                    node.fetch_from(leader)
                    self.look()

    @property
    def names(self) -> list[str]:
        """Return the names of the invariants that were broken."""
        return [violation.name for violation in self.violations]
