"""Runs tasks in parallel OS processes, forked from this one, so that they share its imports.

A worker gets its share of the tasks with the fork, sends each result through a pipe, and ends. So nothing needs a queue
or a thread, uncollected memory disappears with its process, and a worker that dies loses only one task.
"""

# Rejected: `multiprocessing.Pool`. Spawned processes load all modules again, which costs as much as a seed; it forks
# from a thread; and a worker that is killed leaves it waiting.

from __future__ import annotations

import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Generic, TypeVar

from squall.chaos.interrupts import ENDING

Task = TypeVar("Task")
Result = TypeVar("Result")

SHARE = 25
"""Limits how many tasks one process does."""
FAILED = 1


@dataclass(slots=True)
class _Worker(Generic[Task]):
    pid: int
    tasks: deque[Task]
    """Holds the tasks without a result yet, in order."""


def forked(
    work: Callable[[Task], Result], tasks: Iterable[Task], jobs: int, died: Callable[[Task, str], Result]
) -> Iterator[Result]:
    """Run `work` for each task in at most `jobs` processes at a time, and yield the results as they come.

    If `work` raises, its process ends. died: returns the result of a task whose process ended, given the reason in
    words. The other tasks of that process go to another process. If the iteration ends early, so do the processes.
    """
    left = deque(tasks)
    workers: dict[Connection, _Worker[Task]] = {}
    try:
        while left or workers:
            while left and len(workers) < jobs:
                # Ever smaller shares, so that the last process does not run much longer than the others.
                count = min(SHARE, max(1, len(left) // (2 * jobs)) if jobs > 1 else len(left))
                share = deque(left.popleft() for _ in range(count))
                results, pid = _fork(work, share, [*workers])
                workers[results] = _Worker(pid, share)
            for ready in wait([*workers]):
                assert isinstance(ready, Connection)
                try:
                    result = ready.recv()
                except (EOFError, OSError):  # an OSError if the process ended in the middle of a result
                    worker = workers.pop(ready)
                    why = _ended(ready, worker.pid)
                    if worker.tasks:
                        yield died(worker.tasks.popleft(), why)
                        left.extendleft(reversed(worker.tasks))
                else:
                    workers[ready].tasks.popleft()
                    yield result
    finally:
        for results, worker in workers.items():
            os.kill(worker.pid, signal.SIGKILL)
            _ended(results, worker.pid)


def _fork(
    work: Callable[[Task], Result], share: Iterable[Task], others: Iterable[Connection]
) -> tuple[Connection, int]:
    """Start a process that does the tasks of `share`. Return the pipe that gets their results, and the process's pid.

    others: the pipes of processes that already run, which the new process must close.
    """
    results, sent = Pipe(duplex=False)
    with _signals_blocked():
        pid = os.fork()
        if pid == 0:
            code = FAILED
            try:
                # Only the parent handles Ctrl-C, which a terminal sends to all processes.
                for number in ENDING:
                    signal.signal(number, signal.SIG_IGN)
                # If a worker kept a read end, no writer would get BrokenPipeError once the parent is gone.
                for each in (results, *others):
                    each.close()
                for task in share:
                    sent.send(work(task))
                code = 0
            except BrokenPipeError:
                pass  # the parent is gone
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                # Not `sys.exit`: the child must not flush the parent's buffers or run its exit handlers.
                os._exit(code)
    # As long as the parent has a write end open, the end of the worker is no end of the pipe.
    sent.close()
    return results, pid


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block signals during a `with` block: a process just forked would handle a signal that is meant for its parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended(results: Connection, pid: int) -> str:
    """Wait for the end of a worker, and say in words how it ended. results: the worker's pipe, which is closed here."""
    results.close()
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"its process ended with {code}"
