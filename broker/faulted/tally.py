"""Counts the calls that injected disk faults have hit, in a small memory-mapped file that survives SIGKILL of the
broker.

Layout, little-endian: magic (8 bytes), then 64-bit numbers: the serial of the last applied control file; the
incarnation that applied it; bytes treated as written back by the kernel, because more than `limit_bytes` were unsynced;
and SLOTS slots of four numbers: a fault's number, calls that it matched, calls that it failed or slowed, its limit. A
fault's slot is its number modulo SLOTS. At the end, the numbers of all fsyncs, writes and sends.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from struct import Struct

MAGIC = b"sqtally2"
HEAD = Struct("<8sQQQ")
SLOT = Struct("<QQQQ")
SLOTS = 64
CALLS = Struct("<QQQ")
CALLS_AT = HEAD.size + SLOTS * SLOT.size
SIZE = CALLS_AT + CALLS.size
OPS = ("fsync", "write", "send")
"""Lists the operations in the order of their counts in the file."""


@dataclass(frozen=True, slots=True)
class TallyHeader:
    """Holds the header of the tally file (the counts of disk faults): the serial of the last applied control file, the
    broker incarnation that applied it, and the unsynced bytes that were treated as written back (`through_bytes`).
    """

    serial: int
    incarnation: int
    through_bytes: int


@dataclass(slots=True)
class FaultCounts:
    """Holds one fault's counts. calls: the calls that a `fail` fault matched. hits: the calls that the fault failed or
    slowed. limit: the bytes that all files together may have under a `quota` fault; 0 until the fault is applied.
    """

    calls: int = 0
    hits: int = 0
    limit: int = 0


class FaultTally:
    """Writes the tally, a memory-mapped file that counts the calls that each disk fault has hit. Only one OS process
    may write to it.
    """

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, SIZE)
            self._map = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)
        found = _head(self._map[:])
        self.head = found or TallyHeader(0, 0, 0)
        self._calls = dict(zip(OPS, CALLS.unpack_from(self._map, CALLS_AT) if found else (0, 0, 0), strict=True))

    def note(self, head: TallyHeader) -> None:
        """Write the header: the serial of the last applied control file, and the other fields of `TallyHeader`."""
        self.head = head
        HEAD.pack_into(self._map, 0, MAGIC, head.serial, head.incarnation, head.through_bytes)

    def call(self, op: str) -> None:
        """Count one call. `op`: "fsync", "write" or "send"."""
        self._calls[op] += 1
        CALLS.pack_into(self._map, CALLS_AT, *self._calls.values())

    def count(self, number: int) -> FaultCounts:
        """Return the counts of the fault with this number; zeros if the file does not hold them. A later fault may have
        overwritten them, because a fault's slot in the file is its number modulo SLOTS.
        """
        return _count(self._map[:], number)

    def put(self, number: int, count: FaultCounts) -> None:
        """Write a fault's counts."""
        SLOT.pack_into(self._map, _at(number), number, count.calls, count.hits, count.limit)


def read_tally(path: str) -> bytes:
    """Return the content of the tally file, which counts the calls that disk faults hit; empty if there is no file.
    `head_of`, `count_of` and `calls_of` decode it.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def head_of(data: bytes) -> TallyHeader | None:
    """Return the header in a tally file's bytes, or None if they are not a complete tally (yet)."""
    return _head(data)


def count_of(data: bytes, number: int) -> FaultCounts:
    """Return the counts of the fault with this number in a tally file's bytes; zeros if they have none."""
    return _count(data, number) if _head(data) is not None else FaultCounts()


def calls_of(data: bytes, op: str) -> int:
    """Return the number of calls of `op` ("fsync", "write", "send") in a tally file's bytes, over all incarnations."""
    return int(CALLS.unpack_from(data, CALLS_AT)[OPS.index(op)]) if _head(data) is not None else 0


def _head(data: bytes) -> TallyHeader | None:
    if len(data) < SIZE:
        return None
    magic, serial, incarnation, through = HEAD.unpack_from(data)
    return TallyHeader(serial, incarnation, through) if magic == MAGIC else None


def _count(data: bytes, number: int) -> FaultCounts:
    found, calls, hits, limit = SLOT.unpack_from(data, _at(number))
    return FaultCounts(calls, hits, limit) if found == number else FaultCounts()


def _at(number: int) -> int:
    return HEAD.size + number % SLOTS * SLOT.size
