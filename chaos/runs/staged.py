"""Runs a program that logs the stages of its work (`squall.checkers.stages`), and displays the current stage."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from squall.checkers.stages import stage_of

LOOK_S = 0.25
"""Gives the pause between two readings of the log, in s."""
FIRST = "start"
"""Is the stage to display until the program logs its first stage."""


Show = Callable[[str], AbstractContextManager[None]]
"""Displays the named stage until the block ends."""


def run_staged(command: Sequence[str], log: Path, limit_s: float, show: Show) -> int:
    """Run `command` with its output going to `log`, display each stage with `show`, and return the exit code.

    Kill the program after `limit_s` seconds, and raise subprocess.TimeoutExpired. The program never outlives this call.
    """
    with log.open("wb") as out, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as program:
        return follow(program, log, limit_s, show)


def follow(program: subprocess.Popen[bytes], log: Path, limit_s: float, show: Show) -> int:
    """Display the stages that a running program writes to `log`, and return the program's exit code when it ends. After
    `limit_s` seconds kill the program, and raise subprocess.TimeoutExpired.
    """
    try:
        return _followed(program, log, limit_s, show)
    except BaseException:
        program.kill()
        raise


def _followed(program: subprocess.Popen[bytes], log: Path, limit_s: float, show: Show) -> int:
    until, stage = time.monotonic() + limit_s, FIRST
    with log.open("rb") as lines:
        while True:
            with show(stage):
                while (newest := _newest(lines)) in ("", stage):
                    try:
                        return program.wait(min(LOOK_S, max(until - time.monotonic(), 0)))
                    except subprocess.TimeoutExpired:
                        if time.monotonic() >= until:
                            raise
            stage = newest


def _newest(lines: IO[bytes]) -> str:
    """Return the newest of the stages that were logged since the previous call; empty if there are none."""
    stages = [stage_of(line.decode(errors="replace")) for line in lines.readlines()]
    return next(filter(None, reversed(stages)), "")
