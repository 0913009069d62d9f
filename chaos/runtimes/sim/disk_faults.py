"""Implements faults of a simulated disk: calls that fail or take long, a lack of space, and flipped bits."""

from __future__ import annotations

import errno
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import DiskFault, Evidence, FailWrites, Quota, SlowDisk
from squall.chaos.runtimes.damage import Where
from squall.chaos.runtimes.rotting import rotten_bits
from squall.chaos.runtimes.sim.disk_names import DirectoryTree, FileNode, failure

TRUNCATION = -1
"""Is passed as `growth`, instead of a number of bytes, to `DiskFaults.written` if the call truncates the file."""


@dataclass(slots=True)
class _ActiveFault:
    fault: DiskFault
    calls: int = 0
    hits: int = 0
    limit: int = 0
    """Limits, for a quota, the bytes that all files may have together."""


class DiskFaults:
    """Holds the faults on one disk, by name. While `active` is empty, callers may skip all other methods.

    If several faults match a call, each counts the call as a hit. If several make it fail, the error is that of the
    fault that was added first.
    """

    def __init__(self, rng: random.Random) -> None:
        self.active: dict[str, _ActiveFault] = {}
        self._rng = rng

    def add(self, name: str, fault: DiskFault, used: int) -> None:
        """Begin a fault; the disk holds `used` bytes now. Raises HarnessError if the name is in use."""
        if name in self.active:
            raise HarnessError(f"there is a fault {name!r} on this disk already")
        limit = used + fault.free_bytes if isinstance(fault, Quota) else 0
        self.active[name] = _ActiveFault(fault, limit=limit)

    def remove(self, name: str) -> int:
        """End a fault. Returns how many calls it has failed or slowed; 0 if no fault has that name."""
        active = self.active.pop(name, None)
        return 0 if active is None else active.hits

    def hits(self, name: str) -> int:
        """Return how many calls a fault failed or slowed so far; 0 if no fault has that name."""
        return self.active[name].hits if name in self.active else 0

    def delay_s(self, op: str) -> float:
        """Return by how many seconds SlowDisk faults delay each call of `op`."""
        slow = (active.fault for active in self.active.values())
        return sum(fault.delay_ms for fault in slow if isinstance(fault, SlowDisk) and fault.op == op) / 1000

    def synced(self, path: str) -> None:
        """Raise OSError if a fault fails this fsync of a file or a directory."""
        code = 0
        for active in self.active.values():
            code = code or _strike(active, "fsync", path)
        if code:
            raise failure(code, path)

    def written(self, path: str, growth: int, used: Callable[[], int]) -> tuple[int, int] | None:
        """Return None if no fault makes this write fail; otherwise its errno, and how many of its bytes still fit on
        the disk. `growth`: by how many bytes the write makes the file longer; TRUNCATION for a truncation, which needs
        no space.
        """
        failed: tuple[int, int] | None = None
        for active in self.active.values():
            if isinstance(active.fault, Quota):
                space = active.limit - used()
                # TRUNCATION, as -1, fits even on a full disk.
                if growth > max(0, space):
                    active.hits += 1
                    failed = failed or (errno.ENOSPC, max(0, space))
                continue
            # A full disk does not fail a truncation, which needs no space.
            if growth == TRUNCATION and isinstance(active.fault, FailWrites) and active.fault.errno == "ENOSPC":
                continue
            code = _strike(active, "write", path)
            if code and failed is None:
                # On a full disk write(2) may write a beginning of the data before it fails.
                space = self._rng.randrange(growth + 1) if code == errno.ENOSPC and growth else 0
                failed = (code, min(space, max(0, growth - 1)))
        return failed


def _strike(active: _ActiveFault, op: str, path: str) -> int:
    """Apply a fault to one call, and count the call if the fault matches it. Returns the errno with which the call must
    fail; 0 if the fault does not make it fail.
    """
    fault = active.fault
    if isinstance(fault, Quota) or fault.op != op:
        return 0
    if isinstance(fault, SlowDisk):
        active.hits += 1
        return 0
    if not fnmatchcase(path, fault.path_glob):
        return 0
    active.calls += 1
    if active.calls < fault.nth:
        return 0
    active.hits += 1
    return int(getattr(errno, fault.errno))


def used(names: DirectoryTree) -> int:
    """Return the bytes in all files that have names. Removed files that are still open do not count."""
    return sum(len(node.content.cached) for _, node in names.files())


def rot(names: DirectoryTree, path_glob: str, rng: random.Random, bits: int, where: Where) -> Evidence:
    """Flip `bits` bits of one file that matches `path_glob`, and return the evidence: the file's path, the flipped
    bytes' offsets, and the file's hash before and after. See `SimDisk.rot`. `where`: which bits of a segment may flip
    ("checked": those under a checksum; "epoch": those of leader epochs).
    """
    closed = [(path, node) for path, node in _closed(names) if fnmatchcase(path, path_glob)]
    if not closed:
        return {"path": None, "offset": None, "offsets": [], "bits": 0, "before": None, "after": None}
    path, node = closed[rng.randrange(len(closed))]
    cached = node.content.cached
    before = hashlib.sha256(cached).hexdigest()
    flipped = rotten_bits(path, cached, bits, where, rng)
    for bit in flipped:
        cached[bit // 8] ^= 1 << bit % 8
    return {
        "path": path,
        "offset": flipped[0] // 8 if flipped else None,
        "offsets": [bit // 8 for bit in flipped],
        "bits": len(flipped),
        "before": before,
        "after": hashlib.sha256(cached).hexdigest(),
    }


def _closed(names: DirectoryTree) -> list[tuple[str, FileNode]]:
    """Return the files that are wholly durable and no longer written to, as (path, file). In each directory the last
    segment file of each suffix is left out: the log still appends to it.
    """
    durable = {node: path for path, node in names.durable_files()}
    files = list(names.files())
    last = {_series(path): path for path, _ in files}
    return [
        (path, node)
        for path, node in files
        if durable.get(node) == path
        and node.content.cached
        and not node.content.pending
        and (not _is_segment(path) or last[_series(path)] != path)
    ]


def _series(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name.partition(".")[2] if _is_segment(path) else name


def _is_segment(path: str) -> bool:
    stem, dot, _ = path.rpartition("/")[2].partition(".")
    return stem.isdigit() and bool(dot)
