"""Implements a broker's file system with disk faults. Each change of a file or a name below the log directories is
journaled before it happens, so that a power loss can undo it.

The real files always have the content that was written: reads and sendfile are those of `squall.broker.real_files`.
Paths outside of the log directories are passed through.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence

from squall.broker.env import Buffer
from squall.broker.faulted.fault_injector import TRUNCATION, FaultInjector, failure
from squall.broker.faulted.journal import FileJournal
from squall.broker.faulted.names import DirectoryJournal, NameChange
from squall.broker.overriding import override
from squall.broker.real_files import RealFile, RealFs


class Inode:
    """Holds the journal of one open file. All handles of the file share this object, and renaming the file does not
    change it.
    """

    __slots__ = ("gone", "handles", "journal", "number")

    def __init__(self, number: int, journal: FileJournal) -> None:
        self.number, self.journal = number, journal
        self.handles = 0
        self.gone = False
        """Is True if the file was removed durably. Later writes to it are not journaled, because they need not be
        undone.
        """


class FaultedFile(RealFile):
    """Represents a file that journals its writes before they happen."""

    __slots__ = ("_fs", "_inode", "_path")

    def __init__(self, fd: int, fs: FaultedFs, inode: Inode, path: str) -> None:
        super().__init__(fd)
        self._fs, self._inode, self._path = fs, inode, path

    @override
    def append(self, data: Buffer) -> int:
        self._fs.before_write(self._path, len(data))
        with self._fs.injector.lock:
            self._fs.note_write(self._inode, self._end, len(data), self._end)
            return super().append(data)

    @override
    def pwrite(self, data: Buffer, offset: int) -> None:
        size = self.size()
        self._fs.before_write(self._path, max(0, offset + len(data) - size))
        with self._fs.injector.lock:
            replaced = os.pread(self._fd, len(data), offset) if offset < size else b""
            self._fs.note_write(self._inode, offset, len(data), size, replaced)
            super().pwrite(data, offset)

    @override
    def truncate(self, size: int) -> None:
        self._fs.before_write(self._path, TRUNCATION)
        with self._fs.injector.lock:
            self._fs.note_cut(self._inode, self._fd, size)
            super().truncate(size)

    @override
    def fsync(self) -> None:
        """Fsync the file. If that fails, the unsynced data never becomes durable, as on Linux."""
        injector, inode = self._fs.injector, self._inode
        injector.check_crash_point("fsync", self._path)
        injector.delay("fsync")
        with injector.lock:
            mark = inode.journal.mark()
        try:
            injector.check_fsync(self._path)
            super().fsync()
        except OSError:
            with injector.lock:
                inode.journal.fsync_failed(mark)
            raise
        with injector.lock:
            if not inode.gone:
                self._fs.synced(inode, mark)

    @override
    def close(self) -> None:
        was_open = self._fd >= 0
        super().close()
        if was_open:
            self._fs.closed(self._inode)


class FaultedFs(RealFs):
    """Implements the file system with disk faults. `folder` holds the journals, and the removed files whose removal is
    not durable yet. `roots`, the log directories, must be on the same file system as `folder`.
    """

    def __init__(self, folder: str, roots: Sequence[str], incarnation: int) -> None:
        self._folder = os.path.abspath(folder)
        self._roots = tuple(os.path.abspath(root) for root in roots)
        for part in ("files", "names", "kept"):
            os.makedirs(f"{self._folder}/{part}", exist_ok=True)
        self._used = sum(size for root in self._roots for size in _sizes(root))
        self._kept = max((int(name) for name in os.listdir(f"{self._folder}/kept") if name.isdigit()), default=0)
        self._inodes: dict[int, Inode] = {}
        self._pending_bytes = 0
        self._waiting: dict[int, int] = {}
        """Maps inode numbers to the number of unsynced bytes in the file. The file that has waited longest for an fsync
        is the first.
        """
        self._names: dict[int, DirectoryJournal] = {}
        self.injector = FaultInjector(self._folder, incarnation, lambda: self._used)

    # -------------------------------------------------------------------------------------------------------- bytes

    def before_write(self, path: str, growth: int) -> None:
        """Kill this OS process, sleep or raise OSError, if the crash point or a fault applies to the write that is
        about to happen. `growth`: the bytes by which the write makes the file longer, or TRUNCATION.
        """
        self.injector.check_crash_point("write", path)
        if self.injector.commands.faults:
            self.injector.delay("write")
            self.injector.check_write(path, growth)

    def note_write(self, inode: Inode, offset: int, length: int, size: int, replaced: Buffer = b"") -> None:
        """Journal a write. `size`: the file's size before the write. `replaced`: the bytes that it overwrites. The
        caller holds the lock.
        """
        if inode.gone:
            return
        inode.journal.record_write(offset, length, size, replaced)
        self._used += max(0, offset + length - size)
        self._waiting[inode.number] = self._waiting.get(inode.number, 0) + length
        self._pending_bytes += length
        while self._pending_bytes > self.injector.commands.limit_bytes:
            self._write_back(next(iter(self._waiting)))

    def note_cut(self, inode: Inode, fd: int, size: int) -> None:
        """Journal a truncation of the open file `fd` to `size` bytes. The caller holds the lock."""
        before = os.fstat(fd).st_size
        if inode.gone or before == size and inode.journal.is_clean:
            return
        inode.journal.record_truncation(size, before, os.pread(fd, before - size, size) if size < before else b"")
        self._used += size - before

    def synced(self, inode: Inode, mark: int) -> None:
        """Note that an fsync has succeeded. `mark` is the journal's end at the start of the fsync. The caller holds the
        lock.
        """
        inode.journal.fsync_succeeded(mark)
        self._no_longer_waits(inode.number)
        if left := inode.journal.pending_bytes if not inode.journal.is_clean else 0:
            self._waiting[inode.number] = left
            self._pending_bytes += left
        self._close_unused(inode)

    def closed(self, inode: Inode) -> None:
        """Count one open handle of the file less. When none is left, close the file's journal."""
        with self.injector.lock:
            inode.handles -= 1
            self._close_unused(inode)

    def _close_unused(self, inode: Inode) -> None:
        """Close the journal of a file that is no longer open. Unsynced changes stay in the journal's file."""
        if inode.handles == 0 and self._inodes.get(inode.number) is inode:
            inode.journal.close()
            del self._inodes[inode.number]
            if inode.journal.is_clean:
                _unlink(inode.journal.path)

    def _no_longer_waits(self, number: int) -> None:
        self._pending_bytes -= self._waiting.pop(number, 0)

    def _write_back(self, number: int) -> None:
        """Treat the unsynced bytes of an inode number as written back, as a kernel does when memory is short."""
        self.injector.count_written_back(self._waiting.get(number, 0))
        self._no_longer_waits(number)
        inode = self._inodes.get(number)
        if inode is not None:
            inode.journal.fsync_succeeded(inode.journal.mark())
        else:
            _unlink(self._journal_path(number))

    def _journal_path(self, number: int) -> str:
        return f"{self._folder}/files/{number}"

    def _open_inode(self, fd: int, *, fresh: bool) -> Inode:
        number = os.fstat(fd).st_ino
        if fresh:
            self._forget(number)
        found = self._inodes.get(number)
        if found is None:
            found = self._inodes[number] = Inode(number, FileJournal(self._journal_path(number)))
        found.handles += 1
        return found

    def _forget(self, number: int) -> None:
        """Drop the journal of an inode number, because its file was removed or a new file has the number."""
        inode = self._inodes.pop(number, None)
        if inode is not None:
            inode.gone = True
        self._no_longer_waits(number)
        _unlink(self._journal_path(number))

    # -------------------------------------------------------------------------------------------------------- names

    def _is_ours(self, path: str) -> bool:
        return any(path == root or path.startswith(root + "/") for root in self._roots)

    def _is_faulted_path(self, path: str) -> bool:
        """Return whether faults apply to a path: its directory is a log directory or below one."""
        return any(path.startswith(root + "/") for root in self._roots)

    def _reported_path(self, path: str) -> str:
        """Return the path that `path_glob` is compared with and that a crash report names. It is relative to the parent
        of the log directory: "data/t-0/00000000000000000000.log".
        """
        root = next(root for root in self._roots if path == root or path.startswith(root + "/"))
        return os.path.relpath(path, os.path.dirname(root))

    def _journal(self, directory: str) -> DirectoryJournal:
        number = os.stat(directory).st_ino
        if number not in self._names:
            self._names[number] = DirectoryJournal(f"{self._folder}/names/{number}")
        return self._names[number]

    def _keep(self) -> tuple[int, str]:
        self._kept += 1
        return self._kept, f"{self._folder}/kept/{self._kept}"

    @override
    def open(self, path: str, *, create: bool = False, truncate: bool = False) -> RealFile:
        path = os.path.abspath(path)
        if not self._is_faulted_path(path):
            return super().open(path, create=create, truncate=truncate)
        with self.injector.lock:
            fresh = create and not os.path.exists(path)
            if fresh:
                directory, name = os.path.split(path)
                self._journal(directory).note(NameChange("create", name))
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if fresh else 0), 0o644)
            try:
                inode = self._open_inode(fd, fresh=fresh)
                if truncate and not fresh:
                    self.note_cut(inode, fd, 0)
                    os.ftruncate(fd, 0)
                return FaultedFile(fd, self, inode, self._reported_path(path))
            except BaseException:
                os.close(fd)
                raise

    @override
    def mkdirs(self, path: str) -> None:
        path = os.path.abspath(path)
        if not self._is_faulted_path(path):
            super().mkdirs(path)
            return
        directory, name = os.path.split(path)
        self.mkdirs(directory)
        with self.injector.lock:
            if not os.path.isdir(path):
                self._journal(directory).note(NameChange("create", name))
                os.mkdir(path)

    @override
    def rename(self, old: str, new: str) -> None:
        """Rename a file; the new name is durable after `fsync_dir`. A renaming to another directory, which brokers do
        not use, counts as durable at once.
        """
        old, new = os.path.abspath(old), os.path.abspath(new)
        directory, name = os.path.split(old)
        if not self._is_faulted_path(old) or os.path.dirname(new) != directory:
            super().rename(old, new)
            return
        with self.injector.lock:
            if not os.path.lexists(old):
                raise failure(errno.ENOENT, old)
            kept = None
            if os.path.isfile(new):
                kept, beside = self._keep()
                self._journal(directory).note(NameChange("rename", name, os.path.basename(new), kept))
                self._used -= os.path.getsize(new)
                # The replaced file stays under another name, because a power loss may undo the renaming.
                os.link(new, beside)
            else:
                self._journal(directory).note(NameChange("rename", name, os.path.basename(new)))
            os.replace(old, new)

    @override
    def remove(self, path: str) -> None:
        path = os.path.abspath(path)
        if not self._is_faulted_path(path):
            super().remove(path)
            return
        with self.injector.lock:
            if not os.path.isfile(path):
                raise failure(errno.EISDIR if os.path.isdir(path) else errno.ENOENT, path)
            self._used -= os.path.getsize(path)
            self._take_away(path)

    def _take_away(self, path: str) -> None:
        kept, beside = self._keep()
        directory, name = os.path.split(path)
        self._journal(directory).note(NameChange("remove", name, kept=kept))
        os.rename(path, beside)

    @override
    def remove_dir(self, path: str) -> None:
        """Remove the directory and all names below it one by one, the innermost first."""
        path = os.path.abspath(path)
        if not self._is_faulted_path(path):
            super().remove_dir(path)
            return
        for folder, folders, files in os.walk(path, topdown=False):
            for name in files:
                self.remove(os.path.join(folder, name))
            for name in folders:
                with self.injector.lock:
                    self._take_away(os.path.join(folder, name))
        with self.injector.lock:
            if not os.path.isdir(path):
                raise failure(errno.ENOENT, path)
            self._take_away(path)

    @override
    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable. An fsync of a directory can be repeated after a failure: the next
        success makes all names durable. (After a failed fsync of a file, the unsynced data is never durable.)
        """
        path = os.path.abspath(path)
        if not self._is_ours(path):
            super().fsync_dir(path)
            return
        self.injector.delay("fsync")
        self.injector.check_fsync(self._reported_path(path))
        with self.injector.lock:
            journal = self._journal(path)
            count = len(journal.changes)
        super().fsync_dir(path)
        with self.injector.lock:
            for change in journal.settle(count):
                if change.kept is not None:
                    self._purge(f"{self._folder}/kept/{change.kept}")

    def _purge(self, kept: str) -> None:
        """Delete a file or directory that was kept only because its removal was not durable."""
        for path in (kept, *_below(kept)):
            try:
                stat = os.lstat(path)
            except FileNotFoundError:
                continue
            number = stat.st_ino
            if os.path.isdir(path):
                self._names.pop(number, None)
                for change in self._inner_changes(number):
                    self._purge(f"{self._folder}/kept/{change.kept}")
                _unlink(f"{self._folder}/names/{number}")
            elif stat.st_nlink == 1:  # else the journaled renaming never happened, and the file still has its name
                self._forget(number)
        if os.path.isdir(kept):
            shutil.rmtree(kept)
        else:
            _unlink(kept)

    def _inner_changes(self, number: int) -> list[NameChange]:
        changes = DirectoryJournal(f"{self._folder}/names/{number}").changes
        return [change for change in changes if change.kept is not None]


def _below(path: str) -> Iterator[str]:
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            yield os.path.join(folder, name)


def _sizes(root: str) -> Iterator[int]:
    return (os.path.getsize(path) for path in _below(root) if os.path.isfile(path))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
