"""The commands that a run prints are executed, and do what they claim."""

from __future__ import annotations

import json
import re
import shlex
import signal
import tomllib
from pathlib import Path

import pytest

from squall.chaos.typed import PROGRAM, shortened
from tests.live.shell.conftest import Squall

pytestmark = pytest.mark.night("whole runs; the gate has one")

RUN = ("run", "--seed", "7", "--time", "2", "--warmup", "1", "--faults", "none", "--rate", "200")
PRINTED = re.compile(rf"({re.escape(str(PROGRAM))} [^\n`]+)")


def typed(folder: Path, line: str, started: list[Squall]) -> Squall:
    """Start a command in this folder, as it was printed."""
    words = shlex.split(line)
    assert words[0] == str(PROGRAM)
    squall = Squall(folder, words[1:])
    started.append(squall)
    return squall


def test_the_command_that_repeats_a_run_repeats_it_wherever_somebody_stands(
    tmp_path: Path, started: list[Squall], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A valid run prints no command: there is no reason to repeat it.
    squall = Squall(tmp_path, (*RUN, "--time", "8", "--faults", "pause", "--expect", "loss"))
    started.append(squall)
    assert squall.code() == 2, squall.said()
    first = (tmp_path / "runs/latest").resolve()
    printed = set(PRINTED.findall(squall.said()))
    command = json.loads((first / "run.json").read_text())["command"]
    monkeypatch.chdir(tmp_path)
    assert printed == {shortened(command)}, "short in the folder of the run"
    assert command in (first / "report.html").read_text()
    (tmp_path / "elsewhere").mkdir()
    again = typed(tmp_path / "elsewhere", command, started)
    assert again.code() == 2, again.said()
    second = (tmp_path / "elsewhere/runs/latest").resolve()
    plans = [tomllib.loads((path / "plan.toml").read_text()) for path in (first, second)]
    assert plans[0] == plans[1]
    assert plans[0]["probe_ms"] > 0, "measured by the first run, and read by the second one"


def test_what_was_recorded_of_an_interrupted_run_is_judged_by_the_command_that_it_prints(
    tmp_path: Path, started: list[Squall]
) -> None:
    squall = Squall(tmp_path, (*RUN[:4], "60", *RUN[5:]))
    started.append(squall)
    squall.until("] load")
    squall.send(signal.SIGTERM)
    assert squall.code() == 130, squall.said()
    (command,) = set(PRINTED.findall(squall.said()))
    assert command.startswith(f"{PROGRAM} verify ")
    judged = typed(tmp_path, command, started)
    assert judged.code() == 2, judged.said()
    assert "UNKNOWN" in judged.said()
