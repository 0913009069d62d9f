"""Holds what workloads with a group share: the schedule of a client's operations, and how far the group has read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from squall.workloads.client.cluster import Place
from squall.workloads.scenario import ScenarioEnvironment

BEHIND_LIMIT_S = 1.0
"""Drawn operations that are overdue by more than this number of seconds are skipped."""


class TimedOperation(Protocol):
    """Describes an operation with a time at which it is due."""

    @property
    def at_s(self) -> float:
        """Returns the time at which the operation is due, in seconds after the schedule's `began`."""


T = TypeVar("T", bound=TimedOperation)


class OperationSchedule(Generic[T]):
    """Yields one client's operations in order of time. `began` is env.mono() at the start of the run."""

    def __init__(self, coming: Iterator[T], began: float, *, late: bool) -> None:
        """Create the schedule. If `late`, overdue operations are done late; otherwise they are skipped."""
        self._coming, self._began, self._late = coming, began, late
        self._next = next(coming, None)

    @property
    def due_at(self) -> float:
        """Returns the time of the next operation, by env.mono(); infinite if no operation is left."""
        return math.inf if self._next is None else self._began + self._next.at_s

    def take(self) -> T:
        """Return the next operation, and advance to the operation after it."""
        taken = self._next
        assert taken is not None, "nothing is due"
        self._next = next(self._coming, None)
        return taken

    def skip(self, now: float) -> int:
        """Skip the operations that are overdue by too much, and return how many were skipped."""
        skipped = 0
        while not self._late and self.due_at < now - BEHIND_LIMIT_S:
            self.take()
            skipped += 1
        return skipped


@dataclass(slots=True)
class GroupProgress:
    """Tracks how far any member of the group has read. After all faults are healed, the harness waits until the group
    has read the records that were written after the healing.
    """

    around: ScenarioEnvironment
    places: list[Place]
    process: int = -1
    """Holds the history's process id of the first member process that began; -1 until one has. The harness treats the
    group as one reader with this id when it waits for readers.
    """
    positions: dict[int, int] = field(default_factory=dict)
    """Maps a partition (by its number in the history) to the group's position. The partitions of a topic that is
    created again have new numbers.
    """
    client: str = "squall"
    reports: bool = False
    """Is True if the group members are a user's program, which reports its positions to the harness. The harness then
    waits for the group only once the program has reported a position.
    """

    def begins(self, process: int) -> None:
        """Note that a member's process begins. The id of the first such process becomes the id of the whole group
        (`process`).
        """
        if self.process < 0:
            self.process = process
            if not self.reports:
                self.around.readers.begins(process, self.client, self.places)

    def moved(self, positions: Mapping[Place, int]) -> None:
        """Note the positions after a member's polls."""
        parts = self.around.recorder.partitions
        # A group goes back to its committed offsets after each rebalance: progress is the furthest that a member got.
        ahead = {place: at for place, at in positions.items() if at > self.positions.get(parts[place], -1)}
        if self.reports and ahead and not self.positions:
            self.around.readers.begins(self.process, self.client, self.places)
        self.positions |= {parts[place]: at for place, at in ahead.items()}
        if ahead:
            self.around.readers.moved(self.process, ahead)
