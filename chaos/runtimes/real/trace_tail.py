"""Waiting for a line of a broker's trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class TraceTail:
    """Reads a trace from where it ends when this is made. A line that is not whole yet is read when it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() else 0

    def events(self) -> list[dict[str, Any]]:
        """The lines since the last call, in order. Empty where the file does not exist yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        whole, _, _ = data.rpartition(b"\n")
        self._at += len(whole) + 1 if whole else 0
        return [json.loads(line) for line in whole.splitlines() if line]
