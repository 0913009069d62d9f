"""Holds the names on a simulated disk: a tree of directories as OS processes see it, and another as a power loss would
leave it.

Each creation, renaming and removal of a name is one `DirectoryChange`, pending until its directory is synced. The tree
of current names is kept apart from the tree of durable names. In the durable tree a file or directory has at most one
name. So however few of its changes survive a power loss, it is never found twice, and a renaming is done in full or not
at all.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from squall.chaos.runtimes.sim.disk_content import FileContent

Place = tuple["FolderNode", str]


class TreeNode:
    """Represents a file or directory without its name, as an inode does: a renaming changes only the names that point
    to it.
    """

    __slots__ = ("durable_at", "settled")

    def __init__(self) -> None:
        self.durable_at: Place | None = None
        self.settled = 0
        """Is the number of the latest change that became durable for this file or directory. Pending changes with
        smaller numbers have no effect any more.
        """


class FileNode(TreeNode):
    """Represents a file. Its content lives on while a handle is open, even if its name is removed."""

    __slots__ = ("content",)

    def __init__(self, content: bytes = b"") -> None:
        super().__init__()
        self.content = FileContent(content)


class FolderNode(TreeNode):
    """Represents a directory: its current names (`entries`), its names without the changes that are not durable yet
    (`durable`), and those changes (`pending`).
    """

    __slots__ = ("decided", "durable", "entries", "pending")

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, TreeNode] = {}
        self.durable: dict[str, TreeNode] = {}
        self.pending: list[DirectoryChange] = []
        self.decided: dict[str, int] = {}
        """Maps a name in this directory to the number of the latest change that became durable for it. An entry is kept
        while changes with smaller numbers are pending.

        Changes can become durable out of order: a renaming between two directories is durable once either directory is
        synced.
        """


@dataclass(slots=True, eq=False)
class DirectoryChange:
    """Records that a file or directory moved from the name `source` (None: it was created) to the name `target` (None:
    it was removed).
    """

    number: int
    node: TreeNode
    source: Place | None
    target: Place | None
    done: bool = False
    given_up: bool = False

    def settle(self) -> None:
        """Make the change durable: in the directory of its source and in that of its target."""
        self.done = True
        node = self.node
        moved_on = node.settled > self.number
        if not moved_on:
            node.settled = self.number
            _unplace(node)
        if self.source is not None:
            self._clear(self.source)
        # Even if the node has moved on since, whatever had the target's name before has lost it.
        if self.target is not None and self._clear(self.target) and not moved_on:
            self.target[0].durable[self.target[1]] = node
            node.durable_at = self.target

    def _clear(self, place: Place) -> bool:
        """Remove a name from the tree of durable names. Returns False without doing so if a later change of this name
        has become durable before this one.
        """
        folder, name = place
        if folder.decided.get(name, 0) > self.number:
            return False
        folder.decided[name] = self.number
        holder = folder.durable.get(name)
        if holder is not None:
            _unplace(holder)
        return True


def _unplace(node: TreeNode) -> None:
    if node.durable_at is not None:
        folder, name = node.durable_at
        del folder.durable[name]
        node.durable_at = None


class DirectoryTree:
    """Holds all directories and files of a simulated disk by path, with their current and their durable names. Paths
    are str with "/" separators; a leading "/" and "." change nothing. Errors are those of Linux (OSError with its
    errno).
    """

    def __init__(self) -> None:
        self.root = FolderNode()
        self._changes = 0
        self._unsynced: dict[FolderNode, None] = {}
        """Holds the folders with pending changes, in the order in which their first pending change came."""

    # ------------------------------------------------------------------------------------------------------- looking

    def find(self, path: str, *, durable: bool = False) -> TreeNode | None:
        """Return the file or directory at a path; None if there is none. `durable`: search the tree of names that a
        power loss leaves if it takes every pending change.
        """
        node: TreeNode | None = self.root
        for name in parts(path):
            if not isinstance(node, FolderNode):
                return None
            node = (node.durable if durable else node.entries).get(name)
        return node

    def folder(self, path: str) -> FolderNode:
        """Return the directory at a path."""
        node = self.find(path)
        if node is None:
            raise failure(errno.ENOENT, path)
        if not isinstance(node, FolderNode):
            raise failure(errno.ENOTDIR, path)
        return node

    def place(self, path: str) -> Place:
        """Return the directory of a path's last name, and that name. The directory must exist."""
        *folders, name = parts(path) or ("",)
        if not name:
            raise failure(errno.EBUSY, path)
        return self.folder("/".join(folders)), name

    def files(self) -> Iterator[tuple[str, FileNode]]:
        """Yield every file by path, sorted by the parts of the path."""
        return _walk(self.root, "", durable=False)

    def durable_files(self) -> Iterator[tuple[str, FileNode]]:
        """Yield every file, by path, that a power loss leaves if it takes every pending change of a name."""
        return _walk(self.root, "", durable=True)

    # ------------------------------------------------------------------------------------------------------ changing

    def create(self, place: Place, node: TreeNode) -> None:
        """Add a new file or directory under a name that is not in use."""
        self._change(node, None, place)

    def move(self, source: Place, target: Place) -> None:
        """Rename a node, and replace the node that has the target's name."""
        self._change(source[0].entries[source[1]], source, target)

    def remove(self, place: Place) -> None:
        """Remove a name."""
        self._change(place[0].entries[place[1]], place, None)

    def sync(self, folder: FolderNode) -> None:
        """Make the changes of names in the folder durable, in order."""
        for change in folder.pending:
            if not change.done and not change.given_up:
                change.settle()
                if change.target is None:
                    self._forget(change.node)
        folder.pending = [change for change in folder.pending if not change.done]
        if not folder.pending:
            folder.decided.clear()
            self._unsynced.pop(folder, None)

    def sync_failed(self, folder: FolderNode) -> None:
        """Give up the folder's pending changes: no later sync will make these changes durable."""
        for change in folder.pending:
            change.given_up = True

    def _forget(self, node: TreeNode) -> None:
        """Drop the pending changes in a directory that is durably removed: they no longer matter."""
        if isinstance(node, FolderNode) and node in self._unsynced:
            del self._unsynced[node]
            for change in node.pending:
                self._forget(change.node)

    def _change(self, node: TreeNode, source: Place | None, target: Place | None) -> None:
        self._changes += 1
        change = DirectoryChange(self._changes, node, source, target)
        if source is not None:
            del source[0].entries[source[1]]
            self._pend(source[0], change)
        if target is not None:
            target[0].entries[target[1]] = node
            if source is None or source[0] is not target[0]:
                self._pend(target[0], change)

    def _pend(self, folder: FolderNode, change: DirectoryChange) -> None:
        if not folder.pending:
            self._unsynced[folder] = None
        folder.pending.append(change)

    # ---------------------------------------------------------------------------------------------------- power loss

    def lose_power(self, rng: random.Random) -> tuple[int, int]:
        """Drop the changes of names that a power loss takes. Returns how many changes were pending and how many of them
        were lost.

        Each change survives or is lost independently. In half of the cases all changes up to a random one were written
        back before.
        """
        # By number, because a renaming between two directories is pending in both.
        pending = {c.number: c for folder in self._unsynced for c in folder.pending if not c.done}
        lost = 0
        if pending:
            written_back = rng.randrange(len(pending) + 1) if rng.random() < 0.5 else 0
            for at, number in enumerate(sorted(pending)):
                if at < written_back or rng.random() < 0.5:
                    pending[number].settle()
                else:
                    lost += 1
        _restart(self.root)
        self._unsynced.clear()
        return len(pending), lost


@lru_cache(maxsize=4096)
def parts(path: str) -> tuple[str, ...]:
    """Return the names of a path, from the root on."""
    return tuple(name for name in path.split("/") if name and name != ".")


def clean(path: str) -> str:
    """Return the path in its shortest form: "/a/./b/" becomes "a/b"."""
    return "/".join(parts(path))


def failure(code: int, path: str) -> OSError:
    """Return the OSError for the errno `code`, with the operating system's message. Python picks the subclass, for
    example FileNotFoundError.
    """
    return OSError(code, os.strerror(code), path)


def _walk(folder: FolderNode, path: str, *, durable: bool) -> Iterator[tuple[str, FileNode]]:
    entries = folder.durable if durable else folder.entries
    for name in sorted(entries):
        node = entries[name]
        if isinstance(node, FileNode):
            yield path + name, node
        elif isinstance(node, FolderNode):
            yield from _walk(node, f"{path}{name}/", durable=durable)


def _restart(folder: FolderNode) -> None:
    folder.pending = []
    folder.decided = {}
    folder.entries = {name: folder.durable[name] for name in sorted(folder.durable)}
    for node in folder.entries.values():
        if isinstance(node, FolderNode):
            _restart(node)
