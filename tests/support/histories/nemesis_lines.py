"""Lines of nemesis.jsonl for tests."""

from __future__ import annotations

import json
from typing import Any

MS = 1_000_000


def fault_line(id_: int = 0, action: str = "kill", began_ms: int = 30, ended_ms: int | None = 50, **more: Any) -> bytes:
    """A fault that landed, unless `more` says otherwise."""
    line = {
        "id": id_,
        "action": action,
        "target": {"asked": "leader", "resolved": more.pop("resolved", [2])},
        "params": {},
        "asked": began_ms * MS,
        "began": began_ms * MS,
        "ended": None if ended_ms is None else ended_ms * MS,
        "evidence": {"gone": True},
        "error": None,
    }
    return json.dumps({**line, **more}).encode() + b"\n"


NEMESIS = fault_line(0, "kill", 30, 50) + fault_line(1, "partition", 45, 80)
"""Two faults that overlap, early in a generated history."""
