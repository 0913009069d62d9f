"""Names the files of one node of a real cluster, the same for processes and containers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """Gives the paths of one node's files, which are in the folder nodes/N of the run directory."""

    path: Path

    @property
    def config(self) -> Path:
        """Returns the path of the .properties file of the latest incarnation."""
        return self.path / "broker.properties"

    @property
    def log(self) -> Path:
        """Returns the path of the broker's output."""
        return self.path / "broker.log"

    @property
    def trace(self) -> Path:
        """Returns the path of trace.jsonl, to which a Squall broker writes its events, one JSON object a line."""
        return self.path / "trace.jsonl"

    @property
    def data(self) -> Path:
        """Returns the path of the node's log directory."""
        return self.path / "data"

    @property
    def clock(self) -> Path:
        """Returns the path of the file that changes the broker's wall clock."""
        return self.path / "clock-offset"

    @property
    def faults(self) -> Path:
        """Returns the path of the folder for disk faults: the harness writes its commands there, and the broker its
        results. It is used only if the broker is started with `--faults`.
        """
        return self.path / "faults"

    @property
    def incarnation(self) -> int:
        """Counts the starts of the node; 0 if it was never started."""
        try:
            return int((self.path / "incarnation").read_text())
        except FileNotFoundError:
            return 0

    def begin_incarnation(self) -> int:
        """Count one more start of the node. Returns the number of the new incarnation."""
        self.data.mkdir(parents=True, exist_ok=True)
        incarnation = self.incarnation + 1
        (self.path / "incarnation").write_text(f"{incarnation}\n")
        return incarnation

    def bend_clock(self, offset_ms: float, rate: float) -> None:
        """Write the file that changes the broker's wall clock. The file is replaced by a rename, so that the broker
        always reads a complete one.
        """
        fresh = self.clock.with_suffix(".new")
        fresh.write_text(f"{offset_ms:.3f} {rate:.6f}\n")
        fresh.replace(self.clock)
