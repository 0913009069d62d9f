"""Starts the program `squall` in an OS process of its own, as people do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def start(*words: str | Path) -> subprocess.Popen[str]:
    """Start `squall WORDS` with stdout and stderr in pipes."""
    command = [sys.executable, "-P", "-m", "squall.chaos", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment)


def ended(process: subprocess.Popen[str], limit_s: float) -> tuple[int, str, str]:
    """Wait for the end. Returns the exit code, stdout and stderr."""
    out, errors = process.communicate(timeout=limit_s)
    return process.returncode, out, errors
