"""Holds the state of the cluster that the metadata log describes: brokers, topics, partitions, settings, features.

Every node holds one image and changes it only by `replay.replay`, one committed record at a time, so all nodes at one
offset hold equal images. Brokers and partitions are immutable and replaced as a whole: a reader may keep an object
across a change of the image.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RECOVERED = 0
"""Is the leader recovery state of a leader that was elected from the ISR, or has finished recovering."""
RECOVERING = 1
"""Is the leader recovery state of a leader that was elected from outside the ISR and may lack committed records
(KIP-704).
"""

TOPIC_RESOURCE = 2
"""Is Kafka's config resource type of a topic."""
BROKER_RESOURCE = 4
"""Is Kafka's config resource type of a broker; the name "" means every broker."""
BROKER_LOGGER_RESOURCE = 8
"""Is Kafka's config resource type of a broker's loggers (KIP-412). The controller stores no such settings."""
CLIENT_METRICS_RESOURCE = 16
"""Is Kafka's config resource type of a subscription to clients' metrics (KIP-714)."""
GROUP_RESOURCE = 32
"""Is Kafka's config resource type of a group (KIP-848)."""
CLUSTER_DEFAULT = (BROKER_RESOURCE, "")
"""Is the key in `ClusterImage.configs` of the settings that apply to every broker."""

METADATA_VERSION = "metadata.version"
"""Names the feature whose level says which records, in which versions, the metadata log may contain."""
ELR_FEATURE = "eligible.leader.replicas.version"
"""Names the feature whose level 1 turns on eligible leader replicas (KIP-966)."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Represents one registered broker."""

    id: int
    epoch: int
    """Gives the broker epoch: the offset of the record that registered this incarnation."""
    incarnation_id: bytes
    endpoints: Mapping[str, tuple[str, int]]
    """Maps the name of each listener to its advertised (host, port)."""
    fenced: bool
    in_controlled_shutdown: bool = False
    rack: str | None = None
    registered_at: int = field(default=-1, compare=False)
    """Gives the offset of the latest RegisterBrokerRecord. It is above `epoch` if the same incarnation has registered
    again. Once the broker has replayed that record, the controller may unfence it.
    """
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    """Lists the log directories that take no new replicas (KIP-1066), or is None until the broker has reported them."""
    features: tuple[tuple[str, int, int], ...] = ()
    """Lists (name, lowest level, highest level) of the features that the broker supports."""

    @property
    def active(self) -> bool:
        """Is True if the broker may lead and may enter an ISR: it is neither fenced nor shutting down (KIP-841)."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def cordoned(self) -> bool:
        """Is True if the broker has log directories and none of them takes new replicas."""
        return bool(self.log_dirs) and all(each in (self.cordoned_log_dirs or ()) for each in self.log_dirs)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Represents one partition as the controller last decided its state."""

    replicas: tuple[int, ...]
    """Lists the broker ids of the replicas; the first is the preferred leader."""
    isr: tuple[int, ...]
    leader: int
    """Gives the broker id of the leader, or NO_NODE."""
    leader_epoch: int
    """Counts the changes of the leader, and changes that the leader must notice although it did not propose them (a
    removed replica, say).
    """
    partition_epoch: int
    """Counts all changes of the partition."""
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    """Lists the eligible leader replicas: replicas outside the ISR that hold every committed record (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def preferred_leader(self) -> int:
        """Returns the replica that shall lead if it can."""
        return self.replicas[0]


@dataclass(slots=True)
class Topic:
    """Represents one topic. Only replay changes `partitions`, in place."""

    name: str
    id: bytes
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


@dataclass(slots=True)
class ImageDelta:
    """Says what a sequence of records has changed in an image. It holds the values before the change; the image holds
    those after it.
    """

    brokers: dict[int, Broker | None] = field(default_factory=dict)
    """Maps the id of each changed broker to its previous registration, or to None if it had none."""
    partitions: dict[tuple[bytes, int], PartitionImage | None] = field(default_factory=dict)
    """Maps (topic id, index) of each changed partition to its previous state, or to None for a new partition.
    Partitions of deleted topics are not included.
    """
    created_topics: dict[bytes, None] = field(default_factory=dict)
    deleted_topics: dict[bytes, Topic] = field(default_factory=dict)
    """Maps the id of each deleted topic to the topic with its last partitions."""
    configs: dict[tuple[int, str], None] = field(default_factory=dict)
    """Holds (resource type, resource name) of each resource whose settings changed."""
    features: bool = False
    """Is True if a feature level changed."""

    def __bool__(self) -> bool:
        return bool(
            self.brokers
            or self.partitions
            or self.created_topics
            or self.deleted_topics
            or self.configs
            or self.features
        )


def full_delta(image: ClusterImage) -> ImageDelta:
    """Return a delta in which everything in `image` is new, for a new subscriber of the image."""
    return ImageDelta(
        brokers=dict.fromkeys(image.brokers),
        partitions={(topic.id, index): None for topic, index, _ in image.partitions()},
        created_topics=dict.fromkeys(image.topics_by_id),
        configs=dict.fromkeys(image.configs),
        features=bool(image.features),
    )


@dataclass(slots=True)
class ClusterImage:
    """Holds the state of the cluster as of one offset of the metadata log."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    topics_by_id: dict[bytes, Topic] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """Maps (resource type, resource name) to the settings that were altered there."""
    features: dict[str, int] = field(default_factory=dict)
    """Maps each feature to its finalized level."""
    features_offset: int = field(default=-1, compare=False)
    """Gives the offset of the last record that changed a feature level."""
    next_producer_id: int = 0
    kept: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Holds records of features that Squall lacks (access control, SCRAM, quotas): the newest record of each object, by
    the object's key (`squall.broker.cluster.unserved_records`).
    """
    offset: int = -1
    """Gives the offset of the last record that was applied."""
    epoch: int = -1
    """Gives the quorum epoch of the last record that was applied."""
    version: int = field(default=0, compare=False)
    """Counts the changes that clients can see. Caches made from the image use it as their key."""
    delta: ImageDelta = field(default_factory=ImageDelta, compare=False)
    """Holds the changes since the last call of `take_delta`."""

    def take_delta(self) -> ImageDelta:
        """Return the changes since the last call, and begin an empty delta."""
        delta, self.delta = self.delta, ImageDelta()
        return delta

    def topic(self, name: str) -> Topic | None:
        """Return the topic of that name, or None if it does not exist."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics_by_id[topic_id]

    def partition(self, topic_id: bytes, index: int) -> PartitionImage | None:
        """Return one partition, or None if it does not exist."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def partitions(self) -> Iterator[tuple[Topic, int, PartitionImage]]:
        """Yield every partition in order of creation, which is the same on all nodes."""
        for topic in self.topics_by_id.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def is_active(self, broker_id: int) -> bool:
        """Return whether the broker is registered, not fenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active

    def replace_with(self, other: ClusterImage, delta: ImageDelta) -> None:
        """Take over the content of `other`, which must not be used afterwards. `delta` says how `other` differs from
        this image.
        """
        assert other is not self
        assert other.offset >= self.offset, f"an image of {other.offset} after one of {self.offset}"
        self.brokers, self.topics_by_id, self.topic_ids = other.brokers, other.topics_by_id, other.topic_ids
        self.configs, self.features, self.features_offset = other.configs, other.features, other.features_offset
        self.next_producer_id, self.kept = other.next_producer_id, other.kept
        self.offset, self.epoch = other.offset, other.epoch
        self.version += 1
        self.delta = delta

    def clone(self) -> ClusterImage:
        """Return a copy that can be changed without changing this image. Its delta is empty."""
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
