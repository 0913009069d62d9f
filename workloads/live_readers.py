"""Tracks a workload's own readers after its load: they continue until they have polled the records written after
healing.

A cluster that accepts writes again may still return nothing to these readers: their connections, positions and sessions
lived through the faults, unlike those of a fresh reader. Therefore the harness waits for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import trio

from squall.broker.env import Env
from squall.workloads.client.cluster import Place

LOOK_EVERY_S = 0.1
NOWHERE = -1
"""Is the position of a reader that was not assigned its partitions yet."""


@dataclass(slots=True)
class _ReaderProgress:
    """Holds the position of one reader in each of its partitions, after its latest poll."""

    client: str
    positions: dict[Place, int]
    moved_at: dict[Place, float] = field(default_factory=dict)
    """Maps a partition to the time, by env.mono(), at which its position last advanced. Partitions without an advance
    since the latest call of `LiveReaders.reach` are missing.
    """


@dataclass(frozen=True, slots=True)
class LaggingReader:
    """Describes a reader that has not reached the awaited position of a partition."""

    process: int
    client: str
    place: Place
    position: int
    """Gives the reader's position after its latest poll; -1 if it never began to read."""
    goal: int
    """Gives the position after the record that the reader must poll."""
    idle_s: float
    """Gives the seconds since the position last advanced, or since the wait began, at the end of the wait."""


class LiveReaders:
    """Tracks how far the readers of one run have read, so that the harness can wait for them. If `stay` is True, the
    readers continue after the load until `let_go` is called; otherwise they end with the load.
    """

    def __init__(self, *, stay: bool = False) -> None:
        self._stay = stay
        self._readers: dict[int, _ReaderProgress] = {}
        self._now = 0.0
        self.settled = trio.Event()
        """Is set once every operation of the load has its outcome."""
        self.may_end = trio.Event()
        """Is set when the harness lets the readers end. Each completes the poll that it has begun."""

    # ------------------------------------------------------------------------------------------ by the workload

    def load_over(self) -> None:
        """Set `settled`, because every operation of the load has its outcome. Unless `stay` was given, the readers may
        end now, too. Idempotent.
        """
        self.settled.set()
        if not self._stay:
            self.may_end.set()

    def begins(self, process: int, client: str, places: Sequence[Place]) -> None:
        """Add a reader of these partitions to those for which the harness waits. `process` is its id in the history."""
        self._readers[process] = _ReaderProgress(client, dict.fromkeys(places, NOWHERE))

    def ends(self, process: int) -> None:
        """Remove a reader that has ended, so that the harness does not wait for it."""
        self._readers.pop(process, None)

    def moved(self, process: int, positions: Mapping[Place, int]) -> None:
        """Remember a reader's positions in these partitions, after an assignment, a poll or a seek."""
        reader = self._readers[process]
        for place, position in positions.items():
            if position > reader.positions.get(place, NOWHERE):
                reader.moved_at[place] = self._now
            reader.positions[place] = position

    # ------------------------------------------------------------------------------------------- by the harness

    def __len__(self) -> int:
        return len(self._readers)

    def let_go(self) -> None:
        """Let the readers end: the harness does not need them any more."""
        self.may_end.set()

    async def reach(self, env: Env, goals: Mapping[Place, int], stuck_s: float, limit_s: float) -> list[LaggingReader]:
        """Wait until each reader has reached the goal of each of its partitions. Return one entry for each position
        that is still behind its goal.

        `goals` maps a partition to the position that readers must reach. The wait ends early once none of the positions
        behind their goals has advanced for `stuck_s`, and at the latest after `limit_s`. An entry whose `idle_s` is
        below `stuck_s` means that its reader still advanced when the limit came.
        """
        began = self._now = env.mono()
        for reader in self._readers.values():
            reader.moved_at.clear()
        while True:
            behind = self._behind(goals, began)
            # A reader that still advances gets the whole limit; a stuck one would only waste the run's time.
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
