"""Counts what a workload has done so far."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

NAMES = ("sent", "acked", "failed", "info", "read")


class OperationRates(NamedTuple):
    """Per second, since the call before."""

    sent: float
    acked: float
    failed: float
    info: float
    read: float


LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of `SendLatencies`, each inclusive; what took longer is in one more bucket."""


@dataclass(slots=True)
class SendLatencies:
    """Holds the latencies of acknowledged sends, from hand-over to acknowledgement."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    """By bucket: each send is in one of them."""
    sum_s: float = 0.0

    def take(self, seconds: float) -> None:
        """One more send took so long."""
        self.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


@dataclass(slots=True)
class LoadCounters:
    """Counts of records unless said otherwise. Written by the workload, read by anybody."""

    sent: int = 0
    """Handed to a producer."""
    acked: int = 0
    failed: int = 0
    info: int = 0
    read: int = 0
    bad: int = 0
    """Read, but the payload did not verify."""
    skipped: int = 0
    """Due, but not sent, because the producers could not keep up with the rate."""
    read_errors: int = 0
    """Fetches, or partitions of fetches, that brought an error."""
    producers_replaced: int = 0
    """Producing processes that ended with something in doubt and got a successor."""
    last_ack: dict[int, float] = field(default_factory=dict)
    """Dense partition id -> env.mono() of its last acknowledgement."""
    latencies: SendLatencies = field(default_factory=SendLatencies)
    _before: tuple[float, tuple[int, ...]] | None = None

    @property
    def outstanding(self) -> int:
        """Sent, without an outcome yet."""
        return self.sent - self.acked - self.failed - self.info

    def acknowledge(self, part: int, handed_over: float, now: float) -> None:
        """A record was acknowledged; both times are env.mono()."""
        self.acked += 1
        self.last_ack[part] = now
        self.latencies.take(now - handed_over)

    def rates(self, now: float) -> OperationRates:
        """Per second since the last call, `now` being env.mono(). Zeros at the first call."""
        counts = tuple(getattr(self, name) for name in NAMES)
        then, before = self._before if self._before is not None else (now, counts)
        self._before = (now, counts)
        seconds = now - then
        if seconds <= 0:
            return OperationRates(0.0, 0.0, 0.0, 0.0, 0.0)
        return OperationRates(*((count - past) / seconds for count, past in zip(counts, before, strict=True)))
