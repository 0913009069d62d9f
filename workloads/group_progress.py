"""Shares what workloads with a group need: what a client is to do and when, and the progress of the group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from squall.workloads.client.cluster import Place
from squall.workloads.scenario import ScenarioEnvironment

BEHIND_LIMIT_S = 1.0
"""Of what came due longer ago than this, nothing is made up for, where it is drawn."""


class TimedOperation(Protocol):
    """An operation."""

    @property
    def at_s(self) -> float:
        """Return when it is due, in seconds."""


T = TypeVar("T", bound=TimedOperation)


class OperationSchedule(Generic[T]):
    """Orders by time what one client is to do. `began`: when the run did, by env.mono()."""

    def __init__(self, coming: Iterator[T], began: float, *, late: bool) -> None:
        """late: what came due long ago is done all the same."""
        self._coming, self._began, self._late = coming, began, late
        self._next = next(coming, None)

    @property
    def due_at(self) -> float:
        """Return when the next one is due, by env.mono(); infinite if there are no more."""
        return math.inf if self._next is None else self._began + self._next.at_s

    def take(self) -> T:
        """The next one. The one after it becomes the next."""
        taken = self._next
        assert taken is not None, "nothing is due"
        self._next = next(self._coming, None)
        return taken

    def skip(self, now: float) -> int:
        """Give up what is too late to be made up for. How many."""
        skipped = 0
        while not self._late and self.due_at < now - BEHIND_LIMIT_S:
            self.take()
            skipped += 1
        return skipped


@dataclass(slots=True)
class GroupProgress:
    """Tracks how far the group has read, by any member: the harness waits for it after all faults are healed."""

    around: ScenarioEnvironment
    places: list[Place]
    process: int = -1
    """Under which it is known to the harness: its first one."""
    positions: dict[int, int] = field(default_factory=dict)
    """By dense partition id: a topic that is made again begins anew."""
    client: str = "squall"
    reports: bool = False
    """Its members say themselves what they have read: the harness waits for none that never says anything."""

    def begins(self, process: int) -> None:
        """A member's process begins."""
        if self.process < 0:
            self.process = process
            if not self.reports:
                self.around.readers.begins(process, self.client, self.places)

    def moved(self, positions: Mapping[Place, int]) -> None:
        """A member's polls have left it there."""
        parts = self.around.recorder.partitions
        ahead = {place: at for place, at in positions.items() if at > self.positions.get(parts[place], -1)}
        if self.reports and ahead and not self.positions:
            self.around.readers.begins(self.process, self.client, self.places)
        self.positions |= {parts[place]: at for place, at in ahead.items()}
        if ahead:
            self.around.readers.moved(self.process, ahead)
