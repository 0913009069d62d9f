"""The folder of a night of tests, and its record: a head, and a line for each part as it ends."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.errors import Refused
from chaos.nights.directory import append_line

PASSED, FAILED, UNKNOWN, NOT_HERE, INTERRUPTED = "passed", "failed", "unknown", "not here", "interrupted"
ENDED = (PASSED, FAILED, UNKNOWN, NOT_HERE)
"""Results of a part that has ended. An interrupted part is played again."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a night begins with: the first line of its record."""

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
    """How a part ended, or (INTERRUPTED) how long it ran before the night was interrupted."""

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
        """What a part printed."""
        return self.path / "said" / f"{part}.txt"

    def matrix(self, night: str) -> Path:
        """The night of the part `matrix`, beside this one: both are in one store."""
        return self.path.with_name(f"{night}-matrix")

    def begin(self, head: Head) -> None:
        """Write the head. Refused where there is a record already."""
        if self.record.exists():
            raise Refused(f"{self.path}: a night is there already: --resume goes on with it")
        self.said("any").parent.mkdir(parents=True, exist_ok=True)
        append_line(self.record, _json(head))

    def note(self, line: Line) -> None:
        """Add a line."""
        append_line(self.record, _json(line))

    def read(self) -> tuple[Head, list[Line]]:
        """The record. Refused where there is none. A line that a killed session left half-written is left out."""
        try:
            found = _json_lines(self.record.read_text(errors="replace"))
            head = Head(**{**found[0], "parts": tuple(found[0]["parts"])})
            return head, [Line(**each) for each in found[1:]]
        except FileNotFoundError:
            raise Refused(f"{self.path}: no night of tests is there: it has no {self.record.name}") from None
        except (OSError, IndexError, KeyError, TypeError) as error:
            raise Refused(f"{self.record} cannot be read: {type(error).__name__}: {error}") from None


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


def _json_lines(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line. A line that is none is left out."""
    found = []
    for line in text.splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def _json(told: Head | Line) -> str:
    return json.dumps(asdict(told)) + "\n"
