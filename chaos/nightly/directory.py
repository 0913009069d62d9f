"""Names, reads and writes the files in the folder of a night (`docs/nightly.md`)."""

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
from squall.checkers.nightly.night import END, FILE, RESULTS, UnreadableNight, read_head
from squall.checkers.nightly.results import RunAttempt, parse

NIGHTS = Path("nights")
GOES = ("nodes", "spark.log", "clients.log")
"""Lists the files and folders that are removed from the directory of a valid run. Its history, nemesis.jsonl,
verdict.json and report.html stay, because reports need them.
"""
STORIES = ("trace.jsonl", "broker.log")
"""Lists the files of each node that stay if a valid run has permitted findings, because `squall explain` reads them."""


class NightDirectory:
    """Gives access to the files in the folder of one night."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def existing_folder(self) -> Path:
        """Return the night's folder, or the nearest parent of it that exists."""
        path = self.path.absolute()
        return next(each for each in (path, *path.parents) if each.is_dir())

    @property
    def night(self) -> Path:
        """Returns the path of night.json, which holds the whole plan, in the order of playing."""
        return self.path / FILE

    @property
    def matrix(self) -> Path:
        """Returns the path of the matrix from which the night was planned."""
        return self.path / "matrix.toml"

    @property
    def results(self) -> Path:
        """Returns the path of results.jsonl, which gets a line for each attempt as soon as the attempt has ended."""
        return self.path / RESULTS

    @property
    def end(self) -> Path:
        """Returns the path of end.json, which exists once the night has ended."""
        return self.path / END

    @property
    def runs(self) -> Path:
        """Returns the folder of the run directories."""
        return self.path / "runs"

    @property
    def logs(self) -> Path:
        """Returns the folder of the output of each run."""
        return self.path / "said"

    @property
    def allure(self) -> Path:
        """Returns the folder of the results of allure-pytest."""
        return self.path / "allure-results"

    @property
    def junit(self) -> Path:
        """Returns the path of the JUnit report for CI."""
        return self.path / "junit.xml"

    @property
    def summary(self) -> Path:
        """Returns the path of the night's summary in Markdown."""
        return self.path / "summary.md"

    @property
    def facts(self) -> Path:
        """Returns the path of summary.json, the night's summary for programs."""
        return self.path / "summary.json"

    def bytes_outside_runs(self) -> int:
        """Return the size of everything but the run directories: Allure's results and page, the output of runs, the
        report.
        """
        return sum(
            bytes_of(each) if each.is_dir() else each.lstat().st_size
            for each in (self.path.iterdir() if self.path.is_dir() else ())
            if each.name not in (self.runs.name, full_disk.RESERVE)
        )

    def write(self, path: Path, content: Mapping[str, Any]) -> None:
        """Write a JSON file, replacing the whole file at once."""
        write_whole(path, json.dumps(content, indent=1) + "\n")

    def planned(self) -> tuple[dict[str, Any], list[PlannedRun]]:
        """Return night.json and its items. Raise PreconditionError if night.json cannot be read."""
        try:
            plan = read_head(self.path)
            return plan, [item_of(each) for each in plan["items"]]
        except UnreadableNight as nothing:
            raise PreconditionError(str(nothing)) from None
        except (KeyError, TypeError) as error:
            raise PreconditionError(f"{self.night}: its items cannot be read: {error}") from None

    def attempts(self) -> list[RunAttempt]:
        """Return the attempts that have ended so far."""
        return parse(self.results.read_text(errors="replace"))[0] if self.results.exists() else []

    def report_s(self) -> float | None:
        """Return the seconds that the night's report took; None if the night made none."""
        try:
            return float(json.loads(self.facts.read_text())["report_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def add(self, attempt: RunAttempt) -> None:
        """Append an attempt that has ended to results.jsonl, and sync it to disk. If OSError is raised, nothing was
        appended.
        """
        append_line(self.results, attempt.line())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the night for this session during the block, and reserve some disk space. Raise PreconditionError if
        another session has the lock, if there is no space, or if the folder cannot be made.
        """
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
    """Append a line to a file, and sync it to disk. If OSError is raised, nothing was appended."""
    # Unbuffered: an error is raised here, and not when the file is closed.
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
    """Replace a file at once: a reader sees either the old content or the new content."""
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def nights_beside(path: Path) -> list[NightDirectory]:
    """Return the other nights in the same folder, the newest first."""
    if not path.parent.is_dir():
        return []
    folders = [each for each in path.parent.iterdir() if each != path and (each / FILE).exists()]
    return [NightDirectory(each) for each in sorted(folders, key=_began, reverse=True)]


def _began(folder: Path) -> tuple[str, str]:
    """Return the sort key of a night: the time at which it began, and the name of its folder. A night that cannot be
    read has an empty time, so it sorts as the oldest.
    """
    try:
        return str(read_head(folder).get("began") or ""), folder.name
    except UnreadableNight:
        return "", folder.name


def thin(run: Path, *, found: bool = False) -> None:
    """Remove those files of a valid run that nothing reads any more. found: the run has permitted findings, so the
    files that `squall explain` reads stay (STORIES).
    """
    goes = [run / name for name in GOES]
    if found and (run / "nodes").is_dir():
        goes = [each for each in goes if each.name != "nodes"]
        goes += [each for node in (run / "nodes").iterdir() if node.is_dir() for each in node.iterdir()
                 if each.name not in STORIES]  # fmt: skip
    for place in goes:
        # rmtree refuses a link, and the folder behind it is none of the run's.
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


def bytes_of(folder: Path) -> int:
    """Return the size of all files in a folder, in bytes."""
    return sum(each.lstat().st_size for each in folder.rglob("*") if each.is_file() and not each.is_symlink())
