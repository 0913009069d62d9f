"""Looks up the cluster's topics for a coordinator, and detects when a group's topics have changed."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from squall.broker.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from squall.broker.cluster.image import ClusterImage

NO_TOPICS = 0
"""Is the hash that `metadata_hash` returns if no topic with the given names exists."""


class TopicLookup(Protocol):
    """Looks up the current topics of a cluster."""

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return a topic's id and number of partitions, or None if there is no such topic."""

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, or None if it does not exist."""

    def version(self) -> int:
        """Return the offset of the metadata log up to which the topics are known."""


class ImageTopics:
    """Looks up topics in the cluster's metadata image."""

    __slots__ = ("_image",)

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return a topic's id and number of partitions, or None if there is no such topic."""
        topic = self._image.topic(name)
        return None if topic is None else (topic.id, len(topic.partitions))

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._image.topic_ids)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, or None if it does not exist."""
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def version(self) -> int:
        """Return the offset of the metadata log up to which the topics are known."""
        return self._image.offset


class TopicTable:
    """Looks up topics in a table, for coordinators without a cluster."""

    __slots__ = ("changes", "table")

    def __init__(self, table: Mapping[str, tuple[bytes, int]] | None = None) -> None:
        """Set the table, which maps a topic name to its id and number of partitions. None is an empty table."""
        self.table = dict(table or {})
        self.changes = 0
        """Counts the changes of the table; the code that changes the table increments it."""

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return a topic's id and the number of its partitions; None if the table does not have it."""
        return self.table.get(name)

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return list(self.table)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None if the table does not have it."""
        return next((name for name, (known, _) in self.table.items() if known == topic_id), None)

    def version(self) -> int:
        """Return the number of changes of the table, which serves as its version."""
        return self.changes


def metadata_hash(topics: TopicLookup, names: Iterable[str]) -> int:
    """Return an int64 hash of these topics. It changes if a topic is created, deleted, recreated or gets more
    partitions.

    Kafka's coordinators compute another hash: after a failover to such a coordinator the group is assigned once more
    than needed.
    """
    digest, found = blake2b(digest_size=8), False
    for name in sorted(names):
        topic = topics.find(name)
        if topic is not None:
            found = True
            # Ids of one length: otherwise the bytes of two lists of topics could be the same.
            assert len(topic[0]) == len(ZERO_UUID)
            digest.update(topic[0] + topic[1].to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else NO_TOPICS
