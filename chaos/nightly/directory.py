"""The folder of a night (`docs/nightly.md`): what was planned, what came of it, and the runs themselves."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from squall.chaos.errors import PreconditionError
from squall.chaos.nightly import full_disk
from squall.chaos.nightly.items import PlannedRun, item_of
from squall.checkers.nightly.night import END, FILE, RESULTS, NoNight, read_head
from squall.checkers.nightly.results import Attempt, parse

NIGHTS = Path("nights")
GOES = ("nodes", "spark.log", "clients.log")
"""What is removed of a valid run. History, nemesis.jsonl, verdict.json and the page stay: reports are made of them."""
STORIES = ("trace.jsonl", "broker.log")
"""Of each node of a valid run that found what is permitted: `squall explain` tells of brokers by these."""


class NightDirectory:
    """The names of the files in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def existing_folder(self) -> Path:
        """It, or the nearest folder above it that there is already."""
        path = self.path.absolute()
        return next(each for each in (path, *path.parents) if each.is_dir())

    @property
    def night(self) -> Path:
        """night.json: all that was planned, in the order of running."""
        return self.path / FILE

    @property
    def matrix(self) -> Path:
        """The matrix as it was run."""
        return self.path / "matrix.toml"

    @property
    def results(self) -> Path:
        """results.jsonl: a line for each attempt, as soon as it ended."""
        return self.path / RESULTS

    @property
    def end(self) -> Path:
        """end.json: there is one once the night has ended."""
        return self.path / END

    @property
    def runs(self) -> Path:
        """The run directories."""
        return self.path / "runs"

    @property
    def logs(self) -> Path:
        """Folder of what each run printed."""
        return self.path / "said"

    @property
    def allure(self) -> Path:
        """Results of allure-pytest."""
        return self.path / "allure-results"

    @property
    def junit(self) -> Path:
        """Return the path of the JUnit report for CI."""
        return self.path / "junit.xml"

    @property
    def summary(self) -> Path:
        """The night in Markdown."""
        return self.path / "summary.md"

    @property
    def facts(self) -> Path:
        """summary.json: the same for programs."""
        return self.path / "summary.json"

    def bytes_outside_runs(self) -> int:
        """Of everything but the run directories: Allure's results and page, what runs printed, the report."""
        return sum(
            bytes_of(each) if each.is_dir() else each.lstat().st_size
            for each in (self.path.iterdir() if self.path.is_dir() else ())
            if each.name not in (self.runs.name, full_disk.RESERVE)
        )

    def write(self, path: Path, told: Mapping[str, Any]) -> None:
        """Replace a JSON file whole."""
        write_whole(path, json.dumps(told, indent=1) + "\n")

    def planned(self) -> tuple[dict[str, Any], list[PlannedRun]]:
        """night.json, and its items. Refused where it cannot be read."""
        try:
            told = read_head(self.path)
            return told, [item_of(each) for each in told["items"]]
        except NoNight as nothing:
            raise PreconditionError(str(nothing)) from None
        except (KeyError, TypeError) as error:
            raise PreconditionError(f"{self.night}: its items cannot be read: {error}") from None

    def attempts(self) -> list[Attempt]:
        """Return the attempts that have ended so far."""
        return parse(self.results.read_text(errors="replace"))[0] if self.results.exists() else []

    def report_s(self) -> float | None:
        """Seconds that its report took; None: it made none."""
        try:
            return float(json.loads(self.facts.read_text())["report_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def add(self, attempt: Attempt) -> None:
        """Note an attempt that has ended, so that it is there whatever happens next. OSError: nothing is noted."""
        append_line(self.results, attempt.line())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """This session alone works on it, and has some room kept back. Refused if another session works on it, if there
        is no room, or if the folder cannot be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise PreconditionError(f"{self.path}: the night's folder cannot be made: {error.strerror}") from None
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PreconditionError(f"{self.path}: another session is at work on this night") from None
            try:
                self._keep_room()
                yield
            finally:
                full_disk.give_back(self.path)

    def _keep_room(self) -> None:
        try:
            full_disk.reserve(self.path)
        except OSError as error:
            if not full_disk.is_full(error):
                raise
            raise PreconditionError(f"{full_disk.sentence(self.path)}: make room, or name another folder") from None


def append_line(path: Path, text: str) -> None:
    """Add a line to a file, and have it on disk. OSError: nothing was added."""
    with path.open("ab+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        line = text.encode()
        if size and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
            line = b"\n" + line  # a session was killed in the middle of a line
        try:
            while line:
                line = line[file.write(line) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(size)  # half a line would be no result, and would be complained of
            raise


def write_whole(path: Path, text: str) -> None:
    """Replace a file whole: a reader sees the old one or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def nights_beside(path: Path) -> list[NightDirectory]:
    """The other nights in the same folder, the newest first."""
    if not path.parent.is_dir():
        return []
    folders = [each for each in path.parent.iterdir() if each != path and (each / FILE).exists()]
    return [NightDirectory(each) for each in sorted(folders, key=_began, reverse=True)]


def _began(folder: Path) -> tuple[str, str]:
    """By when nights are in order; one that cannot be read is the oldest."""
    try:
        return str(read_head(folder).get("began") or ""), folder.name
    except NoNight:
        return "", folder.name


def thin(run: Path, *, found: bool = False) -> None:
    """Remove the files of a valid run that are not read again. found: it has findings, all of them permitted, which
    have stories.
    """
    goes = [run / name for name in GOES]
    if found and (run / "nodes").is_dir():
        goes = [each for each in goes if each.name != "nodes"]
        goes += [each for node in (run / "nodes").iterdir() if node.is_dir() for each in node.iterdir()
                 if each.name not in STORIES]  # fmt: skip
    for place in goes:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


def bytes_of(folder: Path) -> int:
    """Return the size of all files in a folder, in bytes."""
    return sum(each.lstat().st_size for each in folder.rglob("*") if each.is_file() and not each.is_symlink())
