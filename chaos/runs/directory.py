"""The run directory: the only thing that verifying and reporting need of a run (`docs/run-directory.md`)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.errors import Refused

RUNS = Path("runs")
LATEST = "latest"


class RunDirectory:
    """Names of what is in it. Creating one makes it and points `runs/latest` at it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, root: Path, seed: int, *, latest: bool = True) -> RunDirectory:
        """A fresh directory below `root`, named by the time in UTC and the seed. `latest`: point `latest` at it."""
        root.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        for attempt in range(1000):
            path = root / (f"{stamp}-seed{seed}" + (f"-{attempt}" if attempt else ""))
            try:
                path.mkdir()
            except FileExistsError:
                continue
            if latest:
                link = root / LATEST
                link.unlink(missing_ok=True)
                link.symlink_to(path.name)
            return cls(path)
        raise Refused(f"{root}: no free name for a run of seed {seed}")

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing one. Refused where there is none at `path`, or no plan in it."""
        path = path.resolve()
        if not path.is_dir():
            raise Refused(f"{path}: there is no such run directory; `ls {RUNS}` shows those of this checkout")
        if not (path / "plan.toml").exists():
            raise Refused(f"{path}: not a run directory: it has no plan.toml")
        return cls(path)

    @property
    def run_id(self) -> str:
        """The run's name: that of its directory."""
        return self.path.name

    @property
    def plan(self) -> Path:
        """All that is needed to repeat the run."""
        return self.path / "plan.toml"

    @property
    def info(self) -> Path:
        """run.json: versions, phases with their times, convergence, the command that repeats the run."""
        return self.path / "run.json"

    @property
    def history(self) -> Path:
        """Invocations and completions, as they came."""
        return self.path / "history.jsonl"

    @property
    def nemesis(self) -> Path:
        """Each fault: asked, began, ended, evidence."""
        return self.path / "nemesis.jsonl"

    @property
    def nodes(self) -> Path:
        """A folder for each node: its trace, what it printed, its data."""
        return self.path / "nodes"

    @property
    def verdict(self) -> Path:
        """verdict.json."""
        return self.path / "verdict.json"

    @property
    def report(self) -> Path:
        """The page that people read."""
        return self.path / "report.html"

    def write_info(self, info: dict[str, Any]) -> None:
        """Replace run.json whole."""
        fresh = self.info.with_suffix(".new")
        fresh.write_text(json.dumps(info, indent=1) + "\n")
        fresh.replace(self.info)

    def read_info(self) -> dict[str, Any]:
        """run.json, empty where the run did not come so far."""
        try:
            found = json.loads(self.info.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
