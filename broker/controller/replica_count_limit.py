"""Limits how many replicas each broker may host, because each costs open files, memory and time at each start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from squall.broker.controller.decision import Refusal
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.config import BrokerConfig


class ReplicaCountLimit:
    """Counts the replicas of each broker, with those that a request has added so far. Kafka has no such limit: its
    brokers end when they cannot open another file.
    """

    def __init__(self, image: ClusterImage, config: BrokerConfig) -> None:
        self._limit = config.squall_broker_max_replicas
        self._hosted = Counter(broker for _, _, partition in image.partitions() for broker in partition.replicas)

    def take(self, placements: Iterable[Sequence[int]]) -> None:
        """Count further replicas, given by the broker ids of each partition. Raises Refusal (POLICY_VIOLATION) above
        the limit.
        """
        more = Counter(broker for replicas in placements for broker in replicas)
        for broker, count in sorted(more.items()):
            there = self._hosted[broker]
            if there + count > self._limit:
                message = (
                    f"Broker {broker} has {there:,} replicas; with {count:,} more it would have more than "
                    f"squall.broker.max.replicas={self._limit:,}."
                )
                raise Refusal(ErrorCode.POLICY_VIOLATION, message)
        # Count last: a refused topic must not use up the limit of later topics in the request.
        self._hosted.update(more)
        assert all(self._hosted[broker] <= self._limit for broker in more)
