"""Provides what a coordinator needs of the cluster's topics, and finds when they have changed for a group."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from squall.broker.cluster.image import ClusterImage

NO_TOPICS = 0
"""The hash where no topic exists."""


class TopicLookup(Protocol):
    """The topics of a cluster, as of now."""

    def find(self, name: str) -> tuple[bytes, int] | None:
        """A topic's id and the number of its partitions."""

    def names(self) -> Iterable[str]:
        """The names of all topics."""

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic that exists."""

    def version(self) -> int:
        """The offset of the metadata log up to which this is so."""


class ImageTopics:
    """The topics of the cluster's image, as shards ask for them."""

    __slots__ = ("_image",)

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def find(self, name: str) -> tuple[bytes, int] | None:
        """A topic's id and the number of its partitions."""
        topic = self._image.topic(name)
        return None if topic is None else (topic.id, len(topic.partitions))

    def names(self) -> list[str]:
        """The names of all topics."""
        return list(self._image.topic_ids)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic that exists."""
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def version(self) -> int:
        """The offset of the metadata log up to which this is so."""
        return self._image.offset


class TopicTable:
    """Topics from a table: for coordinators without a cluster."""

    __slots__ = ("changes", "table")

    def __init__(self, table: Mapping[str, tuple[bytes, int]] | None = None) -> None:
        """`table`: name to id and number of partitions."""
        self.table = dict(table or {})
        self.changes = 0
        """To be counted up with each change of the table."""

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
        """Return the count of changes, in place of an offset of the metadata log."""
        return self.changes


def metadata_hash(topics: TopicLookup, names: Iterable[str]) -> int:
    """An int64 that differs where a topic of these is new, has gone, is another one, or has more partitions.

    Kafka's coordinators hash otherwise: the next one computes its own, and assigns once more than needed.
    """
    digest, found = blake2b(digest_size=8), False
    for name in sorted(names):
        topic = topics.find(name)
        if topic is not None:
            found = True
            digest.update(topic[0] + topic[1].to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else NO_TOPICS
