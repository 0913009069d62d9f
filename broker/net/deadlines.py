"""Deadlines of parked requests.

Most parked requests complete long before their deadline, so both adding and removing are a dictionary operation; expiry
looks at coarse buckets now and then. (Kafka's purgatory uses a hierarchical timing wheel for the same reason.)
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from squall.broker.env import Env, WakeupSignal

TICK_MS = 25
_NEVER = 1 << 40
_JUST = 1e-6
"""Seconds that make sure that a tick is over when it is said to be."""


class Expirable(Protocol):
    """A parked request that has a deadline."""

    bucket: int

    def expire(self) -> None:
        """The deadline has passed: answer with what is there."""


class Timers:
    """Parked requests by deadline, to the nearest tick."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Expirable, None]] = {}
        self._awaited = 0
        self._sooner: WakeupSignal | None = None

    def add(self, item: Expirable, deadline_ms: int) -> None:
        """Have `item.expire` called within a tick after `deadline_ms`, unless removed before."""
        item.bucket = deadline_ms // TICK_MS
        bucket = self._buckets.get(item.bucket)
        if bucket is None:
            bucket = self._buckets[item.bucket] = {}
            if item.bucket < self._awaited and self._sooner is not None:
                self._awaited = item.bucket
                self._sooner.set()
        bucket[item] = None

    def remove(self, item: Expirable) -> None:
        """Forget `item`; no error if it has expired."""
        bucket = self._buckets.get(item.bucket)
        if bucket is not None:
            bucket.pop(item, None)
            if not bucket:
                del self._buckets[item.bucket]

    def expire(self, now_ms: int) -> None:
        """Expire whatever was due before the current tick, oldest first."""
        current = now_ms // TICK_MS
        for key in sorted([k for k in self._buckets if k < current]):
            for item in self._buckets.pop(key):
                item.expire()

    async def due(self, env: Env) -> None:
        """Wait until `expire` may find something. While nothing is parked, this costs no tick."""
        sooner = self._sooner = self._sooner or env.signal()
        while True:
            first = min(self._buckets, default=None)
            now_ms = env.mono() * 1000
            if first is not None and first < now_ms // TICK_MS:
                return
            self._awaited = _NEVER if first is None else first
            await sooner.wait(inf if first is None else ((first + 1) * TICK_MS - now_ms) / 1000 + _JUST)
            self._awaited = 0

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values())
