"""Turns an image of the cluster into a value that can be compared and kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from squall.broker.cluster.image import Broker, PartitionImage

NOT_KNOWN: Final = -1
"""The offset at which a broker was registered, or a feature changed, where no log has the record."""


@dataclass(frozen=True, slots=True)
class FeatureLevelChange:
    """Says when a feature's level has last changed."""

    offset: int = field(default=NOT_KNOWN, compare=False)
    """Of the record, as an image has it."""
    begins: frozenset[int] = field(default=frozenset(), compare=False)
    """Offsets of the snapshots that the image may come from: in such an image, all levels are of the snapshot's."""


class ComparableImage(NamedTuple):
    """A cluster as a value: equal for equal images. All in order."""

    brokers: tuple[Broker, ...] = ()
    topics: tuple[tuple[bytes, str, tuple[tuple[int, PartitionImage], ...]], ...] = ()
    """(id, name, its partitions by index)."""
    settings: tuple[tuple[tuple[int, str], tuple[tuple[str, str], ...]], ...] = ()
    """((resource type, resource name), its settings)."""
    features: tuple[tuple[str, int], ...] = ()
    next_producer_id: int = 0
    epoch: int = -1
    names: tuple[tuple[str, bytes], ...] = ()
    """(topic name, the id by which it is found)."""
    kept: tuple[str, ...] = ()
    """The records of what is not served."""
    leveled: FeatureLevelChange = FeatureLevelChange()

    def without_registrations(self) -> ComparableImage:
        """As one that no log has the registrations for."""
        return self._replace(brokers=tuple(replace(broker, registered_at=NOT_KNOWN) for broker in self.brokers))
