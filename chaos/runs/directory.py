"""The run directory: all that the verdict and the report need from a run (`docs/run-directory.md`)."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from squall.chaos.errors import PreconditionError
from squall.chaos.typed import place, typed

RUNS = Path("runs")
LATEST = "latest"
HEAD_BYTES = 200
"""Of a file that is no run: enough to see what it is."""
RESERVE_BYTES = 8 << 20
"""Room reserved during a run, so that a full disk still has space for the verdict."""


class RunDirectory:
    """The names of the files in it. `create` makes a new directory and points `runs/latest` at it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reserve: int | None = None
        """A file without a name: the system frees it, too, when a harness ends that could not."""

    @classmethod
    def create(cls, root: Path, seed: int, *, latest: bool = True, label: str = "") -> RunDirectory:
        """A fresh directory below `root`, named by the time in UTC and a label, else the seed. `latest`: point `latest`
        at it.
        """
        writable(root)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        for attempt in range(1000):
            path = root / (f"{stamp}-{label or f'seed{seed}'}" + (f"-{attempt}" if attempt else ""))
            try:
                path.mkdir()
            except FileExistsError:
                continue
            if latest:
                link = root / LATEST
                link.unlink(missing_ok=True)
                link.symlink_to(path.name)
            return cls(path)
        raise PreconditionError(f"{root}: no free name for a run of seed {seed}")

    @classmethod
    def open(cls, path: Path, runs: Path = RUNS) -> RunDirectory:
        """An existing run directory: a path, or the name of a run in `runs`. Refused if it does not exist, or holds no
        plan.
        """
        if path.name == str(path) and not path.exists() and (runs / path / "plan.toml").exists():
            path = runs / path
        path = path.resolve()
        if not (path / "plan.toml").exists():
            raise PreconditionError(_no_run(path))
        return cls(path)

    @property
    def run_id(self) -> str:
        """The run's name: that of its directory."""
        return self.path.name

    @property
    def plan(self) -> Path:
        """The plan: everything that is needed to repeat the run."""
        return self.path / "plan.toml"

    @property
    def info(self) -> Path:
        """run.json: versions, phases with their times, convergence, the command that repeats the run."""
        return self.path / "run.json"

    @property
    def history(self) -> Path:
        """Invocations and completions, in the order of their arrival."""
        return self.path / "history.jsonl"

    @property
    def nemesis(self) -> Path:
        """Return the path of nemesis.jsonl, which says of each fault: asked, began, ended, evidence."""
        return self.path / "nemesis.jsonl"

    @property
    def polled(self) -> Path:
        """Leaders, epochs and ISRs of a cluster that somebody else runs, as it said when it was asked."""
        return self.path / "polled.jsonl"

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

    def reserve(self) -> None:
        """Reserve the room for the verdict. Refused if the disk has none."""
        self.release()
        try:
            self._reserve = _unnamed(self.path)
            os.posix_fallocate(self._reserve, 0, RESERVE_BYTES)
        except OSError as full:
            self.release()
            raise PreconditionError(
                f"{self.path}: not even {RESERVE_BYTES >> 20} MiB can be written: {full.strerror}"
            ) from None

    def release(self) -> None:
        """Free the reserved room for the next writer. Idempotent."""
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def write_info(self, info: dict[str, Any]) -> None:
        """Replace run.json whole."""
        fresh = self.info.with_suffix(".new")
        fresh.write_text(json.dumps(info, indent=1) + "\n")
        fresh.replace(self.info)

    def read_info(self) -> dict[str, Any]:
        """The content of run.json. Empty if the run ended before it wrote one."""
        try:
            found = json.loads(self.info.read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def _no_run(path: Path) -> str:
    """Why a path is no run directory, and what to name instead."""
    if path == (RUNS / LATEST).resolve():
        return f"{RUNS / LATEST}: there is no run here yet; `squall run` makes one"
    if not path.exists():
        return f"{path}: there is no such run directory; `squall runs` shows those of {RUNS}/"
    if found := next((each for each in (path, *sorted(path.glob("*.edn"))) if _is_edn(each)), None):
        return (
            f"{found}: this is EDN, as Jepsen writes histories, and Squall judges its run directories (history.jsonl): "
            "judge it with Jepsen's checkers, or write its operations as docs/run-directory.md says"
        )
    if path.is_file():
        return f"{path}: this is a file; name the directory of a run: `squall runs` shows those of {RUNS}/"
    if (path / "night.json").exists():
        return (
            f"{path}: this is a night, with a page of its own ({typed('report', '--nightly', path)}); "
            f"its runs are in {place(path / 'runs')}"
        )
    if within := next(path.glob("*/plan.toml"), None):
        return f"{path}: this is a folder of runs; name one of them, such as {within.parent}"
    return f"{path}: not a run directory: it has no plan.toml"


def _is_edn(path: Path) -> bool:
    """Return whether a file holds Clojure's maps: their keys begin with a colon, those of JSON with a quote."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(HEAD_BYTES)
    return path.suffix == ".edn" or re.match(rb"[\s\[]*(#[\w.]+\s*)?\{\s*:", begin) is not None


def _unnamed(folder: Path) -> int:
    """A file descriptor of a new file of this file system, which has no name. OSError."""
    descriptor, name = tempfile.mkstemp(prefix=".reserve-", dir=folder)
    os.unlink(name)
    return descriptor


TOO_SMALL = "MiB are free there, and this run may write"
"""What a run says that is refused for want of room."""


def writable(root: Path, needed_bytes: int = 0) -> None:
    """Make the folder `root` for run directories. Refused if it cannot be made, is not writable, or lacks the room."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe = root / f".writable-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        why = f"no run directory can be made there: {error.strerror}"
        raise PreconditionError(f"--runs {root}: {why}: name another folder") from None
    free = shutil.disk_usage(root).free
    if free < needed_bytes:
        raise PreconditionError(
            f"--runs {root}: {free >> 20} {TOO_SMALL} {needed_bytes >> 20} MiB: "
            "make room (`rm -r` of old runs), name another folder, or take a smaller load (--rate, --time)"
        )
