"""Implements `squall.broker.env.Env` in a simulated world: one Env for each incarnation of a node, and for each client.

Every call first checks whether the incarnation still lives, and raises NodeDead if not (nothing in a node may catch
that). Every waiting task continues only through `wake`, which delays the task while the node is paused. So a paused
node looks from outside as if SIGSTOP had stopped it between two system calls.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio
from trio._core._traps import WaitTaskRescheduled
from trio.lowlevel import current_task

from squall.broker.env import Env, Fs, NodeDead
from squall.broker.overriding import override
from squall.chaos.runtimes.sim.core import MONO_S, WALL_MS
from squall.chaos.runtimes.sim.kernel import ABORTED, GO_ON

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.core import SimCore
    from squall.chaos.runtimes.sim.kernel import TimerHandle
    from squall.chaos.runtimes.sim.links import SimTransport
    from squall.chaos.runtimes.sim.network import SimListener, SimNetwork

T = TypeVar("T")

MOST_SCOPES = 32
"""Limits how many time-outs (cancel scopes) an Env remembers. At that number the Env forgets those that have ended, and
raises the limit if many remain.
"""
FSYNC_S = 0.0004
FSYNC_MEAN_S = 0.0006
"""Is the mean, in s, of the exponentially distributed time that an fsync takes in addition to FSYNC_S."""


class SimClock:
    """Represents a node's own clock. Its wall clock differs from the true time by an offset. Both its wall clock and
    its monotonic clock run `rate` times as fast as the true time.
    """

    __slots__ = ("_anchor_node", "_anchor_true", "_kernel", "_never_bent", "_world", "offset_ms", "rate")

    def __init__(self, world: SimCore) -> None:
        self._world, self._kernel = world, world.kernel
        self.offset_ms = 0.0
        self.rate = 1.0
        self._anchor_true = self._anchor_node = world.mono
        self._never_bent = True
        """Is True while the clock has always shown the true time. Most clocks do, and they are read hundreds of times a
        second: this skips the calculation.
        """

    def mono(self) -> float:
        """Return the node's monotonic time in s, which runs at the clock's rate."""
        if self._never_bent:
            return MONO_S + self._kernel.now
        return self._anchor_node + (MONO_S + self._kernel.now - self._anchor_true) * self.rate

    def wall_ms(self) -> int:
        """Return wall-clock ms: true time, the offset, and the drift that the rate has added so far."""
        if self._never_bent:
            return WALL_MS + int(self._kernel.now * 1000)
        drifted_s = (self._world.mono - self._anchor_true) * (self.rate - 1.0)
        return WALL_MS + int(self._kernel.now * 1000 + self.offset_ms + drifted_s * 1000)

    @property
    def is_bent(self) -> bool:
        """Is True if the clock differs from the true time, or runs at another rate."""
        return bool(self.offset_ms) or self.rate != 1.0

    def set(self, offset_ms: float, rate: float) -> None:
        """Set the clock's offset and rate. Monotonic time stays continuous, and waits that have begun keep their end.
        The wall clock loses the drift that the previous rate had added.
        """
        self._anchor_node, self._anchor_true = self.mono(), self._world.mono
        self._never_bent = False
        self.offset_ms, self.rate = offset_ms, rate


class CallDelays(Protocol):
    """Gives the delays that faults add to the calls of a disk. An Env uses nothing else of the disk."""

    def delay_s(self, op: str) -> float:
        """Return the seconds that faults add to each call of `op`."""


def _free(op: str, what: str) -> None:
    """Allow every operation. This is the `gate` of a client, which no fault crashes."""


def _gone(op: str, what: str) -> None:
    raise NodeDead


class SimEnv(Env):
    """Runs a node or a client in virtual time. `host` is the address on which it listens. `source` selects the links
    that its connections use: those of a node (its id), or those of a client zone (its name), which is a group of
    clients with links of their own. If `source` is None, each connection uses the links of the client zone to which the
    dialled port belongs.
    """

    def __init__(
        self,
        world: SimCore,
        network: SimNetwork,
        name: str,
        incarnation: int,
        *,
        host: str,
        source: int | str | None,
        fs: Fs,
        disk: CallDelays,
        clock: SimClock | None = None,
        gate: Callable[[str, str], None] | None = None,
    ) -> None:
        self.name, self.incarnation, self.fs = name, incarnation, fs
        self.rng = world.rng("node", name, incarnation)
        self.world, self.host, self.source = world, host, source
        self._network = network
        self._kernel = world.kernel
        self.clock = clock or SimClock(world)
        self.alive = True
        self.paused = False
        self.links: dict[int, SimTransport] = {}
        self.listeners: list[SimListener] = []
        self._disk = disk
        self.gate = gate or _free
        """Is called before each operation with an effect outside (disk, network). It raises NodeDead if this
        incarnation is over, or if the node is to crash at this operation.
        """
        self._is_node = gate is not None
        self._cpu_rng = world.rng("cpu", name, incarnation)
        self._held: deque[trio.lowlevel.Task] = deque()
        self._naps: list[_PendingSleep] = []
        self._scopes: list[trio.CancelScope] = []
        """Lists time-outs that run, in the order in which they were made, and some that are over."""
        self._most_scopes = MOST_SCOPES
        """Limits the length of `_scopes`: at this length, time-outs that are over are removed."""
        self._stopped_scopes: list[tuple[trio.CancelScope, float]] = []
        self.wall_ms: Callable[[], int] = self.clock.wall_ms
        self.mono: Callable[[], float] = self.clock.mono

    # ------------------------------------------------------------------ waiting

    @types.coroutine
    def rest(self, message: WaitTaskRescheduled) -> Generator[WaitTaskRescheduled, Any, None]:
        """Suspend the task until `wake` is called for it. `message` holds the function to call if the task is
        cancelled.
        """
        told = yield message
        # trio itself has woken the task, to raise a cancellation in it.
        if told is not GO_ON:
            told.unwrap()
        if not self.alive:
            raise NodeDead

    def unhold(self, task: trio.lowlevel.Task) -> None:
        """Remove a cancelled task from the tasks that `resume` will continue, in case it was woken during the pause."""
        if self._held and task in self._held:
            self._held.remove(task)

    async def wait(self, register: Callable[[trio.lowlevel.Task], None], forget: Callable[[], None]) -> None:
        """Suspend the task until `wake` is called for it: `register` gets the task. If the task is cancelled first,
        `forget` is called.
        """
        if not self.alive:
            raise NodeDead
        task = current_task()

        def abort(_: Any) -> trio.lowlevel.Abort:
            forget()
            self.unhold(task)
            return ABORTED

        register(task)
        await self.rest(WaitTaskRescheduled(abort))

    def wake(self, task: trio.lowlevel.Task) -> None:
        """Let a suspended task continue: now, or when the pause ends if the node or client is paused."""
        if self.paused:
            self._held.append(task)
            return
        kernel = self._kernel
        if self._is_node:
            kernel.dirty_nodes.add(self.name)
        # As `trio.lowlevel.reschedule`, less what nobody here uses.
        assert task._next_send_fn is None, "a task is woken twice"
        task._next_send_fn, task._next_send = task.coro.send, GO_ON
        task._abort_func = None
        kernel.runnable.append(task)
        kernel.woken = True

    async def _wait_s(self, seconds: float) -> None:
        """Wait for `seconds` of virtual time, whatever the node's clock shows."""
        if not self.alive:
            raise NodeDead
        nap = self._naps.pop() if self._naps else _PendingSleep(self)
        nap.task = task = current_task()
        nap.timer = self._kernel.at(seconds, self.wake, task)
        try:
            await self.rest(nap.message)
        finally:
            self._naps.append(nap)

    @override
    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        # The node measures by its own clock, which may run at another rate than virtual time.
        return self._wait_s(seconds / self.clock.rate if seconds > 0.0 else 0.0)

    @override
    def timeout(self, seconds: float) -> trio.CancelScope:
        """Limit a block's time. The timeout's clock is frozen while the node is paused."""
        scope = trio.CancelScope(deadline=self._kernel.now + (seconds / self.clock.rate if seconds > 0.0 else 0.0))
        if len(self._scopes) >= self._most_scopes:
            # Weak references that call back when a scope is gone take longer than all else that a time-out does.
            self._scopes = [each for each in self._scopes if each._cancel_status or not each._has_been_entered]
            self._most_scopes = MOST_SCOPES + 2 * len(self._scopes)
        self._scopes.append(scope)
        return scope

    @override
    def signal(self) -> SimSignal:
        return SimSignal(self)

    def pause(self) -> None:
        """Hold every wait and every deadline, as SIGSTOP does."""
        self.paused = True
        for scope in self._scopes:
            # A stopped process handles no timer: the deadline takes effect after `resume`, if it has passed by then.
            if scope.deadline != inf:
                self._stopped_scopes.append((scope, scope.deadline))
                scope.deadline = inf

    def resume(self) -> None:
        """End the pause. Waits that ended during it become events of their own, in the order in which they ended.

        Deadlines that passed during the pause take effect at once.
        """
        self.paused = False
        for _ in self._held:
            self._kernel.at(0.0, self._let_go)
        for scope, deadline in self._stopped_scopes:
            scope.deadline = deadline
        self._stopped_scopes.clear()

    def _let_go(self) -> None:
        # A CPU limit may have stopped the node again meanwhile.
        if self._held and not self.paused:
            self.wake(self._held.popleft())

    # ------------------------------------------------------------------ the world

    @override
    async def cpu(self, fn: Callable[..., T], *args: Any) -> T:
        """Call the function in this task. The virtual time that the call costs passes partly before and partly after
        it.
        """
        took_s = FSYNC_S + self._cpu_rng.expovariate(1 / FSYNC_MEAN_S) + self._disk.delay_s("fsync")
        # At an unknown moment of an fsync the data becomes durable: a crash may come before it or after it.
        before_s = took_s * self._cpu_rng.random()
        await self._wait_s(before_s)
        result = fn(*args)
        await self._wait_s(took_s - before_s)
        return result

    @override
    async def listen(self, host: str, port: int) -> SimListener:
        self.gate("listen", f"{host}:{port}")
        await trio.lowlevel.checkpoint()
        return self._network.listen(self, port)

    @override
    async def connect(self, host: str, port: int) -> SimTransport:
        self.gate("connect", f"{host}:{port}")
        return await self._network.connect(self, host, port)

    @override
    def trace(self, event: str, **fields: Any) -> None:
        if not self.alive:
            raise NodeDead
        world = self.world
        world.traced(
            {"t": world.mono, "w": self.wall_ms(), "n": self.name, "i": self.incarnation, "e": event, **fields}
        )

    def revoke(self) -> None:
        """End this incarnation: from now on its code cannot reach the disk or the network."""
        self.alive = False
        self.gate = _gone
        self._kernel.all_dirty = True
        self.paused = False
        self._held.clear()
        self._stopped_scopes.clear()


class _PendingSleep:
    """Represents a task that sleeps until a virtual time. The object is reused for later sleeps."""

    __slots__ = ("_env", "message", "task", "timer")

    def __init__(self, env: SimEnv) -> None:
        self._env = env
        self.message = WaitTaskRescheduled(self._abort)
        self.task: trio.lowlevel.Task
        self.timer: TimerHandle

    def _abort(self, _: Any) -> trio.lowlevel.Abort:
        self.timer.cancel()
        self._env.unhold(self.task)
        return ABORTED


class SimSignal:
    """Implements `squall.broker.env.WakeupSignal` in virtual time: wakes the one task that waits for it, when it is set
    or at a time-out. The time-out is an event in the simulator's queue, so that no cancel scope is needed.
    """

    __slots__ = ("_env", "_rest", "_set", "_task", "_timer", "_waits")

    def __init__(self, env: SimEnv) -> None:
        self._env = env
        self._rest = WaitTaskRescheduled(self._abort)
        self._set = self._waits = False
        self._task: trio.lowlevel.Task | None = None
        self._timer: TimerHandle | None = None

    def set(self) -> None:
        """Wake the waiter, or let its next wait return at once."""
        self._set = True
        if self._waits:
            self._wake()

    async def wait(self, seconds: float = inf) -> bool:
        """Wait until the signal is set, at most `seconds`. Returns whether it was set."""
        env = self._env
        if not env.alive:
            raise NodeDead
        assert self._task is None, "a signal has one waiter"
        # While the node is paused, a signal that is set already must wait, too.
        if self._set and not env.paused:
            await trio.lowlevel.checkpoint()
        else:
            self._task = current_task()
            self._waits = True
            if self._set:
                self._wake()
            elif seconds < inf:
                self._timer = env._kernel.at(seconds / env.clock.rate, self._wake)
            try:
                await env.rest(self._rest)
            finally:
                self._task = None
        found, self._set = self._set, False
        return found

    def _wake(self) -> None:
        self._waits = False
        self._quiet()
        assert self._task is not None
        self._env.wake(self._task)

    def _abort(self, _: Any) -> trio.lowlevel.Abort:
        self._waits = False
        self._quiet()
        assert self._task is not None
        self._env.unhold(self._task)
        return ABORTED

    def _quiet(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
