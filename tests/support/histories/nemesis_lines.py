"""Lines of nemesis.jsonl for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from squall.chaos.faults.kinds import KINDS

MS = 1_000_000


def fault_line(id_: int = 0, action: str = "kill", began_ms: int = 30, ended_ms: int | None = 50, **more: Any) -> bytes:
    """Return a line about a fault that took effect, with the fields of `more` replaced."""
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


NEMESIS = fault_line(0, "kill", 30, 50) + fault_line(1, "partition", 45, 80, on=53 * MS)
"""Two faults that overlap, early in a generated history."""


def spoken(line: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a line of schema 1 to the present schema, which also has traits and the evidence in words."""
    kind, params = KINDS[line["action"]], line.get("params") or {}
    seen = line.get("evidence") or line.get("seen") or {}
    nodes = [each for each in (line.get("target") or {}).get("resolved", ()) if isinstance(each, int)]
    words = {
        "fault": f"{kind.name}{kind.describe_params(params)}",
        "evidence": kind.describe_evidence(seen) if seen else "",
        "nodes": {str(node): kind.describe_effect(params, node, seen.get("links", [])) for node in nodes},
    }
    traits = sorted(kind.traits | kind.more_traits(params))
    return {**line, "schema": 2, "fault_class": kind.fault_class, "traits": traits, "words": words}
