"""Expires parked requests at their deadlines.

Most parked requests complete long before their deadline, so adding and removing are dictionary operations, and expiry
checks coarse buckets now and then. (Kafka's purgatory uses a hierarchical timing wheel for the same reason.)
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from squall.broker.env import Env, WakeupSignal

TICK_MS = 25
_NEVER = 1 << 40
_TICK_MARGIN_S = 1e-6
"""Is added to a wait for the end of a tick (`TICK_MS`), in s, so that the tick is surely over afterwards."""


class Expirable(Protocol):
    """Represents a parked request that has a deadline."""

    bucket: int

    def expire(self) -> None:
        """Send the response now, because the deadline has passed: a Fetch gets the available records, a Produce request
        gets REQUEST_TIMED_OUT.
        """


class ParkedRequestTimers:
    """Holds parked requests by deadline, in ticks of `TICK_MS`. A request expires when the tick that contains its
    deadline is over.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Expirable, None]] = {}
        self._awaited = 0
        self._sooner: WakeupSignal | None = None

    def add(self, item: Expirable, deadline_ms: int) -> None:
        """Call `item.expire` within a tick after `deadline_ms`, unless the item is removed before."""
        item.bucket = deadline_ms // TICK_MS
        bucket = self._buckets.get(item.bucket)
        if bucket is None:
            bucket = self._buckets[item.bucket] = {}
            if item.bucket < self._awaited and self._sooner is not None:
                self._awaited = item.bucket
                self._sooner.set()
        bucket[item] = None

    def remove(self, item: Expirable) -> None:
        """Remove `item`. Do nothing if the item has expired."""
        bucket = self._buckets.get(item.bucket)
        if bucket is not None:
            bucket.pop(item, None)
            if not bucket:
                del self._buckets[item.bucket]

    def expire(self, now_ms: int) -> None:
        """Expire the items whose deadline is in an earlier tick (`TICK_MS`) than `now_ms`, the earliest tick first."""
        current = now_ms // TICK_MS
        # A bucket whose tick is not over may hold deadlines that have not passed.
        for key in sorted([k for k in self._buckets if k < current]):
            for item in self._buckets.pop(key):
                item.expire()

    async def due(self, env: Env) -> None:
        """Wait until `expire` has an item to expire. While no request is parked, the waiting task does not wake."""
        sooner = self._sooner = self._sooner or env.signal()
        while True:
            first = min(self._buckets, default=None)
            now_ms = env.mono() * 1000
            if first is not None and first < now_ms // TICK_MS:
                return
            self._awaited = _NEVER if first is None else first
            await sooner.wait(inf if first is None else ((first + 1) * TICK_MS - now_ms) / 1000 + _TICK_MARGIN_S)
            self._awaited = 0

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values())
