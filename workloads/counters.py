"""Counts the operations that a workload has done so far."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

NAMES = ("sent", "acked", "failed", "info", "read")


class OperationRates(NamedTuple):
    """Holds the rates of a load in records per second: sent, with each outcome (acked, failed, info), and read. They
    cover the time since the previous call of `LoadCounters.rates`.
    """

    sent: float
    acked: float
    failed: float
    info: float
    read: float


LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Lists the inclusive upper bounds of the buckets of `SendLatencies`. One additional bucket counts slower sends."""


@dataclass(slots=True)
class SendLatencies:
    """Counts the latencies of acknowledged sends in buckets, from the send to its acknowledgement."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    """Counts the sends of each bucket; each send is in exactly one bucket."""
    sum_s: float = 0.0

    def take(self, seconds: float) -> None:
        """Count one send with this latency."""
        self.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


@dataclass(slots=True)
class LoadCounters:
    """Counts a workload's records (unless a field says otherwise). The workload writes the counters; any task may read
    them.
    """

    sent: int = 0
    """Counts the records that were passed to a producer."""
    acked: int = 0
    failed: int = 0
    info: int = 0
    read: int = 0
    bad: int = 0
    """Counts the records that were read and whose payload did not verify."""
    skipped: int = 0
    """Counts the records that were due but not sent, because the producers could not keep up with the rate."""
    read_errors: int = 0
    """Counts the fetches, or partitions of fetches, that returned an error."""
    producers_replaced: int = 0
    """Counts the processes of producers (in the history) that ended during the load and got a successor."""
    last_ack: dict[int, float] = field(default_factory=dict)
    """Maps a partition (by its number in the history) to env.mono() of the last acknowledgement there."""
    latencies: SendLatencies = field(default_factory=SendLatencies)
    _before: tuple[float, tuple[int, ...]] | None = None

    @property
    def outstanding(self) -> int:
        """Counts the sent records without an outcome yet."""
        return self.sent - self.acked - self.failed - self.info

    def acknowledge(self, part: int, handed_over: float, now: float) -> None:
        """Count an acknowledged record of partition `part` (its number in the history); both times are env.mono()."""
        self.acked += 1
        self.last_ack[part] = now
        self.latencies.take(now - handed_over)

    def rates(self, now: float) -> OperationRates:
        """Return how many records per second were sent, got each outcome and were read since the last call; zeros at
        the first call. `now` is the present time by env.mono().
        """
        counts = tuple(getattr(self, name) for name in NAMES)
        then, before = self._before if self._before is not None else (now, counts)
        self._before = (now, counts)
        seconds = now - then
        if seconds <= 0:
            return OperationRates(0.0, 0.0, 0.0, 0.0, 0.0)
        return OperationRates(*((count - past) / seconds for count, past in zip(counts, before, strict=True)))
