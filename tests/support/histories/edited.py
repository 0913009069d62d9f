"""Edits of a run's history.jsonl by somebody who knows its form: ids and digests fit again afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any
from zlib import crc32

Line = dict[str, Any]
Change = Callable[[Line], Line | None]
"""Return what replaces a line; None removes it."""


def lines_of(history: bytes) -> list[Line]:
    """Every line, parsed."""
    return [json.loads(each) for each in history.splitlines()]


def sealed(lines: Iterable[Line]) -> bytes:
    """A history of these lines: operations are numbered one after the other, and its last line fits."""
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
    """The history with every line changed but its first and its last one."""
    first, *lines, last = lines_of(history)
    kept = [changed for line in lines if (changed := change(line)) is not None]
    return sealed([first, *kept, last])


def without_processes(history: bytes, gone: Iterable[int]) -> bytes:
    """The history without these processes, what they did, and what others read of them."""
    procs, ops = {*gone}, set[int]()

    def change(line: Line) -> Line | None:
        if line.get("p") in procs or line.get("op") in ops:
            ops.update([line["op"]] if "op" in line else [])
            return None
        return _unread(line, lambda value: value >> 40 in procs)

    return edited(history, change)


def without_send(history: bytes, value: int) -> bytes:
    """The history without a send, its outcome, and all reads of it."""
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
