"""Decides which record a producer sends next, and when: drawn at a rate, or given by a plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from squall.broker.env import Env
from squall.broker.overriding import override

if TYPE_CHECKING:
    from squall.workloads.client.cluster import Place

BEHIND_LIMIT_S = 1.0
"""A random schedule skips records that are overdue by more than this number of seconds."""


class PlannedRecord(NamedTuple):
    """Describes one record that a producer is to send: when, to which partition, and how large."""

    at_s: float
    """Gives the time of the send in seconds. In a plan the time counts from the begin of the load with faults, and is
    negative in the warm-up; in a schedule it counts from the begin of the run.
    """
    producer: int
    topic: str
    partition: int
    bytes: int
    """Gives the size of the record's value."""


BURST_EVERY_S, BURST_S = 4.0, 0.5
"""A burst begins every `BURST_EVERY_S` seconds of a load, the first one with the load, and lasts `BURST_S` seconds."""


def in_burst(since_s: float) -> bool:
    """Return whether a load that has bursts is in a burst `since_s` seconds after its begin."""
    return since_s % BURST_EVERY_S < BURST_S


class RecordSchedule(Protocol):
    """Yields the records that one producer is to send, in order of time. They are drawn at a rate
    (RandomRecordSchedule), or listed in the plan of a run (FixedRecordSchedule).
    """

    due_at: float
    """Gives the time of the next record, by the producer's env.mono(); infinite if no record is left."""

    def take(self) -> tuple[str, int, int]:
        """Return the next record as (topic, partition, bytes), and advance to the record after it."""

    def skip(self, now: float) -> int:
        """Skip the records that are overdue by too much to be sent, and return how many were skipped."""


class RandomRecordSchedule(RecordSchedule):
    """Draws records at a fixed rate, `interval_s` apart, from the Env's random stream. The first record is due within
    `first_within_s`.

    In bursts the records are at most `burst_interval_s` apart.
    """

    def __init__(
        self,
        env: Env,
        places: Sequence[Place],
        sizes: tuple[int, int],
        interval_s: float,
        first_within_s: float,
        burst_interval_s: float = math.inf,
    ) -> None:
        self._random = env.rng.random
        self._places = list(places)
        self._smallest, self._spread = sizes[0], sizes[1] - sizes[0] + 1
        self._interval_s = interval_s
        self._began, self._burst_interval_s = env.mono(), min(interval_s, burst_interval_s)
        self.due_at = self._began + self._random() * first_within_s

    @override
    def take(self) -> tuple[str, int, int]:
        self.due_at += self._burst_interval_s if in_burst(self.due_at - self._began) else self._interval_s
        topic, partition = self._places[int(self._random() * len(self._places))]
        return topic, partition, self._smallest + int(self._random() * self._spread)

    @override
    def skip(self, now: float) -> int:
        behind = now - self.due_at - BEHIND_LIMIT_S
        if behind <= 0:
            return 0
        skipped = int(behind / self._interval_s) + 1
        self.due_at += skipped * self._interval_s
        return skipped


class FixedRecordSchedule(RecordSchedule):
    """Yields given records at given times. No record is skipped: an overdue record is sent late."""

    def __init__(self, operations: Iterable[PlannedRecord], producer: int, began: float) -> None:
        mine = sorted((each for each in operations if each.producer == producer), key=attrgetter("at_s"))
        self._left = iter(mine)
        self._began = began
        self._next: PlannedRecord | None = None
        self.due_at = 0.0
        self._advance()

    def _advance(self) -> None:
        self._next = next(self._left, None)
        self.due_at = math.inf if self._next is None else self._began + self._next.at_s

    @override
    def take(self) -> tuple[str, int, int]:
        assert self._next is not None, "nothing is due"
        _, _, topic, partition, size = self._next
        self._advance()
        return topic, partition, size

    @override
    def skip(self, now: float) -> int:
        return 0
