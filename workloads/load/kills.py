"""Defines how a load's driver and executors are killed, and draws the kills from a seed. A kill waits until the load
reaches the named moment, so that each of them costs the load something.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING

from squall.workloads.transactions.operations import PlannedTransaction

if TYPE_CHECKING:
    import trio

    from squall.broker.env import Env
    from squall.workloads.group_progress import OperationSchedule
    from squall.workloads.recorder import Recorder

LOAD = -2
"""Identifies the load in the field `producer` of operations."""
KILL = "kill"
"""Marks, in the field `end` of an operation, a kill. Its `steps` name the moment."""
PLANNED, READ, IN_SINK = "driver planned", "driver read", "driver in-sink"
READING, DONE = "executor reading", "executor done"
MOMENTS = (PLANNED, READ, IN_SINK, READING, DONE)
"""Lists the moments at which a kill may hit. The driver dies after it has written a plan, after the tasks have read
their ranges, or after the sink has the batch and before the commit log has it. An executor dies in the middle of a
range, or when it has read a range and has not reported that.
"""
FIRST_S = 1.0
"""Gives the seconds without kills at the start of a load."""


def drawn(rng: Random, per_minute: int, begin_s: float, end_s: float) -> Iterator[PlannedTransaction]:
    """Yield the kills of a load between these times, at about so many per minute."""
    at_s = begin_s + FIRST_S
    while per_minute and (at_s := at_s + rng.uniform(0.2, 1.8) * 60 / per_minute) < end_s:
        yield PlannedTransaction(round(at_s, 4), LOAD, rng.choice(MOMENTS), 0, KILL)


def always(rng: Random, per_minute: int) -> Iterator[PlannedTransaction]:
    """Yield the kills of a load without an end."""
    return drawn(rng, per_minute, 0.0, math.inf)


def of_load(operations: Iterable[PlannedTransaction]) -> Iterator[PlannedTransaction]:
    """Return the kills among a plan's operations, in order of time."""
    return iter(sorted(each for each in operations if each.end == KILL))


def wrong(operation: PlannedTransaction) -> str:
    """Return why this is no valid kill; empty if it is valid."""
    if operation.steps not in MOMENTS:
        return f"steps {operation.steps!r} of a kill: one of {', '.join(MOMENTS)}"
    if operation.producer != LOAD or operation.bytes:
        return f"end {KILL!r}: producer {LOAD} and 0 bytes belong to it"
    return ""


class PendingKills:
    """Holds the kills that are due and have not hit yet. A batch is hit once at most: on slow brokers a batch that is
    hit again and again would look like a stuck reader. After the load's `stop` none hits any more, because the load
    must come to the end of its topics.
    """

    def __init__(
        self, agenda: OperationSchedule[PlannedTransaction], recorder: Recorder, env: Env, stop: trio.Event
    ) -> None:
        self._agenda, self._recorder, self._env, self._stop = agenda, recorder, env, stop
        self._due: list[str] = []
        self._last_hit = -1

    def hit(self, moment: str, process: int, batch: int) -> bool:
        """Return whether a kill hits `process` at this moment of this batch. The history gets an event then."""
        now = self._env.mono()
        self._agenda.skip(now)
        while self._agenda.due_at <= now:
            self._due.append(self._agenda.take().steps)
        if moment not in self._due or batch == self._last_hit or self._stop.is_set():
            return False
        self._due.remove(moment)
        self._last_hit = batch
        self._recorder.event("load_killed", p=process, moment=moment, batch=batch)
        return True
