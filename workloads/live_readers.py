"""A workload's own readers once its load is over: they go on until they have polled what was written after healing.

A cluster that takes writes again may still answer its readers with nothing: the connections, positions and sessions
that lived through the faults are not those of a fresh reader. So the harness waits for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import trio

from squall.broker.env import Env
from squall.workloads.client.cluster import Place

LOOK_EVERY_S = 0.1
NOWHERE = -1
"""The position of a reader that was not given its partitions yet."""


@dataclass(slots=True)
class _ReaderProgress:
    """One reader, and where its polls have left it."""

    client: str
    positions: dict[Place, int]
    moved_at: dict[Place, float] = field(default_factory=dict)
    """When each position last went forward, by env.mono(); missing: before anybody waited."""


@dataclass(frozen=True, slots=True)
class LaggingReader:
    """A reader that has not polled what it was waited for."""

    process: int
    client: str
    place: Place
    position: int
    """Where its last poll left it; -1: it never began to read."""
    goal: int
    """The position behind the record that it was waited for."""
    idle_s: float
    """How long, at the end, its position had not gone forward."""


class LiveReaders:
    """The readers of one run. `stay`: they outlive the load, until `let_go`."""

    def __init__(self, *, stay: bool = False) -> None:
        self._stay = stay
        self._readers: dict[int, _ReaderProgress] = {}
        self._now = 0.0
        self.settled = trio.Event()
        """Every operation of the load has its outcome."""
        self.may_end = trio.Event()
        """Readers end after their last poll."""

    # ------------------------------------------------------------------------------------------ by the workload

    def load_over(self) -> None:
        """Every operation has its outcome. Idempotent."""
        self.settled.set()
        if not self._stay:
            self.may_end.set()

    def begins(self, process: int, client: str, places: Sequence[Place]) -> None:
        """A reader begins, which is to read these partitions."""
        self._readers[process] = _ReaderProgress(client, dict.fromkeys(places, NOWHERE))

    def ends(self, process: int) -> None:
        """A reader is gone, and is not waited for."""
        self._readers.pop(process, None)

    def moved(self, process: int, positions: Mapping[Place, int]) -> None:
        """Note the positions of a reader after an assignment, a poll or a seek, for these partitions."""
        reader = self._readers[process]
        for place, position in positions.items():
            if position > reader.positions.get(place, NOWHERE):
                reader.moved_at[place] = self._now
            reader.positions[place] = position

    # ------------------------------------------------------------------------------------------- by the harness

    def __len__(self) -> int:
        return len(self._readers)

    def let_go(self) -> None:
        """They are needed no more."""
        self.may_end.set()

    async def reach(self, env: Env, goals: Mapping[Place, int], stuck_s: float, limit_s: float) -> list[LaggingReader]:
        """Wait until each reader is at or beyond the goal of each of its partitions.

        Those that are not: because their position did not go forward for `stuck_s`, or, with `idle_s` below that,
        because they had not come so far within `limit_s`.
        """
        began = self._now = env.mono()
        for reader in self._readers.values():
            reader.moved_at.clear()
        while True:
            behind = self._behind(goals, began)
            late = self._now - began >= limit_s
            if late or all(each.idle_s >= stuck_s for each in behind):
                return behind
            await env.sleep(LOOK_EVERY_S)
            self._now = env.mono()

    def _behind(self, goals: Mapping[Place, int], began: float) -> list[LaggingReader]:
        return [
            LaggingReader(
                process, reader.client, place, position, goals[place], self._now - reader.moved_at.get(place, began)
            )
            for process, reader in self._readers.items()
            for place, position in reader.positions.items()
            if place in goals and position < goals[place]
        ]
