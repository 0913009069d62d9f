"""Reads what a night left behind: its plan of runs (night.json), and the result of each (results.jsonl, end.json)."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall.checkers.nightly.matrix import FILE as MATRIX
from squall.checkers.nightly.matrix import ForbiddenAnomalies, changes, expectations
from squall.checkers.nightly.results import Attempt, parse

SCHEMA = 1
"""Of night.json."""
SHOWN = 3
"""Changes of a matrix that a sentence lists."""
FILE, RESULTS, END = "night.json", "results.jsonl", "end.json"


class NoNight(Exception):
    """The folder holds no night that can be read. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Night:
    """A night as its files tell it. Empty where they do not say."""

    path: Path
    name: str
    began: str
    items: Mapping[str, Mapping[str, Any]]
    """Item -> as it was planned, in the order of running."""
    attempts: tuple[Attempt, ...]
    """In the order in which they ended."""
    commit: str = ""
    budget_s: float | None = None
    ended: str = ""
    """Empty: it goes on, or was killed."""
    exit: int | None = None
    interrupted: bool = False
    left_out: tuple[str, ...] = ()
    """Items, each with the reason why it did not run."""
    expect: tuple[ForbiddenAnomalies, ...] | None = ()
    """What it must not find; None: nobody knows, because no file says."""
    accepted: tuple[Mapping[str, str], ...] = ()
    """The accepted findings when it was played: fingerprint, owner, until and why of each, expired ones included."""
    problems: tuple[str, ...] = field(default=())
    """What could not be read, a sentence each."""

    @property
    def not_run(self) -> tuple[str, ...]:
        """Items without an attempt, left out or not come to."""
        tried = {each.item for each in self.attempts}
        return tuple(each for each in self.items if each not in tried)

    @property
    def last(self) -> Mapping[str, int]:
        """Item -> the number of its last attempt, which is the one that counts."""
        found: dict[str, int] = {}
        for each in self.attempts:
            found[each.item] = max(found.get(each.item, 0), each.attempt)
        return found


def read_night(path: Path) -> Night:
    """The night in the folder `path`. NoNight; whatever else is damaged stands in `problems`."""
    told = read_head(path)
    items = {str(each["item"]): each for each in told.get("items", ()) if isinstance(each, dict) and "item" in each}
    problems: list[str] = []
    if since := told.get("commits_since"):
        words = ", then ".join(str(each)[:12] or "an unknown one" for each in since)
        problems.append(f"The night went on at another commit ({words}): its runs are not all of the one it began at.")
    attempts = _attempts(path, problems)
    end = _end(path, problems)
    return Night(
        path=path,
        name=str(told.get("night") or path.resolve().name),
        began=str(told.get("began") or ""),
        items=items,
        attempts=attempts,
        commit=str(told.get("commit") or ""),
        budget_s=_number(told.get("budget_s")),
        ended=str(end.get("ended") or ""),
        exit=end["exit"] if isinstance(end.get("exit"), int) else None,
        interrupted=bool(end.get("interrupted", False)),
        left_out=tuple(map(_left_out, end.get("left_out") or ())),
        expect=_expected(path, told, problems),
        accepted=tuple(each for each in told.get("accepted") or () if isinstance(each, dict)),
        problems=tuple(problems),
    )


def _expected(path: Path, told: Mapping[str, Any], problems: list[str]) -> tuple[ForbiddenAnomalies, ...] | None:
    """As night.json has it. A night of an early version has its matrix in a file only."""
    planned = told.get("matrix")
    try:
        now = tomllib.loads((path / MATRIX).read_text())
    except (OSError, ValueError, RecursionError):
        now = None
    if not isinstance(planned, dict):
        return None if now is None else expectations(now)
    if now is not None and (changed := changes(planned, now)):
        lines = "; ".join(changed[:SHOWN]) + ("; and more" if len(changed) > SHOWN else "")
        problems.append(f"{MATRIX} was changed since the night was planned ({lines}): the one in {FILE} counts.")
    return expectations(planned)


def read_head(path: Path) -> dict[str, Any]:
    """Return the content of night.json. Raises NoNight."""
    try:
        told = json.loads((path / FILE).read_text())
    except FileNotFoundError:
        raise NoNight(f"{path}: no night is there: it has no {FILE}, which `squall nightly` writes first") from None
    except (OSError, ValueError, RecursionError) as error:
        raise NoNight(f"{path / FILE} cannot be read: {error}") from None
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        schema = told.get("schema") if isinstance(told, dict) else None
        raise NoNight(
            f"{path / FILE} is of schema {schema!r}, and this version of Squall reads {SCHEMA}: "
            "make the report with the version that wrote it"
        )
    return told


def _attempts(path: Path, problems: list[str]) -> tuple[Attempt, ...]:
    found, unread = parse(_text(path / RESULTS, problems))
    problems += [f"{RESULTS}: line {number} cannot be read, and is left out." for number in unread]
    # An attempt that stands there twice was noted again: the later line is what became of it.
    return tuple({(each.item, each.attempt): each for each in found}.values())


def _end(path: Path, problems: list[str]) -> dict[str, Any]:
    if not (path / END).exists():
        return {}
    try:
        told = json.loads(_text(path / END, problems))
    except (ValueError, RecursionError):
        problems.append(f"{END} cannot be read: how the night ended is not known.")
        return {}
    return told if isinstance(told, dict) else {}


def _text(path: Path, problems: list[str]) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror}.")
        return ""


def _left_out(told: Any) -> str:
    """An item with the reason why it did not run."""
    return f"{told.get('item')}: {told.get('why')}" if isinstance(told, dict) else str(told)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
