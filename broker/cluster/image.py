"""Holds the state of the cluster that the metadata log describes: brokers, topics, partitions, settings, features.

Every node holds one image and changes it only by `replay.replay`, one committed record at a time, so that all nodes at
one offset hold equal images. Entities are immutable and replaced as a whole: a reader may keep one across a change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RECOVERED = 0
"""Leader recovery state: the leader was elected from the ISR, or has finished recovering."""
RECOVERING = 1
"""Leader recovery state: the leader was elected from outside the ISR and may lack committed records (KIP-704)."""

TOPIC_RESOURCE = 2
"""Kafka's config resource type of a topic."""
BROKER_RESOURCE = 4
"""Kafka's config resource type of a broker; the name "" stands for every broker."""
BROKER_LOGGER_RESOURCE = 8
"""Kafka's config resource type of a broker's loggers (KIP-412): the controller keeps none."""
CLIENT_METRICS_RESOURCE = 16
"""Kafka's config resource type of a subscription to clients' metrics (KIP-714)."""
GROUP_RESOURCE = 32
"""Kafka's config resource type of a group (KIP-848)."""
CLUSTER_DEFAULT = (BROKER_RESOURCE, "")
"""Key in `ClusterImage.configs` of the settings that hold for every broker."""

METADATA_VERSION = "metadata.version"
"""Feature whose level says which records, in which versions, may stand in the metadata log."""
ELR_FEATURE = "eligible.leader.replicas.version"
"""Feature whose level 1 turns on eligible leader replicas (KIP-966)."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Represents one registered broker."""

    id: int
    epoch: int
    """The broker epoch: offset of the record that registered this incarnation."""
    incarnation_id: bytes
    endpoints: Mapping[str, tuple[str, int]]
    """Listener name to advertised (host, port)."""
    fenced: bool
    in_controlled_shutdown: bool = False
    rack: str | None = None
    registered_at: int = field(default=-1, compare=False)
    """Offset of the latest registration record; a broker that has replayed it may be unfenced."""
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    """Log directories that take no new replicas (KIP-1066); None until the broker has said."""
    features: tuple[tuple[str, int, int], ...] = ()
    """(name, lowest level, highest level) that it supports."""

    @property
    def active(self) -> bool:
        """May lead, and may enter an ISR: neither fenced nor shutting down (KIP-841)."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def cordoned(self) -> bool:
        """It has log directories, and none of them takes new replicas."""
        return bool(self.log_dirs) and all(each in (self.cordoned_log_dirs or ()) for each in self.log_dirs)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Represents one partition, as the controller last decided it."""

    replicas: tuple[int, ...]
    """Broker ids; the first is the preferred leader."""
    isr: tuple[int, ...]
    leader: int
    """Broker id, or NO_NODE."""
    leader_epoch: int
    """Bumped when the leader changes, or must notice a change that it did not ask for."""
    partition_epoch: int
    """Bumped by every change."""
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    """Replicas outside the ISR that hold every committed record (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def preferred_leader(self) -> int:
        """The replica that leads when all is well."""
        return self.replicas[0]


@dataclass(slots=True)
class Topic:
    """Represents one topic. `partitions` is changed in place by replay only."""

    name: str
    id: bytes
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


@dataclass(slots=True)
class ImageDelta:
    """Holds what a run of records changed, with the values before it. The values after it are in the image."""

    brokers: dict[int, Broker | None] = field(default_factory=dict)
    """Changed brokers: id to the registration before, None where there was none."""
    partitions: dict[tuple[bytes, int], PartitionImage | None] = field(default_factory=dict)
    """Changed partitions of topics that still exist: (topic id, index) to the state before, None for a new one."""
    created_topics: dict[bytes, None] = field(default_factory=dict)
    deleted_topics: dict[bytes, Topic] = field(default_factory=dict)
    """Topics that existed before and are gone, with their partitions as they last were."""
    configs: dict[tuple[int, str], None] = field(default_factory=dict)
    """Changed settings: (resource type, resource name)."""
    features: bool = False
    """A feature level changed."""

    def __bool__(self) -> bool:
        return bool(
            self.brokers
            or self.partitions
            or self.created_topics
            or self.deleted_topics
            or self.configs
            or self.features
        )


def everything(image: ClusterImage) -> ImageDelta:
    """A delta in which everything in `image` is new, for a new follower of the image."""
    return ImageDelta(
        brokers=dict.fromkeys(image.brokers),
        partitions={(topic.id, index): None for topic, index, _ in image.partitions()},
        created_topics=dict.fromkeys(image.topics_by_id),
        configs=dict.fromkeys(image.configs),
        features=bool(image.features),
    )


@dataclass(slots=True)
class ClusterImage:
    """The cluster as of one offset of the metadata log."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    topics_by_id: dict[bytes, Topic] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """(resource type, resource name) to the settings that were altered there."""
    features: dict[str, int] = field(default_factory=dict)
    """Finalized levels."""
    features_offset: int = field(default=-1, compare=False)
    """Offset of the last record that changed a level."""
    next_producer_id: int = 0
    kept: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Newest records of what is not served, by what they are of (`squall.broker.cluster.unserved_records`)."""
    offset: int = -1
    """Offset of the last record in it."""
    epoch: int = -1
    """Epoch of the quorum that wrote that record."""
    version: int = field(default=0, compare=False)
    """Counts the changes that clients can see: the key of caches made from the image."""
    delta: ImageDelta = field(default_factory=ImageDelta, compare=False)
    """Changes since `take_delta` was last called."""

    def take_delta(self) -> ImageDelta:
        """The changes since the last call; the next one begins empty."""
        delta, self.delta = self.delta, ImageDelta()
        return delta

    def topic(self, name: str) -> Topic | None:
        """The topic of that name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics_by_id[topic_id]

    def partition(self, topic_id: bytes, index: int) -> PartitionImage | None:
        """Return one partition; None if it does not exist."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def partitions(self) -> Iterator[tuple[Topic, int, PartitionImage]]:
        """Yield every partition, in order of creation: the same on all nodes."""
        for topic in self.topics_by_id.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def is_active(self, broker_id: int) -> bool:
        """Registered, not fenced, not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active

    def become(self, other: ClusterImage, delta: ImageDelta) -> None:
        """Take over the content of `other`, which must not be used any more; `delta` is the difference."""
        assert other is not self
        assert other.offset >= self.offset, f"an image of {other.offset} after one of {self.offset}"
        self.brokers, self.topics_by_id, self.topic_ids = other.brokers, other.topics_by_id, other.topic_ids
        self.configs, self.features, self.features_offset = other.configs, other.features, other.features_offset
        self.next_producer_id, self.kept = other.next_producer_id, other.kept
        self.offset, self.epoch = other.offset, other.epoch
        self.version += 1
        self.delta = delta

    def clone(self) -> ClusterImage:
        """An image that can be changed without changing this one. Its delta is empty."""
        return ClusterImage(
            brokers=dict(self.brokers),
            topics_by_id={
                topic_id: Topic(topic.name, topic_id, dict(topic.partitions))
                for topic_id, topic in self.topics_by_id.items()
            },
            topic_ids=dict(self.topic_ids),
            configs={resource: dict(values) for resource, values in self.configs.items()},
            features=dict(self.features),
            features_offset=self.features_offset,
            next_producer_id=self.next_producer_id,
            kept=dict(self.kept),
            offset=self.offset,
            epoch=self.epoch,
            version=self.version,
        )
