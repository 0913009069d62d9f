"""Features and their levels: what every node supports, and what a fresh cluster begins with (KIP-584, KIP-778)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.controller.decision import Decision, Write
from broker.protocol.schema.metadata_records import FeatureLevelRecord

if TYPE_CHECKING:
    from broker.controller.decision import Command


class Feature(NamedTuple):
    """A feature: the lowest and highest level that this version supports, and the one a fresh cluster begins with."""

    name: str
    low: int
    high: int
    initial: int


METADATA_VERSION = "metadata.version"
FEATURES = (Feature(METADATA_VERSION, 7, 29, 29),)
"""Supported features, in the order in which they are listed. 29 is Kafka's 4.2-IV1, 7 its 3.3-IV3."""


def bootstrap(command: Command) -> Decision[None]:
    """What the first controller of a fresh cluster writes; nothing where it has been written."""
    if METADATA_VERSION in command.image.features:
        return Decision(None)
    writes = [
        Write(FeatureLevelRecord(name=feature.name, feature_level=feature.initial), 0)
        for feature in FEATURES
        if feature.initial > 0
    ]
    return Decision(None, tuple(writes))
