"""Where the files of one node of real brokers are, whatever its broker runs in."""

from __future__ import annotations

from pathlib import Path


class NodeFolder:
    """Part of a runtime's node. `folder` is nodes/N of the run directory."""

    folder: Path

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.folder / "broker.log"

    @property
    def trace(self) -> Path:
        """Its trace."""
        return self.folder / "trace.jsonl"

    @property
    def data(self) -> Path:
        """Its log directory."""
        return self.folder / "data"

    @property
    def clock(self) -> Path:
        """The file that bends its wall clock."""
        return self.folder / "clock-offset"
