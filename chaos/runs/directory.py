"""Defines the run directory, which holds all that the verdict and the report need from a run (`docs/run-directory.md`).
"""

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
"""Gives how many bytes of a file are read to guess what it is, if a user names it in place of a run directory."""
RESERVE_BYTES = 8 << 20
"""Gives the bytes of disk space that are reserved during a run, so that a full disk still has space for the verdict."""


class RunDirectory:
    """Gives the paths of a run's files. `create` makes a new directory and points `runs/latest` at it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reserve: int | None = None
        """Is the descriptor of a file without a name, which holds the reserved space. The system frees this space even
        if the harness is killed.
        """

    @classmethod
    def create(cls, root: Path, seed: int, *, latest: bool = True, label: str = "") -> RunDirectory:
        """Create a directory below `root`, named by the time in UTC and a label, or by the seed if there is no label.
        latest: point the link `latest` at it.
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
        """Return an existing run directory, given by a path, or by the name of a run in `runs`. Raise PreconditionError
        if it does not exist, or holds no plan.
        """
        if path.name == str(path) and not path.exists() and (runs / path / "plan.toml").exists():
            path = runs / path
        path = path.resolve()
        if not (path / "plan.toml").exists():
            raise PreconditionError(_no_run(path))
        return cls(path)

    @property
    def run_id(self) -> str:
        """Returns the run's name, which is its directory's name."""
        return self.path.name

    @property
    def plan(self) -> Path:
        """Returns the path of the plan, which holds everything that is needed to repeat the run."""
        return self.path / "plan.toml"

    @property
    def info(self) -> Path:
        """Returns the path of run.json: versions, phases with their times, convergence, the command that repeats the
        run.
        """
        return self.path / "run.json"

    @property
    def history(self) -> Path:
        """Returns the path of history.jsonl: invocations and completions of operations, in the order in which they were
        recorded.
        """
        return self.path / "history.jsonl"

    @property
    def nemesis(self) -> Path:
        """Returns the path of nemesis.jsonl, which says for each fault when it was requested, began and ended, and what
        proves its effect.
        """
        return self.path / "nemesis.jsonl"

    @property
    def polled(self) -> Path:
        """Returns the path of polled.jsonl: leaders, epochs and ISRs that a cluster run by somebody else reported when
        polled.
        """
        return self.path / "polled.jsonl"

    @property
    def nodes(self) -> Path:
        """Returns the path of the folder that has a folder for each node: its trace, its output, its data."""
        return self.path / "nodes"

    @property
    def verdict(self) -> Path:
        """Returns the path of verdict.json."""
        return self.path / "verdict.json"

    @property
    def report(self) -> Path:
        """Returns the path of the page that people read."""
        return self.path / "report.html"

    def reserve(self) -> None:
        """Reserve disk space for the verdict. Raise PreconditionError if the disk has none."""
        self.release()
        try:
            self._reserve = _unnamed(self.path)
            # Not `ftruncate`, which makes a hole and reserves nothing.
            os.posix_fallocate(self._reserve, 0, RESERVE_BYTES)
        except OSError as full:
            self.release()
            raise PreconditionError(
                f"{self.path}: not even {RESERVE_BYTES >> 20} MiB can be written: {full.strerror}"
            ) from None

    def release(self) -> None:
        """Free the reserved disk space for the next writer. Idempotent."""
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def write_info(self, info: dict[str, Any]) -> None:
        """Replace run.json as a whole."""
        # By a rename, so that a harness that is killed meanwhile leaves a complete run.json.
        fresh = self.info.with_suffix(".new")
        fresh.write_text(json.dumps(info, indent=1) + "\n")
        fresh.replace(self.info)

    def read_info(self) -> dict[str, Any]:
        """Return the content of run.json, or {} if the run ended before it wrote the file."""
        try:
            found = json.loads(self.info.read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def _no_run(path: Path) -> str:
    """Return why a path is no run directory, and what to name instead."""
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
    """Return whether a file holds Clojure's maps, whose keys begin with a colon; JSON's keys begin with a quote."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(HEAD_BYTES)
    return path.suffix == ".edn" or re.match(rb"[\s\[]*(#[\w.]+\s*)?\{\s*:", begin) is not None


def _unnamed(folder: Path) -> int:
    """Create a file without a name on this folder's file system, which vanishes when it is closed, and return its
    descriptor. Raises OSError.
    """
    descriptor, name = tempfile.mkstemp(prefix=".reserve-", dir=folder)
    os.unlink(name)
    return descriptor


TOO_SMALL = "MiB are free there, and this run may write"
"""Is a part of the message that refuses a run for lack of disk space."""


def writable(root: Path, needed_bytes: int = 0) -> None:
    """Create the folder `root` for run directories. Raise PreconditionError if it cannot be created, is not writable,
    or lacks disk space.
    """
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
