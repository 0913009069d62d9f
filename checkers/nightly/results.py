"""Reads and writes the results of a night's runs: results.jsonl has a line for each attempt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

VALID, INVALID, UNKNOWN, NO_VERDICT = "valid", "invalid", "unknown", "no verdict"
VERDICTS = (INVALID, UNKNOWN, NO_VERDICT, VALID)
"""Lists the verdicts, the gravest first."""


@dataclass(frozen=True, slots=True)
class RunAttempt:
    """Describes one attempt to run one item of a night."""

    item: str
    attempt: int
    """Numbers the attempts to run the same item, from 1. An item may be run again if its verdict was `unknown`."""
    verdict: str
    """Is the verdict on the run: "valid", "invalid" or "unknown"; "no verdict" if the run was not judged, for example
    because it took too long and was ended.
    """
    exit: int
    """Is the exit code of the process that executed the run."""
    run: str
    """Is the run directory, relative to the night's folder; empty if none was made."""
    began: str
    """Is when the attempt began, in ISO format and UTC."""
    seconds: float
    why: str
    """Says in a sentence why the attempt is not valid; empty if it is."""
    unexpected: tuple[str, ...] = ()
    """Lists found anomalies that the run's configuration permits, but the night forbids: by the option --never, or by
    [[expect]] in its test matrix.
    """
    bytes: int = 0
    """Is the size of the run directory, in bytes. If the run is valid, files that nothing reads any more were removed
    before.
    """
    permitted_loss: str = ""
    """Says in a line which acknowledged records were lost as the configuration permits; empty if none were."""

    @property
    def proven(self) -> bool:
        """Return whether the attempt has a verdict on the cluster: valid or invalid."""
        return self.verdict in (VALID, INVALID)

    @property
    def fails(self) -> bool:
        """Return whether the attempt found something that is not permitted."""
        return self.verdict == INVALID or bool(self.unexpected)

    def line(self) -> str:
        """Return the attempt as a line of results.jsonl."""
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"


def forbidden(anomalies: Iterable[str]) -> str:
    """Return a sentence that lists these anomalies and says that the configuration permits them, but the night forbids
    them: by the option --never, or by [[expect]] in its test matrix.
    """
    return f"{', '.join(anomalies)}: the configuration permits it, but this night forbids it (--never or [[expect]])"


def parse(content: str) -> tuple[list[RunAttempt], list[int]]:
    """Return the attempts in the content of a results.jsonl, and the numbers of the lines that cannot be read, for
    example because a session was killed while it wrote one.
    """
    found, unread = [], []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            found.append(_attempt(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            unread.append(number)
    return found, unread


def _attempt(reported: Mapping[str, Any]) -> RunAttempt:
    verdict, began = reported["verdict"], str(reported["began"])
    datetime.fromisoformat(began)
    return RunAttempt(
        item=str(reported["item"]),
        attempt=int(reported["attempt"]),
        verdict=verdict if verdict in VERDICTS else NO_VERDICT,
        exit=int(reported["exit"]),
        run=str(reported["run"] or ""),
        began=began,
        seconds=float(reported["seconds"]),
        why=str(reported["why"] or ""),
        unexpected=tuple(map(str, reported.get("unexpected") or ())),
        bytes=int(reported.get("bytes") or 0),
        permitted_loss=str(reported.get("permitted_loss") or ""),
    )


def by_item(attempts: Iterable[RunAttempt]) -> dict[str, list[RunAttempt]]:
    """Return the attempts of each item, the first attempt first."""
    found: dict[str, list[RunAttempt]] = {}
    for each in attempts:
        found.setdefault(each.item, []).append(each)
    return found
