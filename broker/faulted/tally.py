"""Counters that outlive the process: a small file mapped into its memory, as it is after SIGKILL.

Layout, little-endian: magic (8 bytes), then 64-bit numbers: the serial of the control file that was taken over last;
the incarnation that did; bytes that went through because too many were pending; and SLOTS slots of four: a fault's
number, calls that it matched, calls that it failed or slowed, its limit. A fault's slot is its number modulo SLOTS.
Last, how many fsyncs, writes and sends there were, whatever faults there are.
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
"""In the order of their counts."""


@dataclass(frozen=True, slots=True)
class TallyHeader:
    """Holds the fields before the slots."""

    serial: int
    incarnation: int
    through_bytes: int


@dataclass(slots=True)
class FaultCounts:
    """Holds one fault's numbers. limit: of a quota, bytes that all files may have together; 0 while it is not known."""

    calls: int = 0
    hits: int = 0
    limit: int = 0


class FaultTally:
    """The file, mapped. One process writes to it."""

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
        """Write what stands before the slots."""
        self.head = head
        HEAD.pack_into(self._map, 0, MAGIC, head.serial, head.incarnation, head.through_bytes)

    def call(self, op: str) -> None:
        """There is one more of OPS."""
        self._calls[op] += 1
        CALLS.pack_into(self._map, CALLS_AT, *self._calls.values())

    def count(self, number: int) -> FaultCounts:
        """A fault's numbers so far; zeros where its slot is another's."""
        return _count(self._map[:], number)

    def put(self, number: int, count: FaultCounts) -> None:
        """Write a fault's numbers."""
        SLOT.pack_into(self._map, _at(number), number, count.calls, count.hits, count.limit)


def read_tally(path: str) -> bytes:
    """The file as it is now, for `head_of` and `count_of`; empty where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def head_of(data: bytes) -> TallyHeader | None:
    """Return the fields before the slots; None if the bytes are no tally (yet)."""
    return _head(data)


def count_of(data: bytes, number: int) -> FaultCounts:
    """A fault's numbers."""
    return _count(data, number) if _head(data) is not None else FaultCounts()


def calls_of(data: bytes, op: str) -> int:
    """Return how many calls of one of OPS there were, over all incarnations."""
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
