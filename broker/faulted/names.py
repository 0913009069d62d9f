"""Journals the changes of names in one directory that are not durable yet, so that a power loss can undo them.

The directory itself always has the newest names. Files that a removal or renaming takes away are kept under a number
until the directory is synced. The journal gets a JSON line for each change before it happens.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class NameChange:
    """Describes one change in a directory: `name` is created, removed, or renamed to `new`. kept: the number under
    which the removed or replaced file is kept, or None.
    """

    op: Literal["create", "remove", "rename"]
    name: str
    new: str | None = None
    kept: int | None = None


class DirectoryJournal:
    """Journals the changes of names in one directory since it was synced. Its file system holds a lock around every
    call.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.changes = read_names(path)

    def note(self, change: NameChange) -> None:
        """Record a change that is about to happen."""
        line = json.dumps(asdict(change), separators=(",", ":")) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)
        self.changes.append(change)

    def settle(self, count: int) -> list[NameChange]:
        """Note that the first `count` changes are durable, and return them. The caller deletes the files that were kept
        to undo them (`NameChange.kept`).
        """
        settled, self.changes = self.changes[:count], self.changes[count:]
        fresh = self.path + ".new"
        if self.changes:
            with open(fresh, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(each), separators=(",", ":")) + "\n" for each in self.changes)
            os.replace(fresh, self.path)
        elif settled:
            os.unlink(self.path)
        return settled


def read_names(path: str) -> list[NameChange]:
    """Return the changes in a directory's journal, in order; none if there is no journal. An incomplete last line is
    ignored.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return []
    whole, _, _ = text.rpartition("\n")
    return [NameChange(**json.loads(line)) for line in whole.splitlines()]
