"""The last line of a history, which counts those before it, and histories whose header does not promise one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkers.history.tables import Problem

FILE, RUN = "history.jsonl", "run.json"
LATER = ("writes_after_healing", "reads_after_healing")
"""Keys that run.json has had since after recorders began to write a last line."""
NOTE = "history.jsonl does not promise a last line, as in early versions: lines of its end may be gone"


def broken_seal(ends: bool, lines: int, info: Mapping[str, Any]) -> Problem | None:
    """A header that does not promise a last line (`ends`), of a run whose recorder does: it was changed.

    `info`: run.json, as far as it could be read.
    """
    later = [key for key in LATER if key in info]
    if ends or not lines or not later:
        return None
    why = f"the header does not promise a last line, and {RUN} with its {later[0]!r} is of a version whose header does"
    return Problem(FILE, 1, why)


def notes(ends: bool, torn_bytes: int) -> list[str]:
    """What a verdict says of a history's end."""
    found = [] if ends else [NOTE]
    if torn_bytes:
        found.append(f"{FILE} ends in an unfinished line of {torn_bytes} bytes, which was left out")
    return found


def read_info(run_dir: Path) -> Mapping[str, Any]:
    """run.json; empty if it cannot be read: who needs what is in it says so."""
    try:
        info = json.loads((run_dir / RUN).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return info if isinstance(info, dict) else {}
