"""Implements the `Fs` and `File` of one incarnation of a simulated node: paths and handles over a `SimDisk`.

Every call first calls the incarnation's `gate`, which may raise. So a crash at any call leaves the disk as it was
before that call.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from squall.broker.env import Buffer, DiskSpace, Fs, NodeDead
from squall.broker.overriding import override
from squall.chaos.runtimes.sim.disk_faults import TRUNCATION, DiskFaults, used
from squall.chaos.runtimes.sim.disk_names import DirectoryTree, FileNode, FolderNode, Place, clean, failure, parts

Gate = Callable[[str, str], None]


def _gone(op: str, path: str) -> None:
    raise NodeDead


SPACE = DiskSpace(1 << 40, 1 << 39)
"""Is the total and the usable size that every simulated disk reports: 1 TiB, of which 512 GiB are usable."""


class OpenFile:
    """Represents an open file on a simulated disk."""

    __slots__ = ("_mount", "_node", "_path")

    def __init__(self, mount: SimFs, node: FileNode, path: str) -> None:
        self._mount = mount
        self._node: FileNode | None = node
        self._path = path

    def pread(self, length: int, offset: int) -> bytes:
        """Read up to `length` bytes at `offset`."""
        self._mount.gate("pread", self._path)
        return bytes(memoryview((self._node or self._closed()).content.cached)[offset : offset + length])

    def append(self, data: Buffer) -> int:
        """Append `data`. Returns the byte offset where it begins. On an error nothing is appended."""
        mount = self._mount
        mount.gate("append", self._path)
        content = (self._node or self._closed()).content
        if mount.faults.active and (failed := mount.failed_write(self._path, len(data))):
            raise failure(failed[0], self._path)
        return content.append(data)

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write `data` at `offset`. If there is no space for all of it, a beginning may have been written."""
        mount = self._mount
        mount.gate("pwrite", self._path)
        content = (self._node or self._closed()).content
        if mount.faults.active:
            growth = max(0, offset + len(data) - len(content.cached))
            if failed := mount.failed_write(self._path, growth):
                # Bytes that replace others need no space: only those behind the file's end are cut short.
                fits = len(data) - growth + failed[1] if failed[1] else 0
                content.pwrite(memoryview(data)[: max(0, fits)], offset)
                raise failure(failed[0], self._path)
        content.pwrite(data, offset)

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros, to `size` bytes."""
        self._mount.gate("truncate", self._path)
        content = (self._node or self._closed()).content
        if self._mount.faults.active and (failed := self._mount.failed_write(self._path, TRUNCATION)):
            raise failure(failed[0], self._path)
        content.truncate(size)

    def seal(self) -> None:
        """Do nothing. A real file gives back preallocated disk space here; a simulated disk preallocates none."""

    def fsync(self) -> None:
        """Make the file's bytes durable at once. Makes no name durable."""
        self._mount.gate("fsync", self._path)
        content = (self._node or self._closed()).content
        if self._mount.faults.active:
            try:
                self._mount.faults.synced(self._path)
            except OSError:
                content.sync_failed()
                raise
        content.synced()

    def size(self) -> int:
        """Return the file's size in bytes."""
        # Without the gate, because a look at the size is no call of the disk at which a node can crash.
        if self._mount.revoked:
            raise NodeDead
        return len((self._node or self._closed()).content.cached)

    def close(self) -> None:
        """Close the file: a later call of this object raises OSError (EBADF). Bytes that are not synced stay so."""
        if self._mount.revoked:
            raise NodeDead
        self._node = None

    def _closed(self) -> FileNode:
        raise failure(errno.EBADF, self._path)


class SimFs(Fs):
    """Implements the file system of one incarnation of a node: its files, by path."""

    def __init__(self, faults: DiskFaults, names: DirectoryTree, gate: Gate) -> None:
        self.gate = gate
        """Is called before every operation on the disk, and may crash the node there by raising. Once the incarnation
        is revoked, it always raises NodeDead.
        """
        self.revoked = False
        self.faults, self._names = faults, names

    def revoke(self) -> None:
        """Let every later call raise NodeDead."""
        self.revoked = True
        self.gate = _gone

    def failed_write(self, path: str, growth: int) -> tuple[int, int] | None:
        """Return None if no fault makes a write fail; otherwise its errno, and how many of its bytes still fit on the
        disk. `growth`: by how many bytes the write makes the file longer; TRUNCATION for a truncation.
        """
        return self.faults.written(path, growth, lambda: used(self._names))

    @override
    def open(self, path: str, *, create: bool = False, truncate: bool = False) -> OpenFile:
        path = clean(path)
        self.gate("open", path)
        place = self._names.place(path)
        node = place[0].entries.get(place[1])
        if node is None:
            if not create:
                raise failure(errno.ENOENT, path)
            node = FileNode()
            self._names.create(place, node)
        elif not isinstance(node, FileNode):
            raise failure(errno.EISDIR, path)
        elif truncate:
            node.content.truncate(0)
        return OpenFile(self, node, path)

    @override
    def exists(self, path: str) -> bool:
        if self.revoked:
            raise NodeDead
        return self._names.find(path) is not None

    @override
    def list(self, path: str) -> list[str]:
        path = clean(path)
        self.gate("list", path)
        return sorted(self._names.folder(path).entries)

    @override
    def mkdirs(self, path: str) -> None:
        """Make directories. A crash may come between any two of them."""
        if self.revoked:
            raise NodeDead
        folder, way = self._names.root, ""
        for name in parts(path):
            way = f"{way}/{name}" if way else name
            inner = folder.entries.get(name)
            if inner is None:
                self.gate("mkdirs", way)
                inner = FolderNode()
                self._names.create((folder, name), inner)
            elif not isinstance(inner, FolderNode):
                raise failure(errno.EEXIST if way == "/".join(parts(path)) else errno.ENOTDIR, path)
            folder = inner

    @override
    def rename(self, old: str, new: str) -> None:
        """Rename atomically, also if that replaces a file."""
        old, new = clean(old), clean(new)
        self.gate("rename", old)
        source, target = self._names.place(old), self._names.place(new)
        node = source[0].entries.get(source[1])
        if node is None:
            raise failure(errno.ENOENT, old)
        there = target[0].entries.get(target[1])
        # A rename to its own name, for there are no hard links. POSIX makes it do nothing.
        if there is node:
            return
        if isinstance(node, FolderNode) and _within(parts(old), parts(new)):
            raise failure(errno.EINVAL, new)
        if isinstance(there, FolderNode):
            if not isinstance(node, FolderNode):
                raise failure(errno.EISDIR, new)
            if there.entries:
                raise failure(errno.ENOTEMPTY, new)
        elif there is not None and isinstance(node, FolderNode):
            raise failure(errno.ENOTDIR, new)
        self._names.move(source, target)

    @override
    def remove(self, path: str) -> None:
        path = clean(path)
        self.gate("remove", path)
        place = self._names.place(path)
        node = place[0].entries.get(place[1])
        if node is None:
            raise failure(errno.ENOENT, path)
        if isinstance(node, FolderNode):
            raise failure(errno.EISDIR, path)
        self._names.remove(place)

    @override
    def space(self, path: str) -> DiskSpace:
        """Return always the same space: a simulated disk is as large as it has to be."""
        if self.revoked:
            raise NodeDead
        return SPACE

    @override
    def remove_dir(self, path: str) -> None:
        """Remove a directory and everything below it, the innermost names first. A crash may come between any two of
        them.
        """
        if self.revoked:
            raise NodeDead
        path = clean(path)
        folder = self._names.folder(path)
        self._empty(folder, path)
        place = self._names.place(path)
        self.gate("remove", path)
        self._names.remove(place)

    def _empty(self, folder: FolderNode, path: str) -> None:
        for name in sorted(folder.entries):
            node, inner = folder.entries[name], f"{path}/{name}"
            if isinstance(node, FolderNode):
                self._empty(node, inner)
            self.gate("remove", inner)
            place: Place = (folder, name)
            self._names.remove(place)

    @override
    def fsync_dir(self, path: str) -> None:
        path = clean(path)
        self.gate("fsync_dir", path)
        folder = self._names.folder(path)
        if self.faults.active:
            try:
                self.faults.synced(path)
            except OSError:
                self._names.sync_failed(folder)
                raise
        self._names.sync(folder)


def _within(outer: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    return inner[: len(outer)] == outer
