"""What came of the runs of a night: a line of results.jsonl for each attempt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

VALID, INVALID, UNKNOWN, NO_VERDICT = "valid", "invalid", "unknown", "no verdict"
VERDICTS = (INVALID, UNKNOWN, NO_VERDICT, VALID)
"""The gravest first."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one item."""

    item: str
    attempt: int
    """From 1."""
    verdict: str
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

    @property
    def proven(self) -> bool:
        """Whether it says something of the cluster."""
        return self.verdict in (VALID, INVALID)

    @property
    def fails(self) -> bool:
        """Whether it found what was not permitted."""
        return self.verdict == INVALID or bool(self.unexpected)

    def line(self) -> str:
        """As a line of results.jsonl."""
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"


def parse(content: str) -> list[Attempt]:
    """The attempts in a results.jsonl. A last line that was not written to its end is left out."""
    found = []
    for line in content.splitlines():
        try:
            told = json.loads(line)
            found.append(_attempt(told))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _attempt(told: Mapping[str, Any]) -> Attempt:
    plain = {name: told[name] for name in ("item", "attempt", "verdict", "exit", "run", "began", "seconds", "why")}
    return Attempt(**plain, unexpected=tuple(told.get("unexpected", ())), bytes=int(told.get("bytes", 0)))


def by_item(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    """Item -> its attempts, the first one first."""
    found: dict[str, list[Attempt]] = {}
    for each in attempts:
        found.setdefault(each.item, []).append(each)
    return found


def finished(attempts: Sequence[Attempt], retries: int, *, repeats: bool) -> bool:
    """Whether an item needs no further attempt. `repeats`: it would end the same, as a simulation does."""
    if not attempts:
        return False
    return attempts[-1].verdict != UNKNOWN or repeats or len(attempts) > retries
