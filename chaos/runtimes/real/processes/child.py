"""Starts, watches and ends one process that cannot outlive the harness."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import trio

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.real.proc import run_state
from squall.chaos.runtimes.real.processes.registry import MARK, RunRegistration

TETHER = Path(__file__).with_name("tether.py")
POLL_S = 0.005
LAST_WORDS_BYTES = 2000


class ChildProcess:
    """Represents an OS process that the run started. It has a session of its own, so that Ctrl-C in the terminal
    reaches only the harness.
    """

    def __init__(self, what: str, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.what = what
        self.pid = popen.pid
        self.log = log
        self._popen = popen

    @property
    def code(self) -> int | None:
        """Returns the exit code, negative for a signal; None while the process runs."""
        return self._popen.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; do nothing if the process has ended. The signal cannot hit another process: the pid of an
        ended process is reused only after `code` has returned its exit code.
        """
        self._popen.send_signal(number)

    async def ended(self, timeout_s: float) -> int | None:
        """Wait for the end. Returns the exit code, or None if the process still runs after `timeout_s`."""
        await until(lambda: self.code is not None, timeout_s)
        return self.code

    async def in_state(self, letters: str, timeout_s: float) -> str | None:
        """Wait until the kernel's state letter of the process is one of `letters`, such as "T" for stopped or "S" for
        sleeping; "-" means that the process is gone. Waits at most `timeout_s`. Returns the letter at the end of the
        wait, or None if the process is gone.
        """
        await until(lambda: (run_state(self.pid) or "-") in letters, timeout_s)
        return run_state(self.pid)

    def last_words(self) -> str:
        """Return the end of the process's log."""
        return tail(self.log)


def start(
    what: str, arguments: Sequence[str], *, log: Path, registration: RunRegistration, env: Mapping[str, str]
) -> ChildProcess:
    """Start a program that the kernel kills when this thread ends (`tether`). The program's output is appended to
    `log`, and its pid is noted in the run's registry file. what: a description of the process, such as "broker 1". env:
    variables that are added to the harness's own.

    Call it on the main thread. Raises HarnessError if the program cannot be started.
    """
    assert threading.current_thread() is threading.main_thread(), (
        "a tethered process ends with the thread that starts it"
    )
    # -I and -S: the script needs no packages, starts faster without them, and obeys no variable of the user.
    command = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *arguments]
    try:
        with log.open("ab") as output:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env, MARK: registration.run},
                start_new_session=True,
            )
    except OSError as error:
        raise HarnessError(f"{what} could not be started: {error}") from error
    registration.add(what, popen.pid)
    return ChildProcess(what, popen, log)


async def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition that no event announces, checking it often. Returns False if it does not hold after
    `timeout_s`.
    """
    with trio.move_on_after(timeout_s):
        while not condition():
            await trio.sleep(POLL_S)
        return True
    # Once more: it may have come true in the last pause.
    return condition()


def tail(path: Path) -> str:
    """Return the last 2000 bytes of a text file; empty if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LAST_WORDS_BYTES))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
