"""Keeps the folder of a load: who may write into it, what it holds, and which of its files count.

    lake/topic=orders/partition=0/part-*.parquet   the rows
    lake/_spark_metadata/                          Spark's log of the files that were committed
    lake/_checkpoint/                              Spark's checkpoint: the offsets of each batch
    lake/_squall/load.json, ranges/, lock, jvm.json   what was asked for, what each task read, a lock, the JVM's process

Readers pass over names that begin with an underscore. Files of a batch that was never committed are removed before the
next batch is written, so that readers which do not know Spark's log find each row once.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

from squall.workloads.load.ranges import OffsetRange
from squall.workloads.load.reading import GoneOffsets, LoadError, RangeReader, SkippedOffsets

OWN: Final = "_squall"
CHECKPOINT: Final = "_checkpoint"
SPARK_LOG: Final = "_spark_metadata"
RANGES: Final = "ranges"


class FolderError(LoadError):
    """Says why a load cannot write into a folder."""


class LoadFolder:
    """Represents the folder of a load."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint, self.ranges = path / CHECKPOINT, path / OWN / RANGES
        self._asked = path / OWN / "load.json"
        self.jvm = path / OWN / "jvm.json"
        """Names the process of the last load's JVM."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other loads out until the block ends, or this process does. Raises FolderError if one is at work, and if
        the folder cannot be made or has files of others in it.
        """
        try:
            others = sorted(each.name for each in self.path.iterdir()) if self.path.exists() else []
            if others and not self._asked.parent.exists():
                raise FolderError(f"{self.path} is not empty, and not the folder of a load: {', '.join(others[:3])}")
            self.ranges.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise FolderError(f"{self.path}: {problem.strerror}") from problem
        with (self.path / OWN / "lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise FolderError(
                    f"{self.path}: another load writes into this folder (process {lock.read().strip() or 'unknown'}); "
                    "wait for its end, or choose another folder"
                ) from None
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    def claim(self, asked: Mapping[str, str]) -> bool:
        """Note what a load was asked for, and return whether it continues an earlier one, which has planned a batch.
        Raises FolderError if that one was asked for something else.
        """
        if not any((self.checkpoint / "offsets").glob("[0-9]*")):
            write_json(self._asked, asked)
            return False
        before = json.loads(self._asked.read_text())
        for name, value in asked.items():
            if before.get(name) != value:
                raise FolderError(
                    f"{self.path}: this folder was loaded with {name} {before.get(name)}, and {value} is asked for; "
                    "ask for the same, or choose another folder"
                )
        return True

    def remove_uncommitted(self) -> int:
        """Remove Spark's Parquet files that its log does not have. Return how many there were. Raises FolderError if
        the log has files that are not in this folder.
        """
        committed, here = self._committed(), self.path.resolve()
        if outside := [file for file in committed if here not in file.parents]:
            raise FolderError(
                f"{self.path}: Spark's log has {outside[0]}, which is not in this folder: it was moved or copied, and "
                "Spark knows files by their place; move it back, or load into another folder"
            )
        files = self.path.glob("topic=*/partition=*/part-*.parquet")
        found = [file for file in files if file.resolve() not in committed]
        for file in found:
            file.unlink()
            # Spark's checksum file of a local file system.
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        return len(found)

    def read_ranges(self, seen: set[str]) -> Iterator[tuple[OffsetRange, Mapping[str, Any]]]:
        """Yield the ranges that tasks have read to their ends, with what each found. Files named in `seen` are left
        out, and the others added to it: a second attempt of a task writes the same again.
        """
        for file in sorted(self.ranges.glob("*/*.json")):
            if str(file) in seen:
                continue
            seen.add(str(file))
            found = json.loads(file.read_text())
            yield OffsetRange(found["topic"], found["partition"], found["start"], found["end"]), found

    def _committed(self) -> set[Path]:
        found: set[Path] = set()
        for log in (self.path / SPARK_LOG).glob("[0-9]*"):
            for line in log.read_text().splitlines()[1:]:  # the first line is the format's version
                entry = json.loads(line)
                if entry["action"] == "add":
                    found.add(Path(unquote(urlparse(entry["path"]).path)).resolve())
        return found


def note_range(ranges: Path, reader: RangeReader, records: int, size: int) -> None:
    """Write what a task has read: a file per range, which a second attempt of the task writes again as it was."""
    found = {"records": records, "bytes": size, **reader.skipped._asdict()}
    _note(ranges, reader.wanted, found, gone=False)


def note_gone(ranges: Path, gone: GoneOffsets) -> None:
    """Write that a topic no longer has the records of rows that have been loaded."""
    nothing = {"records": 0, "bytes": 0, **SkippedOffsets(lost=((gone.first, gone.end),))._asdict()}
    _note(ranges, OffsetRange(*gone.place, gone.first, gone.end), nothing, gone=True)


def _note(ranges: Path, wanted: OffsetRange, found: Mapping[str, Any], *, gone: bool) -> None:
    # A topic's name alone may be 249 characters long.
    name = f"{wanted.partition}-{wanted.start:020}-{wanted.end:020}{'-gone' if gone else ''}.json"
    file = ranges / wanted.topic / name
    file.parent.mkdir(exist_ok=True)
    where = {"topic": wanted.topic, "partition": wanted.partition, "start": wanted.start, "end": wanted.end}
    write_json(file, {**where, **found, "gone": gone})


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file as a whole, so that a kill leaves the earlier one or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(content, indent=2) + "\n")
    part.replace(path)
