"""Keeps a client's view of the cluster: brokers, topics, and the leaders to which producers send (mechanism P1 in
docs/mechanisms.md). It is pure: responses are passed in, changes are returned.

What is known of a partition only moves forward, by leader epoch: metadata from a broker that lags behind never replaces
a newer response or the leader's own information (KIP-951), unless the topic was recreated (another topic id).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from squall.broker.protocol.schema.metadata import MetadataResponse, MetadataResponseTopic
from squall.broker.protocol.wire import ZERO_UUID

Address = tuple[str, int]
Place = tuple[str, int]
"""Identifies a partition: (topic name, index)."""


class Leader(NamedTuple):
    """Identifies the leader of a partition by its broker id and its leader epoch."""

    node_id: int
    """Holds the leader's broker id; -1 if no leader is known."""
    epoch: int
    """Holds the leader epoch; -1 if it is unknown (old brokers)."""


NO_LEADER = Leader(-1, -1)


@dataclass(slots=True)
class TopicView:
    """Holds the latest known metadata of a topic: its id and its partitions' leaders."""

    topic_id: bytes = ZERO_UUID
    error: int = 0
    leaders: dict[int, Leader] = field(default_factory=dict)
    """Maps a partition index to its leader."""
    replicas: dict[int, tuple[int, ...]] = field(default_factory=dict)
    in_sync: dict[int, tuple[int, ...]] = field(default_factory=dict)


class ClusterMetadata:
    """Holds a client's view of the cluster: brokers, topics and leaders."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Address] = {}
        self.topics: dict[str, TopicView] = {}
        self.updates = 0
        """Counts the metadata responses that were applied."""
        self._names: dict[bytes, str] = {}

    def apply(self, answer: MetadataResponse, wanted: Iterable[str]) -> list[Place]:
        """Apply a metadata response, without topics that are not in `wanted`. Return the partitions that have another
        leader.
        """
        self.updates += 1
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        # A broker that has just started may know none. Without the old addresses no leader could be reached.
        if answer.brokers:
            self.nodes = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        keep = frozenset(wanted)
        moved: list[Place] = []
        for topic in answer.topics:
            if topic.name in keep:
                moved += self._apply_topic(topic.name, topic)
        return moved

    def hint(self, topic: str, index: int, leader: Leader, endpoint: Address | None) -> bool:
        """Apply what a broker said about a partition's leader when it refused a request. Return True if it is new."""
        view = self.topics.get(topic)
        if view is None or leader.node_id < 0 or leader.epoch <= view.leaders.get(index, NO_LEADER).epoch:
            return False
        if endpoint is not None:
            self.nodes[leader.node_id] = endpoint
        # Without an address the hint is of no use: metadata has to be requested.
        if leader.node_id not in self.nodes:
            return False
        view.leaders[index] = leader
        return True

    def leader(self, topic: str, index: int) -> Leader | None:
        """Return a partition's leader, or None if the leader or its address is unknown."""
        view = self.topics.get(topic)
        leader = view.leaders.get(index) if view is not None else None
        return leader if leader is not None and leader.node_id in self.nodes else None

    def topic_id(self, topic: str) -> bytes:
        """Return a topic's id, or ZERO_UUID if it is unknown."""
        view = self.topics.get(topic)
        return view.topic_id if view is not None else ZERO_UUID

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, or None if it is unknown."""
        return self._names.get(topic_id)

    def _apply_topic(self, name: str, metadata: MetadataResponseTopic) -> list[Place]:
        view = self.topics.get(name)
        if view is None or (metadata.topic_id not in (ZERO_UUID, view.topic_id)):
            if view is not None:
                self._names.pop(view.topic_id, None)
            # A recreated topic begins at epoch 0 again: what was known of the old one would hide its leaders.
            view = self.topics[name] = TopicView(metadata.topic_id)
            if metadata.topic_id != ZERO_UUID:
                self._names[metadata.topic_id] = name
        view.error = metadata.error_code
        moved: list[Place] = []
        for partition in metadata.partitions:
            index = partition.partition_index
            known = view.leaders.get(index, NO_LEADER)
            leader = Leader(partition.leader_id, partition.leader_epoch)
            if leader.epoch < known.epoch:
                continue
            view.replicas[index] = tuple(partition.replica_nodes)
            view.in_sync[index] = tuple(partition.isr_nodes)
            view.leaders[index] = leader
            if leader.node_id >= 0 and leader != known:
                moved.append((name, index))
        return moved
