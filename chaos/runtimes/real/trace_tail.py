"""Waits for a line of a broker's trace, and finds out how a broker that was asked to stop has shut down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

LEAVING = ("node_stopping", "node_stopped")


class ShutdownReport(NamedTuple):
    """Describes how a broker that was asked to stop has shut down, by its own trace or log. `said`: the events of the
    shutdown that it wrote there.
    """

    controlled: bool
    """Is True if the broker's controller permitted the shutdown."""
    alone: bool
    """Is True if the broker shut down without permission, because no controller answered."""
    said: list[str]


class TraceTail:
    """Reads the lines that are added to a trace after this object was made. A partial line is read once it is complete.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() else 0

    def events(self) -> list[dict[str, Any]]:
        """Return the lines that were added since the previous call, in order, each parsed as JSON. Empty if the file
        does not exist yet.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        whole, _, _ = data.rpartition(b"\n")
        self._at += len(whole) + 1 if whole else 0
        return [json.loads(line) for line in whole.splitlines() if line]

    def shutdown_report(self, code: int) -> ShutdownReport:
        """Return how a broker that ended with `code` shut down. A broker also stops if its controller does not permit
        the shutdown in time; it then traces the reason.
        """
        said = [event for event in self.events() if event["e"] in LEAVING]
        words = said[-1] if code == 0 and said and said[-1]["e"] == "node_stopped" else {"controlled": False}
        return ShutdownReport(words.get("controlled", True), words.get("alone", False), [event["e"] for event in said])
