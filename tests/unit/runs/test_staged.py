"""A program whose log says how far it is: each stage is shown while it lasts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from squall.chaos.runs.staged import FIRST, run_staged
from squall.checkers.stages import line_of

TELLS = f"""
import sys
for stage in sys.argv[2:]:
    print({line_of("")!r} + stage, "and other words", sep="\\n", flush=True)
    open(sys.argv[1]).read()  # until whoever shows the stage has seen it
sys.exit(7)
"""


class Shown:
    """Notes what was shown, and whether each stage was over before the next one began. Lets the program continue."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate
        self.told: list[str] = []

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self.told.append(stage)
        if stage != FIRST:
            self.gate.write_text("go on")
        yield
        self.told.append(f"{stage} is over")


def test_each_stage_is_shown_until_the_next_one_begins(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    shown = Shown(gate)
    command = [sys.executable, "-c", TELLS, str(gate), "convert", "look"]
    assert run_staged(command, tmp_path / "log", 60, shown) == 7
    stages = [FIRST, "convert", "look"]
    assert shown.told == [told for stage in stages for told in (stage, f"{stage} is over")]
    assert (tmp_path / "log").read_text().count("and other words") == 2


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = [sys.executable, "-c", "import sys; open(sys.argv[1]).read()", str(gate)]
    with pytest.raises(subprocess.TimeoutExpired):
        run_staged(command, tmp_path / "log", 0.2, Shown(gate))
    with pytest.raises(OSError, match="No such device"):  # no process reads
        os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
