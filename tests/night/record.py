"""The folder of a night of tests, and its record: a head, and a line for each part as it ends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any

from squall.chaos.errors import PreconditionError
from squall.chaos.nightly.directory import append_line

PASSED, FAILED, UNKNOWN, NOT_HERE, INTERRUPTED = "passed", "failed", "unknown", "not here", "interrupted"
ENDED = (PASSED, FAILED, UNKNOWN, NOT_HERE)
"""Results of a part that need not run again. An interrupted part runs again."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a night's record."""

    night: str
    """The night's name: the time at which it began."""
    began: str
    """The start in UTC, in ISO 8601."""
    commit: str
    """The commit, with "-dirty" if files differ from it."""
    machine: str
    python: str
    parts: tuple[str, ...]
    """The parts to run, in order."""
    first_seed: int
    """The first seed of the part `seeds`: the one after the last night's in the store."""


@dataclass(frozen=True, slots=True)
class Line:
    """The result of a part. INTERRUPTED says how long the part ran before the night was interrupted."""

    part: str
    result: str
    exit: int
    seconds: float
    commit: str
    command: str
    began: str
    """The start in UTC, in ISO 8601."""
    why: str = ""
    """Why the result is not PASSED; empty if it is."""
    next_seed: int | None = None
    """The seed with which the next night continues, if the part runs seeds."""


class Folder:
    """The files of a night."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = path / "record.jsonl"
        self.tests = path / "tests.jsonl"
        """Written by `squall test --results`: a head, and a line for each test."""

    def said(self, part: str) -> Path:
        """Return the file with a part's output."""
        return self.path / "said" / f"{part}.txt"

    def matrix(self, night: str) -> Path:
        """Return the folder of the night that the part `matrix` runs. It is beside this one, so both share one store.
        """
        return self.path.with_name(f"{night}-matrix")

    def begin(self, head: Head) -> None:
        """Write the head. Raises PreconditionError if there is a record already."""
        if self.record.exists():
            raise PreconditionError(f"{self.path}: a night is there already: --resume goes on with it")
        self.said("any").parent.mkdir(parents=True, exist_ok=True)
        append_line(self.record, _json(head))

    def note(self, line: Line) -> None:
        """Append a line to the record."""
        append_line(self.record, _json(line))

    def read(self) -> tuple[Head, list[Line]]:
        """Return the record. Raises PreconditionError if there is none, or if a night cannot have written it.

        A line that a killed session left half-written is left out.
        """
        try:
            rows = _json_lines(self.record.read_text(errors="replace"))
        except FileNotFoundError:
            raise PreconditionError(f"{self.path}: no night of tests is there: it has no {self.record.name}") from None
        except OSError as error:
            raise PreconditionError(f"{self.record} cannot be read: {error}") from None
        head: Head | None = None
        lines = []
        for number, row in rows:
            try:
                if head is None:
                    head = _head(row)
                else:
                    lines.append(_line(row, head))
            except ValueError as error:
                raise PreconditionError(f"{self.record}, line {number}: {error}") from None
        if head is None:
            raise PreconditionError(f"{self.record}: no line of it can be read")
        return head, lines


def ended(lines: Iterable[Line]) -> dict[str, Line]:
    """Return the result of each part. Its seconds are those of all sessions in which it ran."""
    spent: dict[str, float] = {}
    found = {}
    for line in lines:
        spent[line.part] = spent.get(line.part, 0.0) + line.seconds
        if line.result in ENDED:
            found[line.part] = Line(**{**asdict(line), "seconds": spent[line.part]})
    return found


def to_play(head: Head, lines: Iterable[Line]) -> list[str]:
    """Return the parts that have not ended, in order."""
    done = ended(lines)
    return [part for part in head.parts if part not in done]


def _json_lines(text: str) -> list[tuple[int, Any]]:
    """Return (line number, value) of each line of JSON. Other lines are left out."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        with suppress(ValueError):
            found.append((number, json.loads(line)))
    return found


_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "int | None": (int, NoneType),
    "tuple[str, ...]": (list,),
}
"""The types that a JSON value may have, by a field's annotation."""


def _head(row: Any) -> Head:
    """Return the head of a record. Raises ValueError with what is wrong."""
    head = Head(**_checked(Head, row))
    if head.night in ("", ".", "..") or set(head.night) & set("/\0"):
        raise ValueError(f"night: the name of a folder is needed (given: {head.night!r})")
    parts = head.parts
    if not parts or not all(isinstance(each, str) for each in parts) or len(set(parts)) < len(parts):
        raise ValueError(f"parts: a list of names is needed, each of them once (given: {list(parts)!r})")
    return replace(head, parts=tuple(parts))


def _line(row: Any, head: Head) -> Line:
    """Return a line of the record with this head. Raises ValueError with what is wrong."""
    line = Line(**_checked(Line, row))
    if line.part not in head.parts:
        raise ValueError(f"part: one of {', '.join(head.parts)} is needed (given: {line.part!r})")
    if line.result not in (*ENDED, INTERRUPTED):
        raise ValueError(f"result: one of {', '.join((*ENDED, INTERRUPTED))} is needed (given: {line.result!r})")
    return line


def _checked(of: type[Head | Line], row: Any) -> dict[str, Any]:
    """Return the row if it has exactly the fields of that class. Raises ValueError with the wrong field."""
    if not isinstance(row, dict):
        raise ValueError(f"a JSON object is needed (given: {row!r})")
    known = {field.name: field for field in fields(of)}
    for name in row.keys() - known.keys():
        raise ValueError(f"{name}: there is no such field")
    for name, field in known.items():
        if name not in row:
            if field.default is MISSING:
                raise ValueError(f"{name}: is missing")
        elif isinstance(row[name], bool) or not isinstance(row[name], _TYPES[str(field.type)]):
            raise ValueError(f"{name}: {field.type} is needed (given: {row[name]!r})")
    return row


def _json(told: Head | Line) -> str:
    return json.dumps(asdict(told)) + "\n"
