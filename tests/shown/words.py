"""Reads the files of a run while it runs. They may be half-written, or not exist yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """Return a file's JSON object; an empty one if there is none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def played_faults(run: Path) -> list[dict[str, Any]]:
    """Return the last line of each fault; none if the file cannot be read."""
    try:
        lines = (run / "nemesis.jsonl").read_text().splitlines()
    except OSError:
        return []
    last: dict[int, dict[str, Any]] = {}
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            continue  # the last one, of a harness that was killed
        last[told["id"]] = told
    return [last[each] for each in sorted(last)]


def begun_faults(run: Path) -> int:
    """Return how many faults are active now."""
    return sum(1 for each in played_faults(run) if each["began"] is not None and each["ended"] is None)


def phases(run: Path) -> list[str]:
    """Return the phases of the run that have begun."""
    return [each["name"] for each in read_json(run / "run.json").get("phases", ())]
