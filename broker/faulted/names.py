"""Notes which names in one directory are not durable yet, so that they can be taken back.

As with bytes, the directory itself is what processes see. What a removal or a renaming takes away is kept under a
number of its own until the directory is synced. One JSON line for each change, before it is done.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class NameChange:
    """`op` of `name`. new: what it is renamed to. kept: where that is which goes with it, a number; None: nothing."""

    op: Literal["create", "remove", "rename"]
    name: str
    new: str | None = None
    kept: int | None = None


class DirectoryJournal:
    """The changes of names in one directory since it was synced. Its file system holds a lock around every call."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.changes = read_names(path)

    def note(self, change: NameChange) -> None:
        """It is about to be done."""
        line = json.dumps(asdict(change), separators=(",", ":")) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)
        self.changes.append(change)

    def settle(self, count: int) -> list[NameChange]:
        """The first `count` changes are durable. Returns them: what they kept is not needed any more."""
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
    """The changes in a directory's journal, in order; none where there is no journal. Half a last line is no change."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return []
    whole, _, _ = text.rpartition("\n")
    return [NameChange(**json.loads(line)) for line in whole.splitlines()]
