"""Provides virtual time for trio, and the one queue of all future events.

trio asks its clock how long to sleep only when no task can run. At that moment nothing in the simulated cluster is
running: the invariants are checked, and then the next event happens, or the next deadline is reached, without any real
sleep.

Garbage collection is off while a simulation runs: a finaliser must not run at a moment that depends on memory use. The
other measures for determinism are in `run_loop.py`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

import trio
import trio._core._run as _trio_run
from outcome import Value

from squall.broker.overriding import override
from squall.chaos.garbage import collect_what_was_left, garbage_waits
from squall.chaos.runtimes.sim.interruptions import interruption_of
from squall.chaos.runtimes.sim.run_loop import lean_trio

FINAL_EVENTS = 100_000
"""Is the largest number of events at one instant of virtual time. More events are taken for an endless loop, and end
the simulation with `Deadlock`.
"""


ABORTED = trio.lowlevel.Abort.SUCCEEDED
"""Is returned to trio by a task's abort function, and permits the cancellation: a wait for an event of the queue can be
cancelled at any time.
"""
GO_ON = Value(None)
"""Is the value with which every task of a simulation is woken."""


class Deadlock(Exception):
    """Reports that the simulation cannot continue: no event is due and no task waits for a time, or virtual time does
    not advance because ever more events are due at the same instant.
    """


# A list: the heap compares its first two items, and `cancel` empties it in place instead of searching the heap.
class TimerHandle(list[Any]):
    """Represents an event in the queue: its time, a number that orders events of the same time, the function and its
    arguments.
    """

    __slots__ = ()

    def cancel(self) -> None:
        """Take the event out of the queue. Idempotent."""
        self[2], self[3] = None, ()


class Kernel(trio.abc.Clock):
    """Is the clock and the event queue of a simulation. `now` is in virtual seconds, from 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self.after_event: list[Callable[[], None]] = []
        """Lists functions to call after each event that may have changed a node. They are called once no task can run
        any more.
        """
        self.woken = False
        """Is True if an event has woken a task: trio runs that task before the next event."""
        self.all_dirty = True
        """Is True if any node may have changed since this was last set to False."""
        self.dirty_nodes: set[str] = set()
        """Holds the names of the nodes that may have changed since this set was last cleared."""
        self.runnable: deque[trio.lowlevel.Task] = deque()
        """Is trio's queue of tasks that can run, while a simulation runs."""
        self._heap: list[TimerHandle] = []
        self._serials = count(1)
        self._scope: trio.CancelScope | None = None
        self._deadlocked = self._over = False
        self._at_once = 0
        self._trouble: BaseException | None = None

    def at(self, delay_s: float, fn: Callable[..., object], *args: Any) -> TimerHandle:
        """Call `fn(*args)` in `delay_s` virtual seconds. Calls at the same instant keep the order in which they were
        requested.
        """
        handle = TimerHandle((self.now + delay_s if delay_s > 0.0 else self.now, next(self._serials), fn, args))
        heappush(self._heap, handle)
        return handle

    def simulate(self, seed: int, main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run `main(*args)` under trio in virtual time and return its result. Raises the errors of `main`, and
        Deadlock.
        """
        collect_what_was_left()
        with garbage_waits(), lean_trio(repr((seed, "schedule"))):
            try:
                result = trio.run(self._guarded, main, args, clock=self)
            except BaseException:
                # What trio raises otherwise is a consequence of the interruption, which is raised below.
                if interruption_of(self._trouble) is None:
                    raise
        if self._trouble is not None:
            raise self._trouble
        if self._deadlocked:
            raise Deadlock("no event is due, and no task waits for a time")
        return result

    async def _guarded(self, main: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        self.runnable = _trio_run.GLOBAL_RUN_CONTEXT.runner.runq
        try:
            with trio.CancelScope() as self._scope:
                return await main(*args)
        finally:
            self._over = True

    # ------------------------------------------------------------------ trio's side

    @override
    def start_clock(self) -> None:
        pass

    @override
    def current_time(self) -> float:
        return self.now

    @override
    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Advance virtual time, and return 0.0, because trio must not really sleep. trio calls this only when every
        task waits.

        The due events are called in order until one has woken a task. If no more events are due before `deadline`, the
        time becomes `deadline`.
        """
        try:
            if self.all_dirty or self.dirty_nodes:
                for look in self.after_event:
                    look()
            heap = self._heap
            self.woken = False
            # Events that wake no task change no node. So nothing is checked between them.
            while heap:
                handle = heappop(heap)
                at, _, fn, args = handle
                if fn is None:
                    continue
                # Not `>=`: of an event and a time-out at the same instant, the event comes first.
                if at > deadline:
                    heappush(heap, handle)
                    break
                if at > self.now:
                    self.now, self._at_once = at, 0
                else:
                    self._one_more_at_once()
                fn(*args)
                if self.woken:
                    return 0.0
            self._reach(deadline)
        except BaseException as error:  # here it would end trio itself
            self.abandon(error)
        return 0.0

    def abandon(self, error: BaseException) -> None:
        """End the simulation: `simulate` raises this error."""
        self._trouble = self._trouble or error
        self._give_up()

    def _one_more_at_once(self) -> None:
        self._at_once += 1
        if self._at_once > FINAL_EVENTS:
            raise Deadlock(f"more than {FINAL_EVENTS} events at one instant")

    def _reach(self, deadline: float) -> None:
        """Advance the time to the next deadline; the caller has checked that no event is due before."""
        if deadline != math.inf:
            self.now = max(self.now, deadline)
            # Time-outs may now be due on any node, and trio does not say on which.
            self.all_dirty = True
        else:
            # After the end of `main` only system tasks are left, which may wait for ever.
            self._deadlocked = self._deadlocked or not (self._over or (self._scope and self._scope.cancel_called))
            self._give_up()

    def _give_up(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
