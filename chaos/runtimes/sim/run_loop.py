"""Runs trio's tasks in a loop that does less than trio's own, for simulations.

No task of a simulation waits for a file descriptor, there are no trio instruments, most passes of the loop run one
task, and the clock knows when the next event is due. So this loop leaves out the system call, six lookups in a
`UserDict`, the shuffling of single tasks, the counting of checkpoints, and guest mode. Each cancel scope needs two
generators less. Tasks run in the same order as in trio's own loop.

Determinism: trio's scheduler shuffles each batch of tasks with its own random generator; with
`_ALLOW_DETERMINISTIC_SCHEDULING` (which trio's Hypothesis plugin sets, too) the batch is sorted by creation first, and
the generator is seeded here. All this is private to trio. Therefore the version of trio is pinned, and tests compare
this loop with trio's own.
"""

# Rejected: a kernel of our own instead of trio's. The broker is built of nurseries and cancel scopes.

from __future__ import annotations

import os
import random
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import cycle
from math import inf
from operator import attrgetter
from typing import Any

import trio
import trio._core._run as _trio_run
from outcome import Error, Outcome, Value
from trio._core._traps import CancelShieldedCheckpoint, WaitTaskRescheduled

from squall.broker.overriding import override
from squall.chaos.errors import PreconditionError

TRIO = "0.35.0"
"""Is the version of trio whose loop this module copies, and whose order of tasks it keeps for each seed."""
ANY_TRIO = "SQUALL_ANY_TRIO"
"""Names an environment variable that permits another version of trio."""
LISTEN_EVERY = 256
"""Gives the number of passes of the loop between two checks of file descriptors. By such a check trio learns of a
signal that it could not handle when it arrived.
"""

NO_DEADLINE = (inf, 0, trio.CancelScope())
"""Is a scope without a deadline, used as the earliest entry of trio's heap of deadlines while that heap is empty."""

_created = attrgetter("_counter")


def check_trio(version: str = trio.__version__) -> None:
    """Raise unless trio has the version whose loop this is, or `ANY_TRIO` is set in the environment."""
    if version != TRIO and not os.environ.get(ANY_TRIO):
        raise PreconditionError(
            f"the simulator is made for trio {TRIO}, and {version} is installed: its loop replaces trio's. "
            f"Get it: pip install trio=={TRIO}; or try this one, which may repeat no seed or fail: {ANY_TRIO}=1"
        )


@contextmanager
def lean_trio(seed: str) -> Iterator[None]:
    """Make `trio.run` use this module's loop inside this block. The seed decides the order of tasks. Raises
    PreconditionError if another version of trio is installed (`check_trio`).
    """
    check_trio()
    assert isinstance(_trio_run._r, random.Random), "this trio schedules in another way"
    before = _trio_run._ALLOW_DETERMINISTIC_SCHEDULING, _trio_run._r, _trio_run.unrolled_run
    registering = trio.CancelScope._might_change_registered_deadline
    _trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    _trio_run._r = TaskOrderRandom(seed)
    _trio_run.unrolled_run = lean_run
    trio.CancelScope._might_change_registered_deadline = registers  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        _trio_run._ALLOW_DETERMINISTIC_SCHEDULING, _trio_run._r, _trio_run.unrolled_run = before  # type: ignore[misc]
        trio.CancelScope._might_change_registered_deadline = registering  # type: ignore[method-assign]


class TaskOrderRandom(random.Random):
    """Is trio's random generator for the order of tasks. It draws as `random.Random` does, except that it draws nothing
    to order a single task.
    """

    @override
    def shuffle(self, x: Any) -> None:
        if len(x) > 1:
            super().shuffle(x)


class _DeadlineUpdate:
    """Is a context manager that registers a cancel scope's changed deadline with trio, or removes it, when the block
    ends.
    """

    __slots__ = ("_scope",)

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        scope = self._scope
        old = scope._registered_deadline
        new = inf if scope._cancel_status is None or scope._cancel_called else scope._deadline
        if new != old:
            scope._registered_deadline = new
            deadlines = _trio_run.GLOBAL_RUN_CONTEXT.runner.deadlines
            if old != inf:
                deadlines.remove(old, scope)
            if new != inf:
                deadlines.add(new, scope)


def registers(scope: trio.CancelScope) -> _DeadlineUpdate:
    """Return a context manager for a change of a scope's deadline. Replaces trio's
    `CancelScope._might_change_registered_deadline`.
    """
    return _DeadlineUpdate(scope)


@trio.lowlevel.enable_ki_protection
def lean_run(
    runner: Any, async_fn: Any, args: tuple[Any, ...], host_uses_signal_set_wakeup_fd: bool = False
) -> Generator[float, Any, None]:
    """Run passes of the loop until the last task has ended, as trio's `unrolled_run` does."""
    try:
        assert not host_uses_signal_set_wakeup_fd, "a simulation is nobody's guest"
        assert not any(runner.instruments.values()), "a simulation cannot be instrumented"
        runner.instruments = {}
        runner.entry_queue.wakeup.wakeup_on_signals()
        runner.clock.start_clock()
        runner.init_task = runner.spawn_impl(runner.init, (async_fn, args), None, "<init>", system_task=True)
        yield from _passes(runner)
    except trio.TrioInternalError:
        raise
    except Exception as error:  # not a signal, which fails nothing
        raise trio.TrioInternalError("a pass of the simulation's loop failed") from error
    finally:
        runner.close()
        _trio_run.GLOBAL_RUN_CONTEXT.__dict__.clear()
        if runner.ki_pending:  # it came too late for any task
            interruption = KeyboardInterrupt()
            if isinstance(runner.main_task_outcome, Error):
                interruption.__context__ = runner.main_task_outcome.error
            runner.main_task_outcome = Error(interruption)


@trio.lowlevel.enable_ki_protection
def _passes(runner: Any) -> Generator[float, Any, None]:
    clock, deadlines, runnable, tasks = runner.clock, runner.deadlines, runner.runq, runner.tasks
    context, shuffle, parked = _trio_run.GLOBAL_RUN_CONTEXT.__dict__, _trio_run._r.shuffle, WaitTaskRescheduled
    idlers, heap = runner.waiting_for_idle, deadlines._heap
    for unheard in cycle(range(LISTEN_EVERY)):
        if not tasks:
            return
        if not runnable:
            assert not idlers, "a simulation is idle between any two of its events"
            # As trio's `Deadlines.next_deadline`, asked in each pass: most often there is nothing stale.
            deadline, _, scope = heap[0] if heap else NO_DEADLINE
            if deadline != scope._registered_deadline:
                deadline = deadlines.next_deadline()
            clock.deadline_to_sleep_time(deadline)
        if not unheard:
            _listen(runner, (yield 0))
        if heap and heap[0][0] <= clock.now:
            deadlines.expire(clock.now)
            heap = deadlines._heap  # nothing else puts another one there
        if not runnable:
            continue
        if len(runnable) > 1:
            batch = sorted(runnable, key=_created)
            runnable.clear()
            shuffle(batch)
            # trio takes the tasks from the end of the shuffled batch.
            batch.reverse()
        else:
            batch = [runnable.popleft()]
        for task in batch:
            context["task"] = task
            go_on, told = task._next_send_fn, task._next_send
            task._next_send_fn = task._next_send = None
            try:
                message = task.context.run(go_on, told)
            except BaseException as end:
                runner.task_exited(task, _ended_with(end))
                continue
            if message.__class__ is parked:
                task._abort_func = message.abort_func
                if task._cancel_status.effectively_cancelled:
                    task._attempt_delivery_of_any_pending_cancel()
            elif message is CancelShieldedCheckpoint:
                task._next_send_fn, task._next_send = task.coro.send, Value(None)
                runnable.append(task)
            else:
                runner.reschedule(task, TypeError(f"a task waits for {message!r}, which is not trio's"))
                task._next_send_fn = task.coro.throw
        # Events run outside of tasks, where `current_task` must fail.
        del context["task"]


def _listen(runner: Any, events: Any) -> None:
    """Handle signals that arrived. An interruption (Ctrl-C) is raised in the main task as soon as that task waits."""
    runner.io_manager.process_events(events)
    if runner.ki_pending and runner.main_task is not None:
        runner.main_task._attempt_delivery_of_pending_ki()


def _ended_with(end: BaseException) -> Outcome[object]:
    if isinstance(end, StopIteration):
        return Value(end.value)
    trace = end.__traceback__
    # Without the frame of this loop, as in trio.
    return Error(end.with_traceback(trace.tb_next if trace is not None else None))
