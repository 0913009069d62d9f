"""Runs the parts of a night, one after the other, and records each as it ends."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from squall.chaos.errors import error_message, traceback_text
from squall.chaos.runtimes.real.processes.child import TETHER
from squall.chaos.toolchain.places import commit
from tests.night.parts import ROOT, Part, shown
from tests.night.record import FAILED, INTERRUPTED, NOT_HERE, Folder, Head, Line, to_play

ENDING_S = 180
"""Time limit for an interrupted part, which stops its brokers and containers in order."""
BY_CTRL_C = (130, -signal.SIGINT)
"""Exit codes of an interrupted command."""
NO_CODE = 3
"""Is recorded as the exit code of a part without a command that ran."""


def play(folder: Folder, parts: Mapping[str, Part], say: Callable[[str], None]) -> None:
    """Run the parts that have not ended. Raises KeyboardInterrupt after Ctrl-C, once the running part has ended and is
    recorded.
    """
    head, lines = folder.read()
    left = to_play(head, lines)
    for name in left:
        part = parts[name]
        number = f"[{head.parts.index(name) + 1} of {len(head.parts)}] {name}"
        try:
            line = _lacking(part, folder, head) or _play(part, folder, head, lambda text, n=number: say(f"{n}: {text}"))
        except Exception as error:
            line = _broken(part, folder, error)
        folder.note(line)
        say(f"{number}: {line.result} after {line.seconds / 60:.0f} min" + (f": {line.why}" if line.why else ""))
        if line.result == INTERRUPTED:
            raise KeyboardInterrupt


def _lacking(part: Part, folder: Folder, head: Head) -> Line | None:
    why = part.lacks()
    command = shlex.join(part.command(folder, head))
    return Line(part.name, NOT_HERE, NO_CODE, 0.0, commit(), command, _now(), why) if why else None


def _broken(part: Part, folder: Folder, error: Exception) -> Line:
    """Return the line of a part whose command could not be run because of an error of ours. The traceback goes into its
    log.
    """
    with suppress(OSError), folder.said(part.name).open("a") as log:
        log.write(traceback_text(error))
    why = f"the night could not play it: {error_message(error)[:300]}"
    return Line(part.name, FAILED, NO_CODE, 0.0, commit(), "", _now(), why)


def _play(part: Part, folder: Folder, head: Head, say: Callable[[str], None]) -> Line:
    command = part.command(folder, head)
    log = folder.said(part.name)
    say(f"{shlex.join(command)} (about {part.minutes} min; it prints to {shown(log)})")
    began, clock, now = _now(), time.monotonic(), commit()
    code = run_to_end(command, log)
    if code in BY_CTRL_C:
        result, why = INTERRUPTED, "interrupted"
    else:
        result, why = part.result(folder, code)
    # A command that could not do its work may have played no seed at all.
    next_seed = head.first_seed + part.seeds if part.seeds and code in part.codes else None
    seconds = round(time.monotonic() - clock, 1)
    return Line(part.name, result, code, seconds, now, shlex.join(command), began, why, next_seed)


def run_to_end(
    command: Sequence[str], log: Path, cwd: Path = ROOT, environment: Mapping[str, str] | None = None
) -> int:
    """Run a command and append its output to `log`. Returns its exit code; after Ctrl-C always one of BY_CTRL_C."""
    program, *arguments = command
    # Tethered: the command ends with this process, however that ends.
    tethered = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), str(cwd / program), *arguments]
    with log.open("ab") as out:
        process = subprocess.Popen(
            tethered,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        return process.wait()
    except KeyboardInterrupt:
        _end(process)
        return BY_CTRL_C[0]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGINT to all processes of a command's group, as Ctrl-C in a terminal does, and wait."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(ENDING_S)
        except ProcessLookupError:
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue
        return


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
