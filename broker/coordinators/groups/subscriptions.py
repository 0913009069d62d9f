"""Decodes the subscriptions that Kafka's consumers send when they join: the topics that they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.protocol.coordinator_frame import decode_versioned
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema.consumer_protocol import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from collections.abc import Iterable


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions, or None if one of them cannot be decoded and the topics are unknown."""
    found: list[str] = []
    for subscription in subscriptions:
        try:
            found += decode_versioned(ConsumerProtocolSubscription, subscription).topics
        except MalformedFrame:
            return None
    return frozenset(found)
