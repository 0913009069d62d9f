"""Represents a simulated node: one disk and one clock, and the incarnations (starts) of its broker, one after the
other.

A node dies in this order: the incarnation is revoked, so that nothing its code still does reaches the world; the disk
loses its unsynced changes; the connections end; only then are the tasks cancelled. In another order, a `finally` block
could act for a node that is dead.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import trio

from squall.broker.config import load_config
from squall.broker.env import NodeDead
from squall.broker.node import Node
from squall.broker.real_clock import SAY_INTERVAL_S
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import CrashOp, Evidence, NodeExit, NodeState
from squall.chaos.runtimes.sim.disk import SimDisk
from squall.chaos.runtimes.sim.env import SimClock, SimEnv
from squall.chaos.runtimes.sim.interruptions import interruption_of
from squall.chaos.runtimes.sim.kernel import TimerHandle
from squall.chaos.runtimes.sim.slowness import CpuShareLimits

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.core import SimCore
    from squall.chaos.runtimes.sim.links import SimTransport
    from squall.chaos.runtimes.sim.network import SimNetwork

CRASH_OPS: Mapping[str, CrashOp] = {
    "fsync": "fsync",
    "append": "write",
    "pwrite": "write",
    "truncate": "write",
    "send": "send",
}
DATA = "/data"


class _CrashPoint:
    """Describes a crash that `SimNode.crash_at` armed. op: the kind of call before which the node dies ("fsync",
    "write" or "send"); nth: it dies before the nth such call, counted from the arming.
    """

    def __init__(self, op: CrashOp, nth: int) -> None:
        self.op, self.left = op, nth
        self.at: str | None = None
        self.struck = trio.Event()


class SimNode:
    """Simulates one node over all its incarnations. properties: the broker settings of all incarnations. Raises
    ConfigError if a setting is invalid.
    """

    def __init__(self, world: SimCore, network: SimNetwork, node_id: int, properties: Mapping[str, str]) -> None:
        self._world, self._network = world, network
        self.id = node_id
        self.name = f"broker-{node_id}"
        self.incarnation = 0
        self.state = NodeState.DOWN
        self.node: Node | None = None
        """Is the running broker; None while the node is down."""
        self.disk = SimDisk(world.rng("disk", self.name))
        self.clock = SimClock(world)
        self.env: SimEnv | None = None
        self.slowness = CpuShareLimits(world.kernel, self)
        self.exits: list[NodeExit] = []
        self.words: list[str] = []
        self._config = load_config(properties)
        self._crash: _CrashPoint | None = None
        self.calls = dict.fromkeys(CRASH_OPS.values(), 0)
        """Counts the node's fsyncs, writes and sends, over all its incarnations."""
        self._clock_timer: TimerHandle | None = None
        self._orphans: list[SimTransport] = []
        self._scope = trio.CancelScope()
        self._stop = trio.Event()
        self._ready = trio.Event()
        self._ended = trio.Event()

    @property
    def pid(self) -> int:
        """Returns a substitute for a process id: a new number at each start."""
        return self.id * 1000 + self.incarnation

    # ------------------------------------------------------------------ life

    def launch(self) -> Evidence:
        """Start a new incarnation on the files that the disk has. Evidence: pid, simulated (True), incarnation,
        asked_ns (the time of this call, in ns).
        """
        if self.state is not NodeState.DOWN:
            raise HarnessError(f"broker {self.id} is {self.state.value} already")
        self.incarnation += 1
        self._world.kernel.all_dirty = True
        self.state = NodeState.RUNNING
        for link in self._orphans:
            link.broken()  # the machine that comes back knows nothing of these connections
        self._orphans.clear()
        self._scope, self._stop, self._ready, self._ended = trio.CancelScope(), trio.Event(), trio.Event(), trio.Event()
        env = self.env = SimEnv(
            self._world,
            self._network,
            self.name,
            self.incarnation,
            host=self.name,
            source=self.id,
            fs=self.disk.mount(self._gate),
            disk=self.disk,
            clock=self.clock,
            gate=self._gate,
        )
        trio.lowlevel.spawn_system_task(self._live, env, self._scope, self._stop, self._ready, self._ended)
        return {"pid": self.pid, "simulated": True, "incarnation": self.incarnation, "asked_ns": self._world.now_ns()}

    async def _live(
        self, env: SimEnv, scope: trio.CancelScope, stop: trio.Event, ready: trio.Event, ended: trio.Event
    ) -> None:
        """Run one incarnation to its end. Raises nothing: if the broker ended by itself, adds the reason to
        `self.exits`.

        scope: is cancelled to kill the broker; stop: is set to shut it down; ready: set here once it serves clients;
        ended: set here at its end.
        """
        failure: BaseException | None = None
        try:
            with scope:
                node = self.node = Node(env, self._config)
                await node.run(stop, _ReadyStatus(ready.set))
        except BaseException as error:
            failure = error
            # A signal interrupts whatever runs just then. That is often a broker, which has not failed.
            if (interruption := interruption_of(error)) is not None:
                self._world.kernel.abandon(interruption)
        # Otherwise `die` has done all this, and the node may have been started again since.
        if env.alive:
            env.revoke()
            self.disk.kill()
            for link in list(env.links.values()):
                link.finish()
            for listener in env.listeners:
                listener.close()
            self.state, self.node = NodeState.DOWN, None
            if failure is not None or not stop.is_set():
                self._told_exit(failure)
        # A killed broker has failed while its tasks were cancelled. That is for its log, and no exit.
        elif failure is not None and not _only_death(failure):
            self.words += traceback.format_exception(failure)
        ended.set()

    def _told_exit(self, failure: BaseException | None) -> None:
        said = "".join(traceback.format_exception(failure)) if failure is not None else "it ended unasked"
        self.words.append(said)
        self.exits.append(NodeExit(self.id, self.incarnation, 1, self._world.now_ns(), _last_words(failure, said)))

    async def wait_ready(self, limit_s: float) -> int:
        """Wait until the broker serves clients. Returns that moment in ns. Raises HarnessError if it ends first or
        takes too long.
        """
        incarnation = self.incarnation
        with trio.move_on_after(limit_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_either, self._ready, nursery.cancel_scope)
                nursery.start_soon(_either, self._ended, nursery.cancel_scope)
        if self._ready.is_set():
            return self._world.now_ns()
        if self._ended.is_set() or self.incarnation != incarnation:
            raise HarnessError(f"broker {self.id} ended before it was ready: {(self.words or ['it was killed'])[-1]}")
        raise HarnessError(f"broker {self.id} was not ready within {limit_s:g} s")

    def die(self, *, power: bool = False) -> Evidence:
        """End the node at once. power: the node loses power, so unsynced data may be lost, and peers get no message.
        Returns what the disk lost, such as bytes_lost (`SimDisk.power_loss`); empty without `power`.
        """
        env, self.env = self.env, None
        if env is None or self.state is NodeState.DOWN:
            raise HarnessError(f"broker {self.id} is down")
        env.revoke()
        lost = self.disk.power_loss() if power else {}
        if not power:
            self.disk.kill()
        for link in list(env.links.values()):
            if power:
                # The peer hears of the loss from its own time-outs, or once the machine is back (`launch`).
                self._orphans.append(link.out.sink)
            link.finish(silent=power)
        for listener in env.listeners:
            listener.close()
        self.state, self.node = NodeState.DOWN, None
        self._scope.cancel()
        return lost

    async def stop(self, grace_s: float) -> bool:
        """Shut the node down, and kill it if that takes longer than `grace_s`. Returns whether it shut down in time."""
        self._stop.set()
        self._world.kernel.all_dirty = True
        with trio.move_on_after(grace_s):
            await self._ended.wait()
        if self.state is NodeState.DOWN:
            return True
        self.die()
        return False

    def pause(self) -> None:
        """Pause the node, as SIGSTOP does."""
        assert self.env is not None
        self.env.pause()
        self.state = NodeState.PAUSED

    @property
    def is_held(self) -> bool:
        """Is True if the node is stopped at this moment, by a pause or by a CPU limit."""
        return self.env is not None and self.env.paused

    def resume(self) -> None:
        """End the node's pause."""
        assert self.env is not None
        self.state = NodeState.RUNNING
        if not self.slowness.holds:
            self.env.resume()

    def hold(self, *, on: bool) -> None:
        """Stop the node for a CPU limit, or let it continue. Does nothing while the node is down; a paused node stays
        paused.
        """
        if self.state is NodeState.RUNNING and self.env is not None:
            self.env.pause() if on else self.env.resume()

    # ------------------------------------------------------------------ the clock

    def bend_clock(self, offset_ms: float, rate: float) -> None:
        """Set the offset of the node's wall clock, and the rate at which the node's time runs (1.0: as true time). The
        node's trace reports the clock at once, and every half second while it differs from the true time.
        """
        self.clock.set(offset_ms, rate)
        self._say_clock()

    def _say_clock(self) -> None:
        if self._clock_timer is not None:
            self._clock_timer.cancel()
            self._clock_timer = None
        if self.env is not None and self.state is NodeState.RUNNING:
            self.env.trace("clock", offset_ms=self.clock.offset_ms, rate=self.clock.rate)
        if self.clock.is_bent:
            # A timer of the kernel and not a task of the node: the clock stays bent while the node is down.
            self._clock_timer = self._world.kernel.at(SAY_INTERVAL_S, self._say_clock)

    # ------------------------------------------------------------------ crash points

    def crash_at(self, op: CrashOp, nth: int) -> _CrashPoint:
        """Arm a crash just before the nth call of `op`, counted from now."""
        if self._crash is not None:
            raise HarnessError(f"node {self.id} is going to crash at a {self._crash.op} already")
        self._crash = _CrashPoint(op, nth)
        return self._crash

    def forget_crash(self) -> None:
        """Cancel the crash that `crash_at` armed, if it has not happened yet."""
        self._crash = None

    def _gate(self, op: str, what: str) -> None:
        kind = CRASH_OPS.get(op)
        if kind is None:
            return
        self.calls[kind] += 1
        point = self._crash
        if point is None or kind != point.op:
            return
        point.left -= 1
        if point.left <= 0:
            self._crash = None
            point.at = what
            point.struck.set()
            self.die()
            raise NodeDead


class _ReadyStatus:
    """Serves as the `task_status` of a Node, and records that the Node has started."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done

    def started(self, value: object = None) -> None:
        """Report that the broker serves clients."""
        self._done()


async def _either(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _only_death(error: BaseException) -> bool:
    """Return whether the error reports nothing except that the incarnation is over (NodeDead)."""
    if isinstance(error, BaseExceptionGroup):
        return all(_only_death(each) for each in error.exceptions)
    return isinstance(error, NodeDead | trio.Cancelled)


def _last_words(failure: BaseException | None, said: str) -> str:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return f"{said}\n{type(failure).__name__}: {failure}" if failure is not None else said
