"""The `Fs` and `File` that one incarnation of a simulated node is given: paths and handles over a `Disk`.

Every call asks the incarnation's gate before it does anything, so that a crash at any call leaves the disk as it was
before that call.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.env import Buffer, NodeDead
from chaos.runtimes.sim.disk_names import FileNode, Folder, Place, failure, parts

if TYPE_CHECKING:
    from chaos.runtimes.sim.disk import Disk

Gate = Callable[[str, str], None]


def _gone(op: str, path: str) -> None:
    raise NodeDead


class Handle:
    """An open file, as `File`."""

    __slots__ = ("_mount", "_node", "_path")

    def __init__(self, mount: Mount, node: FileNode, path: str) -> None:
        self._mount = mount
        self._node: FileNode | None = node
        self._path = path

    def pread(self, length: int, offset: int) -> bytes:
        """As `File.pread`."""
        self._mount.gate("pread", self._path)
        return bytes(memoryview((self._node or self._closed()).content.cached)[offset : offset + length])

    def append(self, data: Buffer) -> int:
        """As `File.append`."""
        self._mount.gate("append", self._path)
        return (self._node or self._closed()).content.append(data)

    def pwrite(self, data: Buffer, offset: int) -> None:
        """As `File.pwrite`."""
        self._mount.gate("pwrite", self._path)
        (self._node or self._closed()).content.pwrite(data, offset)

    def truncate(self, size: int) -> None:
        """As `File.truncate`."""
        self._mount.gate("truncate", self._path)
        (self._node or self._closed()).content.truncate(size)

    def fsync(self) -> None:
        """As `File.fsync`: covers what was written before it, at once. Makes no name durable."""
        self._mount.gate("fsync", self._path)
        (self._node or self._closed()).content.synced()

    def size(self) -> int:
        """As `File.size`."""
        if self._mount.revoked:
            raise NodeDead
        return len((self._node or self._closed()).content.cached)

    def close(self) -> None:
        """As `File.close`."""
        if self._mount.revoked:
            raise NodeDead
        self._node = None

    def _closed(self) -> FileNode:
        raise failure(errno.EBADF, self._path)


class Mount:
    """Files by path, as `Fs`."""

    def __init__(self, disk: Disk, gate: Gate) -> None:
        self.gate = gate
        """Asked before every effect; always raises NodeDead once revoked."""
        self.revoked = False
        self._disk = disk
        self._names = disk.names

    def revoke(self) -> None:
        """From now on every call raises NodeDead."""
        self.revoked = True
        self.gate = _gone

    def open(self, path: str, *, create: bool = False, truncate: bool = False) -> Handle:
        """As `Fs.open`."""
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
        return Handle(self, node, path)

    def exists(self, path: str) -> bool:
        """As `Fs.exists`."""
        if self.revoked:
            raise NodeDead
        return self._names.find(path) is not None

    def list(self, path: str) -> list[str]:
        """As `Fs.list`."""
        self.gate("list", path)
        return sorted(self._names.folder(path).entries)

    def mkdirs(self, path: str) -> None:
        """As `Fs.mkdirs`. Each directory is an effect of its own."""
        if self.revoked:
            raise NodeDead
        folder, way = self._names.root, ""
        for name in parts(path):
            way = f"{way}/{name}" if way else name
            inner = folder.entries.get(name)
            if inner is None:
                self.gate("mkdirs", way)
                inner = Folder()
                self._names.create((folder, name), inner)
            elif not isinstance(inner, Folder):
                raise failure(errno.EEXIST if way == "/".join(parts(path)) else errno.ENOTDIR, path)
            folder = inner

    def rename(self, old: str, new: str) -> None:
        """As `Fs.rename`: one effect, also where it replaces a file."""
        self.gate("rename", old)
        source, target = self._names.place(old), self._names.place(new)
        node = source[0].entries.get(source[1])
        if node is None:
            raise failure(errno.ENOENT, old)
        there = target[0].entries.get(target[1])
        if there is node:
            return
        if isinstance(node, Folder) and _within(parts(old), parts(new)):
            raise failure(errno.EINVAL, new)
        if isinstance(there, Folder):
            if not isinstance(node, Folder):
                raise failure(errno.EISDIR, new)
            if there.entries:
                raise failure(errno.ENOTEMPTY, new)
        elif there is not None and isinstance(node, Folder):
            raise failure(errno.ENOTDIR, new)
        self._names.move(source, target)

    def remove(self, path: str) -> None:
        """As `Fs.remove`."""
        self.gate("remove", path)
        place = self._names.place(path)
        node = place[0].entries.get(place[1])
        if node is None:
            raise failure(errno.ENOENT, path)
        if isinstance(node, Folder):
            raise failure(errno.EISDIR, path)
        self._names.remove(place)

    def remove_dir(self, path: str) -> None:
        """As `Fs.remove_dir`. Each name below it is an effect of its own, the innermost first."""
        if self.revoked:
            raise NodeDead
        folder = self._names.folder(path)
        self._empty(folder, path)
        place = self._names.place(path)
        self.gate("remove", path)
        self._names.remove(place)

    def _empty(self, folder: Folder, path: str) -> None:
        for name in sorted(folder.entries):
            node, inner = folder.entries[name], f"{path}/{name}"
            if isinstance(node, Folder):
                self._empty(node, inner)
            self.gate("remove", inner)
            place: Place = (folder, name)
            self._names.remove(place)

    def fsync_dir(self, path: str) -> None:
        """As `Fs.fsync_dir`."""
        self.gate("fsync_dir", path)
        self._names.sync(self._names.folder(path))


def _within(outer: list[str], inner: list[str]) -> bool:
    return inner[: len(outer)] == outer
