"""Decides what a producer hands over next, and when: drawn at a rate, or given."""

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
"""Of what came due longer ago than this and could not be handed over, nothing is made up for, where it is drawn."""


class PlannedRecord(NamedTuple):
    """Describes one record of one producer."""

    at_s: float
    """In a plan: since the load with faults began, negative in the warm-up. For an agenda: since the run did."""
    producer: int
    topic: str
    partition: int
    bytes: int
    """Of the record's value."""


BURST_EVERY_S, BURST_S = 4.0, 0.5
"""When a burst begins, counted from a load's begin, and how long it is."""


def in_burst(since_s: float) -> bool:
    """Return whether a load that has bursts has one `since_s` seconds after it began."""
    return since_s % BURST_EVERY_S < BURST_S


class RecordSchedule(Protocol):
    """One producer's records to come."""

    due_at: float
    """When the next one is due, by the producer's env.mono(); infinite where there are no more."""

    def take(self) -> tuple[str, int, int]:
        """The next one: topic, partition, bytes. The one after it becomes the next."""

    def skip(self, now: float) -> int:
        """Give up what is too late to be made up for. How many."""


class RandomRecordSchedule(RecordSchedule):
    """Records at a rate, from the Env's random stream: `interval_s` apart, the first one within `first_within_s`.

    `burst_interval_s`: in bursts they are no further apart.
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
    """Chosen records at chosen times. None is skipped: what could not be handed over in time is handed over late."""

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
