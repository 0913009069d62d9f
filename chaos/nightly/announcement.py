"""Hands the result of a night to other programs: in summary.json, as the input of a command, and in a file of metrics.

summary.json has the schema of `nightly --json`: `docs/json.md`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from squall.chaos.nightly.directory import write_whole
from squall.chaos.nightly.findings import STATES
from squall.checkers.nightly.results import VERDICTS

NOTIFY_S = 60.0
"""Limits the seconds that the command of --notify may take."""

Facts = dict[str, Any]
"""Is the object that `nightly --json` prints: `NightlyOutput` in `chaos/commands/outputs.py`."""


def announce(facts: Facts, file: Path, metrics: Path | None, command: str | None) -> Iterator[str]:
    """Write summary.json and the metrics, and run the command. Yield a sentence for each of these that fails."""
    text = json.dumps(facts, indent=1) + "\n"
    try:
        write_whole(file, text)
    except OSError as error:
        yield f"{file} cannot be written: {error.strerror}"
    if metrics is not None:
        try:
            _write_metrics(metrics, facts)
        except OSError as error:
            yield f"--metrics {metrics} cannot be written: {error.strerror}"
    if command and (failed := _notify(command, text)):
        yield failed


def _notify(command: str, text: str) -> str:
    """Run the command with the text on its input. Return why it failed, in a sentence; empty if it succeeded."""
    try:
        done = subprocess.run(shlex.split(command), input=text, capture_output=True, text=True, timeout=NOTIFY_S)
    except subprocess.TimeoutExpired:
        return f"--notify {command}: it was ended after {NOTIFY_S:.0f} s"
    except OSError as error:
        return f"--notify {command}: {error.strerror}"
    said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    last = f": {said[-1].strip()}" if said else ""
    return f"--notify {command}: exit code {done.returncode}{last}" if done.returncode else ""


def runnable(command: str) -> str:
    """Return a sentence that says why a command cannot be run; empty if it can."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"{command!r}: {error}"
    if not words:
        return "a command is needed"
    return "" if shutil.which(words[0]) else f"there is no program {words[0]!r}"


def unwritable(file: str) -> str:
    """Return a sentence that says why a file cannot be written; empty if it can."""
    if not file:
        return "a file is needed"
    path = Path(file)
    if path.is_dir():
        return "this is a folder, and a file is needed"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return "" if os.access(path if path.exists() else path.parent, os.W_OK) else "it cannot be written"


def _write_metrics(path: Path, facts: Facts) -> None:
    """Write the metrics, replacing the whole file at once, as node_exporter's textfile collector requires."""
    from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

    registry = CollectorRegistry()

    def gauge(name: str, what: str, value: float) -> None:
        Gauge(f"squall_nightly_{name}", what, registry=registry).set(value)

    runs = facts["counts"]
    gauge("exit_code", "What the last night exited with.", facts["exit"])
    ended = datetime.fromisoformat(facts["ended"])
    gauge("end_time_seconds", "When the last night ended, in seconds since 1970.", ended.timestamp())
    gauge("duration_seconds", "How long the last night took, report included.", facts["seconds"])
    gauge("planned_runs", "Runs that the last night planned.", runs["planned"])
    gauge("left_out_runs", "Planned runs that the last night left out.", runs["left_out"])
    gauge("retried_runs", "Attempts that the last night made again.", runs["retried"])
    verdicts = Gauge("squall_nightly_runs", "Runs of the last night by verdict.", ["verdict"], registry=registry)
    for verdict in VERDICTS:
        verdicts.labels(verdict).set(runs[verdict.replace(" ", "_")])
    states = Gauge("squall_nightly_findings", "Findings of the last night by state.", ["state"], registry=registry)
    for state in STATES:
        states.labels(state).set(sum(1 for each in facts["findings"] if each["state"] == state))
    write_to_textfile(str(path), registry)
