"""Reads the results of the runs of a night: a line of results.jsonl for each attempt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

VALID, INVALID, UNKNOWN, NO_VERDICT = "valid", "invalid", "unknown", "no verdict"
VERDICTS = (INVALID, UNKNOWN, NO_VERDICT, VALID)
"""The gravest first."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Describes one attempt at one item."""

    item: str
    attempt: int
    """Its number, from 1."""
    verdict: str
    """One of VERDICTS."""
    exit: int
    """Of the command."""
    run: str
    """The run directory, from the night's folder on; empty where none was made."""
    began: str
    """ISO, UTC."""
    seconds: float
    why: str
    """Why it is not valid, in a sentence; empty where it is."""
    unexpected: tuple[str, ...] = ()
    """Anomalies that the run permits and the matrix's expectations do not."""
    bytes: int = 0
    """Of the run directory, after thinning."""
    permitted_loss: str = ""
    """The acknowledged records that it lost as its configuration permits, in a line; empty where there are none."""

    @property
    def proven(self) -> bool:
        """Return whether it says something of the cluster."""
        return self.verdict in (VALID, INVALID)

    @property
    def fails(self) -> bool:
        """Return whether it found what was not permitted."""
        return self.verdict == INVALID or bool(self.unexpected)

    def line(self) -> str:
        """Return it as a line of results.jsonl."""
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"


def forbidden(anomalies: Iterable[str]) -> str:
    """The sentence about anomalies that a configuration permits and the matrix of its night does not."""
    return f"{', '.join(anomalies)}: the configuration permits it, but this night forbids it (--never or [[expect]])"


def parse(content: str) -> tuple[list[Attempt], list[int]]:
    """The attempts in a results.jsonl, and the numbers of the lines that are none: a session was killed in one, say."""
    found, unread = [], []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            found.append(_attempt(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            unread.append(number)
    return found, unread


def _attempt(told: Mapping[str, Any]) -> Attempt:
    verdict, began = told["verdict"], str(told["began"])
    datetime.fromisoformat(began)
    return Attempt(
        item=str(told["item"]),
        attempt=int(told["attempt"]),
        verdict=verdict if verdict in VERDICTS else NO_VERDICT,
        exit=int(told["exit"]),
        run=str(told["run"] or ""),
        began=began,
        seconds=float(told["seconds"]),
        why=str(told["why"] or ""),
        unexpected=tuple(map(str, told.get("unexpected") or ())),
        bytes=int(told.get("bytes") or 0),
        permitted_loss=str(told.get("permitted_loss") or ""),
    )


def by_item(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    """Item -> its attempts, the first one first."""
    found: dict[str, list[Attempt]] = {}
    for each in attempts:
        found.setdefault(each.item, []).append(each)
    return found
