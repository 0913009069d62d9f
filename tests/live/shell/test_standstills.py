"""A harness that is stopped (Ctrl-Z) for longer than the plan permits after healing does not blame the cluster."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.live.shell.conftest import Squall

pytestmark = pytest.mark.night("a whole run that is stopped for 18 seconds; the gate has one")
STOPPED_S = 18.0
"""Longer than `stuck_s`, the 15 s after which a reader counts as stuck."""


def _stand_still(running: Squall) -> None:
    os.killpg(running.process.pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.killpg(running.process.pid, signal.SIGCONT)


def test_a_run_that_stood_still_after_its_faults_says_so_and_blames_nobody(
    tmp_path: Path, started: list[Squall]
) -> None:
    words = "run --time 8 --rate 200 --faults kill --seed 7 --engine reference".split()
    running = Squall(tmp_path, words)
    started.append(running)
    running.until("heal")
    _stand_still(running)
    running.code()
    told = json.loads((tmp_path / "runs/latest/verdict.json").read_text())
    assert told["verdict"] in ("valid", "unknown"), told["reasons"]
    assert any("stood still for 1" in each for each in (*told["notes"], *told["reasons"])), told
