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
"""Results of a part that has ended. An interrupted part is played again."""


@dataclass(frozen=True, slots=True)
class Head:
    """Holds the first line of a night's record."""

    night: str
    """Its name: the time at which it began."""
    began: str
    """ISO, UTC."""
    commit: str
    """With "-dirty" where files differ from it."""
    machine: str
    python: str
    parts: tuple[str, ...]
    """Those that were asked for, in their order."""
    first_seed: int
    """Of the part `seeds`: where the last night in the store ended."""


@dataclass(frozen=True, slots=True)
class Line:
    """Holds how a part ended, or (INTERRUPTED) how long it ran before the night was interrupted."""

    part: str
    result: str
    exit: int
    seconds: float
    commit: str
    command: str
    began: str
    """ISO, UTC."""
    why: str = ""
    """Why it is not PASSED; empty where it is."""
    next_seed: int | None = None
    """Where the next night continues, of a part that plays seeds."""


class Folder:
    """The names of the files of a night."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = path / "record.jsonl"
        self.tests = path / "tests.jsonl"
        """What `squall test --results` writes: a head, and a line for each test."""

    def said(self, part: str) -> Path:
        """Return the file with a part's output."""
        return self.path / "said" / f"{part}.txt"

    def matrix(self, night: str) -> Path:
        """The night of the part `matrix`, beside this one: both are in one store."""
        return self.path.with_name(f"{night}-matrix")

    def begin(self, head: Head) -> None:
        """Write the head. Raise PreconditionError if there is a record already."""
        if self.record.exists():
            raise PreconditionError(f"{self.path}: a night is there already: --resume goes on with it")
        self.said("any").parent.mkdir(parents=True, exist_ok=True)
        append_line(self.record, _json(head))

    def note(self, line: Line) -> None:
        """Add a line."""
        append_line(self.record, _json(line))

    def read(self) -> tuple[Head, list[Line]]:
        """The record. Raise PreconditionError if there is none, or where somebody has changed it to what no night
        writes.

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
    """Part -> how it ended. The seconds are those of all sessions in which it ran."""
    spent: dict[str, float] = {}
    found = {}
    for line in lines:
        spent[line.part] = spent.get(line.part, 0.0) + line.seconds
        if line.result in ENDED:
            found[line.part] = Line(**{**asdict(line), "seconds": spent[line.part]})
    return found


def to_play(head: Head, lines: Iterable[Line]) -> list[str]:
    """The parts that have not ended, in their order."""
    done = ended(lines)
    return [part for part in head.parts if part not in done]


def _json_lines(text: str) -> list[tuple[int, Any]]:
    """(line number, value) of each line of JSON in a file. A line that is none is left out."""
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
"""Of JSON, by the type of a field."""


def _head(row: Any) -> Head:
    """The head of a record. ValueError, which says what is wrong with it."""
    head = Head(**_checked(Head, row))
    if head.night in ("", ".", "..") or set(head.night) & set("/\0"):
        raise ValueError(f"night: the name of a folder is needed (given: {head.night!r})")
    parts = head.parts
    if not parts or not all(isinstance(each, str) for each in parts) or len(set(parts)) < len(parts):
        raise ValueError(f"parts: a list of names is needed, each of them once (given: {list(parts)!r})")
    return replace(head, parts=tuple(parts))


def _line(row: Any, head: Head) -> Line:
    """A line of the record of the night with this head. ValueError, which says what is wrong with it."""
    line = Line(**_checked(Line, row))
    if line.part not in head.parts:
        raise ValueError(f"part: one of {', '.join(head.parts)} is needed (given: {line.part!r})")
    if line.result not in (*ENDED, INTERRUPTED):
        raise ValueError(f"result: one of {', '.join((*ENDED, INTERRUPTED))} is needed (given: {line.result!r})")
    return line


def _checked(of: type[Head | Line], row: Any) -> dict[str, Any]:
    """The same row, if it has the fields of that class. ValueError, which says which one is wrong."""
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
