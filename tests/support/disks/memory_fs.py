"""A file system in memory that forgets unsynced changes at a crash, for tests of crash safety.

Every file has a cached content (what the OS process sees) and a durable one; writes and truncations since the last
fsync are pending, in order. Names are durable apart from contents: creations, renames and removals are pending until
their directory is synced. `after_crash` returns the file system that a restarted OS process finds:

- after a kill the page cache is complete;
- after a power loss each pending change of a content or a name survives, or not, and a surviving write may be torn.

`crash_at` ends the OS process at the n-th call that changes something: that call and every later one raises `Crashed`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from squall.broker.env import DiskSpace

Table = dict[str, "Inode | None"]
"""Path -> content; None for a directory."""
Names = list[str]


class Crashed(BaseException):
    """The OS process was killed at this call. It is a BaseException, so that no handler acts for a dead process."""


class Inode:
    """A file's content. Names are kept apart from it."""

    def __init__(self, content: bytes = b"") -> None:
        self.cached = bytearray(content)
        self.durable = bytes(content)
        self.pending: list[tuple[str, int, bytes]] = []

    def change(self, kind: str, offset: int, data: bytes = b"") -> None:
        """Apply a change to the cache and remember it as pending."""
        _apply(self.cached, kind, offset, data)
        self.pending.append((kind, offset, data))

    def sync(self) -> None:
        """Make all changes so far durable."""
        self.durable = bytes(self.cached)
        self.pending.clear()

    def copy(self) -> Inode:
        """Return a copy that later changes do not affect."""
        other = Inode()
        other.cached, other.durable, other.pending = bytearray(self.cached), self.durable, list(self.pending)
        return other

    def torn(self, rng: random.Random) -> bytes:
        """Return a content that a power loss may leave."""
        content = bytearray(self.durable)
        for kind, offset, data in self.pending:
            fate = rng.random()
            if fate < 0.4:
                continue
            if fate < 0.6 and kind == "write":
                cut = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
                _apply(content, kind, offset + cut[0], data[cut[0] : cut[1]])
                continue
            _apply(content, kind, offset, data)
        return bytes(content)


def _apply(content: bytearray, kind: str, offset: int, data: bytes) -> None:
    if kind == "write":
        if not data:
            return
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data
    else:
        content.extend(bytes(max(0, offset - len(content))))
        del content[offset:]


class MemoryFile:
    """An open file."""

    def __init__(self, fs: MemoryFs, inode: Inode) -> None:
        self._fs = fs
        self._inode: Inode | None = inode

    @property
    def inode(self) -> Inode:
        """Return the file's content. Raises OSError if the file is closed."""
        if self._inode is None:
            raise OSError(9, "the file is closed")
        return self._inode

    def pread(self, length: int, offset: int) -> bytes:
        """As File.pread."""
        self._fs.alive()
        self._fs.reads += 1
        return bytes(self.inode.cached[offset : offset + length])

    def append(self, data: bytes | bytearray | memoryview) -> int:
        """As File.append."""
        self._fs.step("append")
        start = len(self.inode.cached)
        self.inode.change("write", start, bytes(data))
        return start

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """As File.pwrite."""
        self._fs.step("pwrite")
        self.inode.change("write", offset, bytes(data))

    def truncate(self, size: int) -> None:
        """As File.truncate."""
        self._fs.step("truncate")
        self.inode.change("truncate", size)

    def seal(self) -> None:
        """As File.seal."""

    def fsync(self) -> None:
        """As File.fsync."""
        self._fs.step("fsync")
        self.inode.sync()

    def size(self) -> int:
        """As File.size."""
        self._fs.alive()
        return len(self.inode.cached)

    def close(self) -> None:
        """As File.close."""
        self._inode = None


class MemoryFs:
    """Files and directories by path."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.names: Table = {"": None}
        self._durable: Table = {"": None}
        self._pending: list[tuple[str, Names, Table]] = []
        """Changes of names that their directory's sync has not made durable: directory, removed names, added names."""
        self.crash_at = crash_at
        self.calls = 0
        self.reads = 0
        self.log: list[str] = []
        """The kind of each changing call so far."""
        self.fail: Callable[[str], OSError | None] | None = None
        """Called with the kind of each changing call; an error that it returns is raised instead."""
        self.lost: dict[str, list[int]] | None = None
        """The records of each partition that the last power loss took, as a simulated disk counts them. None: not
        counted.
        """

    # ------------------------------------------------------------------------------------------------------ fate

    def alive(self) -> None:
        """Raise Crashed if the OS process is dead."""
        if self.crash_at is not None and self.calls >= self.crash_at:
            raise Crashed

    def step(self, kind: str) -> None:
        """Count a changing call before it takes effect. Raises Crashed if the OS process dies at this call."""
        self.alive()
        self.calls += 1
        self.alive()
        if self.fail is not None and (error := self.fail(kind)) is not None:
            raise error
        self.log.append(kind)

    def after_crash(self, rng: random.Random | None = None) -> MemoryFs:
        """Return the file system that a restart finds. With `rng`, which draws what survives, the crash was a power
        loss; without, a kill.
        """
        after = MemoryFs()
        copies: dict[int, Inode] = {}

        def copied(table: Table) -> Table:
            for inode in table.values():
                if inode is not None and id(inode) not in copies:
                    copies[id(inode)] = inode.copy() if rng is None else Inode(inode.torn(rng))
            return {path: inode and copies[id(inode)] for path, inode in table.items()}

        if rng is None:
            after.names, after._durable = copied(self.names), copied(self._durable)
            after._pending = [(folder, gone, copied(come)) for folder, gone, come in self._pending]
            return after
        table = dict(self._durable)
        for _, gone, come in self._pending:
            if rng.random() < 0.5:
                _rename(table, gone, come)
        # A file whose directory's own name was lost is lost with it.
        found = {path: table[path] for path in sorted(table) if all(folder in table for folder in _folders(path))}
        after.names = copied(found)
        after._durable = dict(after.names)
        return after

    # ----------------------------------------------------------------------------------------------------- calls

    def open(self, path: str, *, create: bool = False, truncate: bool = False) -> MemoryFile:
        """As Fs.open."""
        self.alive()
        path = _clean(path)
        inode = self.names.get(path)
        if path in self.names and inode is None:
            raise IsADirectoryError(path)
        if inode is None:
            if not create or _parent(path) not in self.names:
                raise FileNotFoundError(path)
            self.step("create")
            inode = Inode()
            self._change(_parent(path), [], {path: inode})
        elif truncate and inode.cached:
            self.step("truncate")
            inode.change("truncate", 0)
        return MemoryFile(self, inode)

    def exists(self, path: str) -> bool:
        """As Fs.exists."""
        self.alive()
        return _clean(path) in self.names

    def list(self, path: str) -> list[str]:
        """As Fs.list."""
        self.alive()
        path = _clean(path)
        if path not in self.names or self.names[path] is not None:
            raise FileNotFoundError(path)
        return sorted(name.rpartition("/")[2] for name in self.names if name and _parent(name) == path)

    def mkdirs(self, path: str) -> None:
        """As Fs.mkdirs."""
        path = _clean(path)
        for folder in [*_folders(path), path]:
            if folder not in self.names:
                self.step("mkdir")
                self._change(_parent(folder), [], {folder: None})

    def rename(self, old: str, new: str) -> None:
        """As Fs.rename."""
        old, new = _clean(old), _clean(new)
        if old not in self.names:
            raise FileNotFoundError(old)
        self.step("rename")
        assert _parent(old) == _parent(new), "renames stay in their directory"
        moved = {path: inode for path, inode in self.names.items() if path == old or path.startswith(old + "/")}
        self._change(_parent(old), list(moved), {new + path[len(old) :]: inode for path, inode in moved.items()})

    def remove(self, path: str) -> None:
        """As Fs.remove."""
        path = _clean(path)
        if self.names.get(path) is None:
            raise FileNotFoundError(path)
        self.step("remove")
        self._change(_parent(path), [path], {})

    def space(self, path: str) -> DiskSpace:
        """As Fs.space."""
        return DiskSpace(1 << 30, 1 << 29)

    def remove_dir(self, path: str) -> None:
        """As Fs.remove_dir."""
        path = _clean(path)
        if path not in self.names:
            raise FileNotFoundError(path)
        for name in sorted(self.names, reverse=True):
            if name == path or name.startswith(path + "/"):
                self.step("remove")
                self._change(_parent(name), [name], {})

    def fsync_dir(self, path: str) -> None:
        """As Fs.fsync_dir."""
        path = _clean(path)
        if path not in self.names:
            raise FileNotFoundError(path)
        self.step("fsync_dir")
        for folder, gone, come in self._pending:
            if folder == path:
                _rename(self._durable, gone, come)
        self._pending = [item for item in self._pending if item[0] != path]

    def _change(self, folder: str, gone: Names, come: Table) -> None:
        _rename(self.names, gone, come)
        self._pending.append((folder, gone, come))

    # ------------------------------------------------------------------------------------------------- for tests

    def read(self, path: str) -> bytes:
        """Return a file's cached content."""
        inode = self.names[_clean(path)]
        assert inode is not None
        return bytes(inode.cached)

    def write(self, path: str, data: bytes) -> None:
        """Write a durable file, with its directories, on behalf of the test instead of the OS process under test."""
        path = _clean(path)
        for folder in _folders(path):
            self.names[folder] = self._durable[folder] = None
        self.names[path] = self._durable[path] = Inode(data)


def _rename(table: Table, gone: Names, come: Table) -> None:
    for path in gone:
        table.pop(path, None)
    table.update(come)


def _clean(path: str) -> str:
    return "" if path == "." else path.strip("/")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _folders(path: str) -> list[str]:
    """Return the directories above a path, outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]
