"""Gives processes, partitions, groups and values of a history new numbers, so that it can become part of a larger one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BY_PART = ("at", "off", "from", "errs", "meta")
"""Fields that are objects with partitions as keys."""
PARTS = ("parts", "owned")


def moved(val: int, procs: int) -> int:
    """Return a value as a process with a number larger by `procs` would have written it."""
    return val + (procs << 40) if val >= 0 else val


def renumbered(fields: Mapping[str, Any], procs: int, parts: int) -> dict[str, Any]:
    """Return the fields of a line, with process numbers larger by `procs` and partitions larger by `parts`."""
    return {name: _renumbered(name, value, procs, parts) for name, value in fields.items()}


def _renumbered(name: str, value: Any, procs: int, parts: int) -> Any:
    if name == "p":
        return value + procs
    if name in BY_PART and isinstance(value, Mapping):
        return {str(int(part) + parts): each for part, each in value.items()}
    if name in PARTS:
        return [part + parts for part in value]
    if name in ("x", "g", "group") and isinstance(value, str):
        return f"{value} of {parts}"
    if name == "settings" and "group" in value:
        return {**value, "group": f"{value['group']} of {parts}"}
    return value + parts if name == "part" and value >= 0 else value
