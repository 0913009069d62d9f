"""nemesis.jsonl: which faults were asked for, when they were on, and what proves that they landed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from checkers.history.tables import PlayedFault, Problem, whole

FILE = "nemesis.jsonl"
FOREVER = (1 << 63) - 1
"""ns. Of a fault that never ended."""


def parse_faults(lines: Iterable[bytes]) -> tuple[list[PlayedFault], Problem | None]:
    """The faults by id, each as its last line tells it, and why reading stopped early, if it did.

    An unfinished last line is left out, as in a history: its fault is then one that began and never ended.
    """
    faults: dict[int, PlayedFault] = {}
    for number, raw in enumerate(lines, start=1):
        try:
            fault = _fault(json.loads(raw))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if raw.endswith(b"\n"):
                return list(faults.values()), Problem(FILE, number, f"{type(error).__name__}: {error}")
            break
        faults[fault.id] = fault
    return [faults[key] for key in sorted(faults)], None


def _fault(line: dict[str, Any]) -> PlayedFault:
    target = line.get("target") or {}
    return PlayedFault(
        id=whole(line["id"]),
        action=str(line["action"]),
        fault_class=str(line.get("fault_class") or ""),
        target=str(target.get("asked", "")),
        resolved=tuple(target.get("resolved") or ()),
        params=dict(line.get("params") or {}),
        asked=_time(line.get("asked")),
        began=_time(line.get("began")),
        ended=_time(line.get("ended")),
        evidence=dict(line["evidence"]) if line.get("evidence") else None,
        error=str(line.get("error") or ""),
    )


def _time(value: Any) -> int:
    return -1 if value is None else whole(value)


def windows(faults: Iterable[PlayedFault]) -> list[tuple[int, int]]:
    """When at least one fault was on: disjoint [began, ended] in ns, in order.

    A fault without an end lasts for ever.
    """
    spans = [(each.began, each.ended if each.ended >= 0 else FOREVER) for each in faults if each.began >= 0]
    merged: list[tuple[int, int]] = []
    for began, ended in sorted(spans):
        if merged and began <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], ended))
        else:
            merged.append((began, ended))
    return merged
