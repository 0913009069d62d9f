"""Runs one instance of an application that reads, transforms and writes.

An instance is a group member. It runs one process after another: when one ends, the next begins with an id of its own
in the history (Jepsen's logical process). The instance does the actions that are due: it pauses, leaves in good order,
or crashes while it processes a poll.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import trio

from squall.broker.env import Env
from squall.workloads.control import ZombieRun
from squall.workloads.group_progress import GroupProgress, OperationSchedule
from squall.workloads.pipeline.process_run import InstanceProcess, InstanceSettings, ProcessCrashed
from squall.workloads.pipeline.steps import LEAVE, PAUSE, InstanceAction
from squall.workloads.pipeline.transactional import TransactionalInstanceProcess
from squall.workloads.scenario import ScenarioEnvironment

SUCCESSOR_PAUSE_S, SUCCESSOR_PAUSE_MAX_S = 0.1, 2.0
LAST_LIMIT_S = 3.0


class InstanceProcessFactory(Protocol):
    """Makes the processes of an instance. Each subclass of `InstanceProcess` is such a factory."""

    def __call__(
        self,
        env: Env,
        around: ScenarioEnvironment,
        settings: InstanceSettings,
        number: int,
        progress: GroupProgress,
        *,
        zombie: bool,
    ) -> InstanceProcess:
        """Make the next process of the instance with this number. `progress` tracks how far the instance's group has
        read. If `zombie`, the process will pause inside its only transaction.
        """


class ApplicationInstance:
    """Runs one instance of an application, one process after another. `number` is its number in the application,
    `handle` its number among all producers of the load, by which faults find it.
    """

    def __init__(
        self,
        env: Env,
        around: ScenarioEnvironment,
        process_factory: InstanceProcessFactory,
        settings: InstanceSettings,
        number: int,
        handle: int,
        agenda: OperationSchedule[InstanceAction],
        progress: GroupProgress,
    ) -> None:
        self._env, self._around, self._number = env, around, number
        self._process_factory, self._settings = process_factory, settings
        self._agenda, self._progress = agenda, progress
        self._handle = around.controls.producers[handle]
        self._end = around.readers.may_end
        self._absent_s = 0.0

    async def run(self) -> None:
        """Run one process after another until the harness lets the load's readers end, and with them this instance. The
        last process first completes the poll that it has begun, with its outputs and commit.
        """
        pause_s = SUCCESSOR_PAUSE_S
        async with trio.open_nursery() as nursery:
            while not self._end.is_set():
                self._absent_s = 0.0
                if (zombie_run := self._handle.pending_zombie) is not None:
                    done = await nursery.start(self._run_zombie_process, zombie_run)
                else:
                    done = await self._run_until_crash()
                pause_s = SUCCESSOR_PAUSE_S if done else min(pause_s * 2, SUCCESSOR_PAUSE_MAX_S)
                with self._env.timeout(self._absent_s or pause_s):
                    await self._end.wait()

    async def _run_zombie_process(self, zombie_run: ZombieRun, task_status: trio.TaskStatus[bool]) -> None:
        """Run one process that becomes a zombie. `task_status` gets True once the process is paused; then its successor
        runs beside it. It gets False if the process ended before it was paused.
        """
        await self._run_until_crash(zombie_run, lambda: task_status.started(True))
        if zombie_run.zombie < 0:
            task_status.started(False)  # it never came to stand still: the next one may
        else:
            zombie_run.over = True

    async def _run_until_crash(
        self, zombie_run: ZombieRun | None = None, follow: Callable[[], None] = lambda: None
    ) -> bool:
        """Run one process until it ends or a fault crashes it. Return whether the process has completely processed a
        poll and committed its positions.

        `zombie_run` is given if the process is to become a zombie. `follow` is called when the zombie pauses, and lets
        its successor begin.
        """
        scope = trio.CancelScope()
        of = (self._env, self._around, self._settings, self._number, self._progress)
        running = self._process_factory(*of, zombie=zombie_run is not None)
        self._handle.began(running.process, scope, lambda: running.subscriber.group_identity)
        with self._handle.process_lifetime():
            with scope:
                await running.run(
                    partial(self._live, running)
                    if zombie_run is None
                    else partial(self._run_zombie, running, zombie_run, follow)
                )
            self._handle.over(scope)
            running.over = True
            if scope.cancelled_caught or running.crashed:
                running.subscriber.crashed()
                self._around.counters.info += running.open
        # Outside of its lifetime: a client that waits for its successor has nothing in flight (`at_rest`).
        if scope.cancelled_caught or running.crashed:
            await self._handle.until_replaceable(self._end)
        self._around.recorder.flush()
        return running.committed > 0

    async def _run_zombie(self, running: InstanceProcess, zombie_run: ZombieRun, follow: Callable[[], None]) -> None:
        if not await running.begin():
            return
        self._handle.took_over(running.process)

        async def still() -> None:
            follow()
            await self._handle.until_woken(zombie_run, running.process, self._end)

        assert isinstance(running, TransactionalInstanceProcess), "nobody else is asked to (Traffic.zombies)"
        await running.run_as_zombie(zombie_run, still, self._end)
        await self._leave(running)

    async def _live(self, running: InstanceProcess) -> None:
        if not await running.begin():
            return
        self._handle.took_over(running.process)
        due: InstanceAction | None = None
        while not running.is_over and not self._end.is_set() and self._handle.pending_zombie is None:
            await self._handle.until_released(self._end)
            now = self._env.mono()
            self._agenda.skip(now)
            # The successor of a zombie waits for nothing, and does not go before it has done a transaction.
            zombie_paused = self._handle.has_paused_zombie
            if self._around.stop.is_set():
                due = None  # what is still to be done would keep its group from coming to rest after the load
            elif due is None and self._agenda.due_at <= now and not zombie_paused:
                due = self._agenda.take()
            if due is not None and due.do == PAUSE:
                running.subscriber.record_pause(PAUSE, due.number)
                await self._rest(due.number / 1000)
                due = None
            elif due is not None and due.do == LEAVE:
                self._absent_s = due.number / 1000
                break
            else:
                self._handle.done += 1
                ended = running.ended
                try:
                    due = None if await running.transform(due) else due
                except ProcessCrashed:
                    assert due is not None
                    running.crashed, self._absent_s = True, max(due.number, 1) / 1000
                    return
                if running.ended > ended:
                    self._handle.transaction_ended()
        await self._leave(running)

    async def _leave(self, running: InstanceProcess) -> None:
        # There is no membership left to end, but the lost partitions have to be recorded.
        if running.subscriber.out:
            running.subscriber.hear()
        else:
            with self._env.timeout(LAST_LIMIT_S):
                await running.subscriber.leave()

    async def _rest(self, for_s: float) -> None:
        """Wait for `for_s` seconds. End the wait early if a fault wants this instance's next process to become a
        zombie, or if the harness lets the load's readers end, and with them this instance.
        """
        with self._env.timeout(for_s):
            await self._handle.until_zombie_wanted(self._end)
