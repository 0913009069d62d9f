"""Starts Spark while a run is in progress, so that Spark can judge the run's history as soon as it is complete.

Starting and compiling takes longer than judging a small run. During the run this Spark gets only idle CPU time
(SCHED_IDLE), because brokers and clients are measured then. If anything is wrong with it, Spark is started as for any
other directory: prestarting saves time, and changes no verdict.
"""

# Judging takes half of the CPU once the history is there (10.5 instead of 20.4 s). Rejected: nice 19, which still
# takes a share from brokers; a start at the final reads, which take 1 to 3 s while 15 s of CPU are to be hidden.

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from squall.chaos.errors import HarnessError
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.spark import command_of
from squall.chaos.toolchain.cache import Say
from squall.chaos.toolchain.class_archive import class_archive_here
from squall.chaos.toolchain.java import java
from squall.checkers.stages import READY, stage_of

LOG, FOLDER = "spark.log", "spark-ahead"
FREE_MEMORY_MIB = 3 * 1024
"""Gives the free memory without which Spark is not started during a run, in MiB: Java's heap and its other memory."""
PATIENCE_S, POLL_S = 2.0, 0.02
"""Give how long a Spark that is not needed may take to end by itself, and how often it is checked, in s."""


class PrestartedSpark:
    """Represents a Spark process that is starting, or waits for the history of a run. The caller must always call
    `end`.
    """

    def __init__(self, directory: RunDirectory, command: list[str]) -> None:
        """Start the process. Call this on the main thread, because the process ends with the thread that starts it.
        Raises OSError.
        """
        self.log, self._folder = directory.path / LOG, directory.path / FOLDER
        # Spark's temporary files go into the run directory, so that a killed harness leaves none elsewhere.
        self._folder.mkdir()
        self._ended = False
        with self.log.open("wb") as out:
            # In a session of its own, so that the terminal's Ctrl-C reaches only the harness.
            self._program = subprocess.Popen(
                [*command, "--ahead"],
                env={**os.environ, "TMPDIR": str(self._folder.absolute())},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        _lower_priority(self._program.pid)

    def begin(self) -> subprocess.Popen[bytes] | None:
        """Tell the process that the history is complete. Return the process, or None if the caller should end it: it
        died, or it is not ready and cannot get more CPU time.
        """
        hurried = _raise_priority(self._program.pid)
        # Without a higher priority, a Spark that got no CPU so far would get none now.
        if self._program.poll() is not None or not (hurried or self._ready()):
            return None
        assert self._program.stdin is not None
        try:
            self._program.stdin.write(b"\n")
            self._program.stdin.close()
        except OSError:
            return None
        return self._program

    def _ready(self) -> bool:
        return any(stage_of(line) == READY for line in self.log.read_text(errors="replace").splitlines())

    def end(self) -> None:
        """End the process and all processes that it started. Idempotent."""
        if self._ended:
            return
        running = self._program.poll() is None
        if running:
            _raise_priority(self._program.pid)
        assert self._program.stdin is not None
        with suppress(OSError):
            self._program.stdin.close()
        if running:
            self._wait_until_gone(PATIENCE_S)
        # Java ends after the program that started it, and survives if that program was killed.
        with suppress(ProcessLookupError):
            os.killpg(self._program.pid, signal.SIGKILL)
            self._wait_until_gone(PATIENCE_S)
        self._program.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._ended = True

    def _wait_until_gone(self, limit_s: float) -> None:
        """Wait until Spark and all processes that it started are gone, but at most `limit_s`."""
        until = time.monotonic() + limit_s
        while self._alive() and time.monotonic() < until:
            time.sleep(POLL_S)

    def _alive(self) -> bool:
        """Return whether Spark, or any process that it started, is alive."""
        self._program.poll()
        try:
            os.killpg(self._program.pid, 0)
        except ProcessLookupError:
            return False
        return True


def prestart_spark(directory: RunDirectory, say: Say) -> PrestartedSpark | None:
    """Start Spark for a run that begins now. Return None without Java, or if there is too little memory for Spark
    beside the run.
    """
    if _free_memory_mib() < FREE_MEMORY_MIB:
        return None
    try:
        there = java(say)
        return PrestartedSpark(directory, command_of(directory.path, there, class_archive_here(there)))
    except (HarnessError, OSError):
        return None  # judging will say so


# ---------------------------------------------------------------------------------------------------------- its share


def _lower_priority(pid: int) -> None:
    """Give a process, and all processes that it starts, only idle CPU time."""
    with suppress(OSError):
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    # Sessions may be scheduled as groups: then the process's own class counts only inside of its session.
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("19")


def _raise_priority(pid: int) -> bool:
    """Give a process normal CPU time again. Return False if that is not allowed: then the process keeps running on idle
    CPU time.
    """
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("0")
    try:
        # Twice: a thread that is started meanwhile inherits the scheduling class of its parent.
        for _ in range(2):
            for thread in _threads(pid):
                with suppress(ProcessLookupError):
                    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        return False
    except OSError:
        pass  # it has ended
    return True


def _threads(pid: int) -> Iterator[int]:
    """Yield all threads of a process, and of the processes that it started."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield int(task.name)
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                yield from _threads(int(child))


# --------------------------------------------------------------------------------------------------------- its memory


def _free_memory_mib() -> float:
    """Return the free memory of this machine, or of the container in which this process runs, in MiB."""
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(meminfo["MemAvailable"].split()[0]) / 1024
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["inactive_file"]
    except (OSError, ValueError, KeyError):
        return free  # no limit
    return min(free, (limit - used + int(cached)) / (1 << 20))
