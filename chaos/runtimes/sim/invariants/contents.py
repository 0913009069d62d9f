"""What an image of the cluster has, as a value that can be compared and kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from broker.cluster.image import Broker, PartitionImage

NOT_KNOWN: Final = -1
"""The offset at which a broker was registered, where no log has the record."""


class Contents(NamedTuple):
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

    def without_registrations(self) -> Contents:
        """As one that no log has the registrations for."""
        return self._replace(brokers=tuple(replace(broker, registered_at=NOT_KNOWN) for broker in self.brokers))
