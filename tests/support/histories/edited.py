"""Edits a run's history.jsonl as a person who knows its format would: ids and checksums are right again afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any
from zlib import crc32

Line = dict[str, Any]
Change = Callable[[Line], Line | None]
"""Returns the replacement of a line; None removes it."""


def lines_of(history: bytes) -> list[Line]:
    """Parse every line."""
    return [json.loads(each) for each in history.splitlines()]


def sealed(lines: Iterable[Line]) -> bytes:
    """Return a history of these lines, with consecutive operation ids, and with the right counts in its last line."""
    kept = list(lines)
    numbers = {line["op"]: number for number, line in enumerate(each for each in kept if each["e"] == "i")}
    written = []
    for line in kept[:-1]:
        renumbered = {name: numbers[value] if name in ("op", "x") and type(value) is int else value
                      for name, value in line.items()}  # fmt: skip
        written.append(json.dumps(renumbered, separators=(",", ":")).encode() + b"\n")
    text = b"".join(written)
    end = {**kept[-1], "lines": len(written), "crc32": crc32(text)}
    return text + json.dumps(end).encode() + b"\n"


def edited(history: bytes, change: Change) -> bytes:
    """Return the history with `change` applied to every line except the first and the last."""
    first, *lines, last = lines_of(history)
    kept = [changed for line in lines if (changed := change(line)) is not None]
    return sealed([first, *kept, last])


def without_processes(history: bytes, gone: Iterable[int]) -> bytes:
    """Return the history without these processes, their operations, and the reads of their records."""
    procs, ops = {*gone}, set[int]()

    def change(line: Line) -> Line | None:
        if line.get("p") in procs or line.get("op") in ops:
            ops.update([line["op"]] if "op" in line else [])
            return None
        return _unread(line, lambda value: value >> 40 in procs)

    return edited(history, change)


def without_send(history: bytes, value: int) -> bytes:
    """Return the history without a send, its completion, and all reads of it."""
    ops = set[int]()

    def change(line: Line) -> Line | None:
        if line.get("v") == value or line.get("op") in ops:
            ops.add(line["op"])
            return None
        return _unread(line, lambda read: read == value)

    return edited(history, change)


def _unread(line: Line, gone: Callable[[int], bool]) -> Line:
    if "got" not in line:
        return line
    got = [[*entry[:5], [pair for pair in entry[5] if not gone(pair[1])], *entry[6:]] for entry in line["got"]]
    return {**line, "got": got}
