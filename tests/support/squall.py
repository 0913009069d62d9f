"""The program `squall` as people start it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def start(*words: str | Path) -> subprocess.Popen[str]:
    """`squall WORDS`, with its output in pipes."""
    command = [sys.executable, "-P", "-m", "squall.chaos", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment)


def ended(process: subprocess.Popen[str], limit_s: float) -> tuple[int, str, str]:
    """Its exit code, and what it printed on each stream."""
    out, errors = process.communicate(timeout=limit_s)
    return process.returncode, out, errors
