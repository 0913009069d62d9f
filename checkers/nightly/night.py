"""Reads the files of a night: its plan of runs (night.json), and the results of these runs (results.jsonl, end.json).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall.checkers.nightly.matrix import ForbiddenAnomalies, expectations
from squall.checkers.nightly.results import RunAttempt, parse

SCHEMA = 1
"""Is the version of the format of night.json that is written and can be read."""
FILE, RESULTS, END = "night.json", "results.jsonl", "end.json"


class UnreadableNight(Exception):
    """Reports that the folder holds no night that can be read. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Night:
    """Holds a night as its files describe it. Fields are empty if the files do not have them."""

    path: Path
    name: str
    began: str
    items: Mapping[str, Mapping[str, Any]]
    """Maps the name of each item (one configuration with faults and a seed) to its entry in night.json, in the order in
    which the items run.
    """
    attempts: tuple[RunAttempt, ...]
    """Lists the attempts in the order in which they ended."""
    commit: str = ""
    budget_s: float | None = None
    ended: str = ""
    """Is when the night ended; empty if it still runs, or was killed."""
    exit: int | None = None
    interrupted: bool = False
    left_out: tuple[str, ...] = ()
    """Lists the items that did not run, each with the reason."""
    expect: tuple[ForbiddenAnomalies, ...] = ()
    """Lists the anomalies that the night forbids."""
    accepted: tuple[Mapping[str, str], ...] = ()
    """Lists the findings that were accepted when the night ran: fingerprint, owner, until and why of each, expired ones
    included.
    """
    problems: tuple[str, ...] = field(default=())
    """Lists what could not be read, a sentence each."""

    @property
    def not_run(self) -> tuple[str, ...]:
        """Return the items without an attempt, because they were left out or not reached."""
        tried = {each.item for each in self.attempts}
        return tuple(each for each in self.items if each not in tried)

    @property
    def last(self) -> Mapping[str, int]:
        """Return, for each item, the number of its last attempt, which is the one that counts."""
        found: dict[str, int] = {}
        for each in self.attempts:
            found[each.item] = max(found.get(each.item, 0), each.attempt)
        return found


def read_night(path: Path) -> Night:
    """Return the night in the folder `path`. Raises UnreadableNight; all other damage is listed in `problems`."""
    reported = read_head(path)
    items = {str(each["item"]): each for each in reported.get("items", ()) if isinstance(each, dict) and "item" in each}
    problems: list[str] = []
    if since := reported.get("commits_since"):
        words = ", then ".join(str(each)[:12] or "an unknown one" for each in since)
        problems.append(f"The night went on at another commit ({words}): its runs are not all of the one it began at.")
    attempts = _attempts(path, problems)
    end, matrix = _end(path, problems), reported.get("matrix")
    return Night(
        path=path,
        name=str(reported.get("night") or path.resolve().name),
        began=str(reported.get("began") or ""),
        items=items,
        attempts=attempts,
        commit=str(reported.get("commit") or ""),
        budget_s=_number(reported.get("budget_s")),
        ended=str(end.get("ended") or ""),
        exit=end["exit"] if isinstance(end.get("exit"), int) else None,
        interrupted=bool(end.get("interrupted", False)),
        left_out=tuple(map(_left_out, end.get("left_out") or ())),
        expect=expectations(matrix if isinstance(matrix, dict) else {}),
        accepted=tuple(each for each in reported.get("accepted") or () if isinstance(each, dict)),
        problems=tuple(problems),
    )


def read_head(path: Path) -> dict[str, Any]:
    """Return the content of night.json. Raises UnreadableNight."""
    try:
        reported = json.loads((path / FILE).read_text())
    except FileNotFoundError:
        why = f"no night is there: it has no {FILE}, which `squall nightly` writes first"
        raise UnreadableNight(f"{path}: {why}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableNight(f"{path / FILE} cannot be read: {error}") from None
    if not isinstance(reported, dict) or reported.get("schema") != SCHEMA:
        schema = reported.get("schema") if isinstance(reported, dict) else None
        raise UnreadableNight(
            f"{path / FILE} is of schema {schema!r}, and this version of Squall reads {SCHEMA}: "
            "make the report with the version that wrote it"
        )
    return reported


def _attempts(path: Path, problems: list[str]) -> tuple[RunAttempt, ...]:
    found, unread = parse(_text(path / RESULTS, problems))
    problems += [f"{RESULTS}: line {number} cannot be read, and is left out." for number in unread]
    # If an attempt has two lines, it was recorded again, and the later line counts.
    return tuple({(each.item, each.attempt): each for each in found}.values())


def _end(path: Path, problems: list[str]) -> dict[str, Any]:
    if not (path / END).exists():
        return {}
    try:
        reported = json.loads(_text(path / END, problems))
    except (ValueError, RecursionError):
        problems.append(f"{END} cannot be read: how the night ended is not known.")
        return {}
    return reported if isinstance(reported, dict) else {}


def _text(path: Path, problems: list[str]) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror}.")
        return ""


def _left_out(reported: Any) -> str:
    """Return an item with the reason why it did not run, in words."""
    return f"{reported.get('item')}: {reported.get('why')}" if isinstance(reported, dict) else str(reported)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
