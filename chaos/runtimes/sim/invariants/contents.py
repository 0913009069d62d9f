"""Converts a node's image of the cluster metadata into a value that can be compared and stored."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from squall.broker.cluster.image import Broker, PartitionImage

NOT_KNOWN: Final = -1
"""Replaces the offset of a broker's registration, or of a feature's change, if no log has the record any more."""


@dataclass(frozen=True, slots=True)
class FeatureLevelChange:
    """Records at which offset of the metadata log a feature's level last changed."""

    offset: int = field(default=NOT_KNOWN, compare=False)
    """Is the offset of the record that changed the level, according to the image from which this value was made."""
    begins: frozenset[int] = field(default=frozenset(), compare=False)
    """Holds the last offset of each snapshot from which the node may have loaded its image. A snapshot does not keep
    the offset of the record that changed a level, so a loaded image has the snapshot's last offset instead.
    """


class ComparableImage(NamedTuple):
    """Holds a cluster's metadata as a value: equal for equal images. All fields are sorted."""

    brokers: tuple[Broker, ...] = ()
    topics: tuple[tuple[bytes, str, tuple[tuple[int, PartitionImage], ...]], ...] = ()
    """Lists (id, name, partitions by index) of each topic."""
    settings: tuple[tuple[tuple[int, str], tuple[tuple[str, str], ...]], ...] = ()
    """Lists ((resource type, resource name), its settings)."""
    features: tuple[tuple[str, int], ...] = ()
    next_producer_id: int = 0
    epoch: int = -1
    names: tuple[tuple[str, bytes], ...] = ()
    """Lists (topic name, topic id found by that name)."""
    kept: tuple[str, ...] = ()
    """Lists the metadata records that brokers store but do not act on."""
    leveled: FeatureLevelChange = FeatureLevelChange()

    def without_registrations(self) -> ComparableImage:
        """Return the image without the offsets of registrations, as if no log had their records."""
        return self._replace(brokers=tuple(replace(broker, registered_at=NOT_KNOWN) for broker in self.brokers))
