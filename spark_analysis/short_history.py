"""Writes a history of a few records for which Spark needs every view and every statement that it needs for a long one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from squall.checkers.history.parser import FILE

_MS = 1_000_000
DAMAGED = -1
"""Is the value that a history has for a record with a damaged payload."""


def write_short_history(run_dir: Path) -> None:
    """Write the lines of `history` into the folder `run_dir`, as a run's history file."""
    (run_dir / FILE).write_text("".join(json.dumps(line) + "\n" for line in history()))


def history() -> list[dict[str, Any]]:
    """Return the lines of a short history that has something for each query: a send that is read, and one that is lost;
    a damaged payload; a reader that left records out; a compacted partition.
    """
    partition = {"e": "t", "topic": "t", "retention_ms": -1}
    process = {"e": "p", "client": "squall", "version": "1", "zone": ""}
    producer = {"role": "producer", "settings": {"acks": -1, "idempotence": True}}
    return [
        {"e": "h", "schema": 1, "run": "class-list", "wall_ms": 0, "mono_ns": 0},
        {**partition, "part": 0, "index": 0, "cleanup": "delete"},
        {**partition, "part": 1, "index": 1, "cleanup": "compact"},
        {**process, **producer, "p": 0},
        {**process, "p": 1, "role": "reader", "settings": {"isolation": 0}},
        {**process, "p": 2, "role": "final", "settings": {"round": 1, "isolation": 0}},
        *_sent(0, part=0, off=0),
        *_sent(1, part=0, off=1),
        *_sent(2, part=0, off=2),
        *_sent(3, part=0, off=3),
        *_sent(4, part=1, off=0),
        *_read(5, 1, "poll", [[0, 0], [1, DAMAGED], [3, 3]]),
        *_read(6, 2, "final_read", [[0, 0], [1, 1], [3, 3]], end={"0": 4, "1": 1}),
    ]


def _sent(op: int, part: int, off: int) -> list[dict[str, Any]]:
    at = (2 * op + 1) * _MS
    return [
        {"e": "i", "op": op, "p": 0, "f": "send", "t": at, "part": part, "v": op, "k": "k", "d": 0, "b": 9},
        {"e": "c", "op": op, "st": 0, "t": at + _MS, "off": off, "ts": 0},
    ]


def _read(op: int, proc: int, f: str, records: list[list[int]], **more: Any) -> list[dict[str, Any]]:
    at = (2 * op + 1) * _MS
    return [
        {"e": "i", "op": op, "p": proc, "f": f, "t": at, "at": {"0": 0, "1": 0}},
        {"e": "c", "op": op, "st": 0, "t": at + _MS, "got": [[0, 4, 4, 4, 0, records, 0]], **more},
    ]
