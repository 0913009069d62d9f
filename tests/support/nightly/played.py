"""Runs `squall nightly` on simulations, so that a night takes seconds."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.support.squall import ended, start

LIMIT_S = 100
SMALL = ("--vary", "runtime=sim", "--time", "8", "--faults", "kill", "--jobs", "1")


def nightly(*words: str | Path, limit_s: float = LIMIT_S) -> tuple[int, str, str]:
    """Run `squall nightly`. Returns its exit code, stdout and stderr."""
    return ended(start("nightly", *words), limit_s)


def results(night: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a night's results.jsonl."""
    file = night / "results.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def until_one_has_ended(night: Path, process: subprocess.Popen[str]) -> None:
    """Wait until results.jsonl has its first line."""
    deadline = time.monotonic() + LIMIT_S
    while not results(night):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no run has ended"
        time.sleep(0.02)
