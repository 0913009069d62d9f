"""Waiting for a line of a broker's trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class TraceTail:
    """Reads a trace from the end that it has when this object is made. A partial line is read once it is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() else 0

    def events(self) -> list[dict[str, Any]]:
        """The lines since the last call, in order. Empty if the file does not exist yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        whole, _, _ = data.rpartition(b"\n")
        self._at += len(whole) + 1 if whole else 0
        return [json.loads(line) for line in whole.splitlines() if line]
