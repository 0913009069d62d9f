"""Keeps a client's view of the cluster: nodes, topics, leaders (P1). Pure: answers in, changes out.

Knowledge of a partition only moves forward, by leader epoch: metadata from a broker that lags behind never undoes what
a newer answer or the leader itself (KIP-951) said, unless the topic was made anew (another topic id).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from squall.broker.protocol.schema.metadata import MetadataResponse, MetadataResponseTopic
from squall.broker.protocol.wire import ZERO_UUID

Address = tuple[str, int]
Place = tuple[str, int]
"""A partition: topic name and index."""


class Leader(NamedTuple):
    """Names the leader of a partition."""

    node_id: int
    """-1: nobody, as far as known."""
    epoch: int
    """-1: not told (old brokers)."""


NOBODY = Leader(-1, -1)


@dataclass(slots=True)
class TopicView:
    """A topic as last told."""

    topic_id: bytes = ZERO_UUID
    error: int = 0
    leaders: dict[int, Leader] = field(default_factory=dict)
    """By partition index."""
    replicas: dict[int, tuple[int, ...]] = field(default_factory=dict)
    in_sync: dict[int, tuple[int, ...]] = field(default_factory=dict)


class ClusterMetadata:
    """See the module."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Address] = {}
        self.topics: dict[str, TopicView] = {}
        self.updates = 0
        """Metadata answers taken in so far."""
        self._names: dict[bytes, str] = {}

    def apply(self, answer: MetadataResponse, wanted: Iterable[str]) -> list[Place]:
        """Take in a metadata answer; topics not in `wanted` are left out. Returns partitions with another leader."""
        self.updates += 1
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        if answer.brokers:
            self.nodes = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        keep = frozenset(wanted)
        moved: list[Place] = []
        for topic in answer.topics:
            if topic.name in keep:
                moved += self._apply_topic(topic.name, topic)
        return moved

    def hint(self, topic: str, index: int, leader: Leader, endpoint: Address | None) -> bool:
        """Take in what a broker said about a partition's leader when it refused. True where that is news."""
        view = self.topics.get(topic)
        if view is None or leader.node_id < 0 or leader.epoch <= view.leaders.get(index, NOBODY).epoch:
            return False
        if endpoint is not None:
            self.nodes[leader.node_id] = endpoint
        if leader.node_id not in self.nodes:
            return False
        view.leaders[index] = leader
        return True

    def leader(self, topic: str, index: int) -> Leader | None:
        """A partition's leader, if it is known and so is its address."""
        view = self.topics.get(topic)
        leader = view.leaders.get(index) if view is not None else None
        return leader if leader is not None and leader.node_id in self.nodes else None

    def topic_id(self, topic: str) -> bytes:
        """A topic's id, ZERO_UUID where it is not known."""
        view = self.topics.get(topic)
        return view.topic_id if view is not None else ZERO_UUID

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id."""
        return self._names.get(topic_id)

    def _apply_topic(self, name: str, told: MetadataResponseTopic) -> list[Place]:
        view = self.topics.get(name)
        if view is None or (told.topic_id not in (ZERO_UUID, view.topic_id)):
            if view is not None:
                self._names.pop(view.topic_id, None)
            view = self.topics[name] = TopicView(told.topic_id)
            if told.topic_id != ZERO_UUID:
                self._names[told.topic_id] = name
        view.error = told.error_code
        moved: list[Place] = []
        for partition in told.partitions:
            index = partition.partition_index
            known = view.leaders.get(index, NOBODY)
            leader = Leader(partition.leader_id, partition.leader_epoch)
            if leader.epoch < known.epoch:
                continue
            view.replicas[index] = tuple(partition.replica_nodes)
            view.in_sync[index] = tuple(partition.isr_nodes)
            view.leaders[index] = leader
            if leader.node_id >= 0 and leader != known:
                moved.append((name, index))
        return moved
