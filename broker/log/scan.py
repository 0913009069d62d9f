"""Iterates over the batches in a file, and defines the errors of batches that may not be appended."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from squall.broker.env import File
from squall.broker.protocol.records import CRC_FROM, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader

_ENDS = Struct(">qi4xb6xi")
"""Unpacks base offset, length, magic and last offset delta of a batch header."""
PLACE = Struct(">qii")
"""Packs base offset, length and leader epoch: the part of a batch that its CRC does not cover."""
SMALLEST_LENGTH = HEADER_SIZE - LENGTH_OVERHEAD
LOOKUP_CHUNK = 8 << 10
WALK_CHUNK = 64 << 10
SCAN_CHUNK = 1 << 20


class LogError(Exception):
    """Is raised for batches that a log rejects. None of them has been appended."""


class CorruptRecords(LogError):
    """Is raised if the sender's bytes are not a batch of magic 2 or have a wrong CRC."""


class UnexpectedOffset(LogError):
    """Is raised for a batch that does not begin at the log's end: sender and receiver disagree on the end."""


def is_batch(length: int, magic: int) -> bool:
    """Return whether a batch header has a possible length, and magic 2."""
    return length >= SMALLEST_LENGTH and magic == 2


def is_intact(header: BatchHeader, data: memoryview) -> bool:
    """Return whether a batch has the checksum in its header. `data`: all bytes of the batch."""
    return bool(crc32c(data[CRC_FROM:]) == header.crc)


class LocatedBatch(NamedTuple):
    """Holds a batch header with the range of the batch's bytes."""

    header: BatchHeader
    start: int
    stop: int
    """Gives the position in the file after the batch's last byte."""


def walk(file: File, position: int, end: int, chunk_bytes: int = WALK_CHUNK) -> Iterator[LocatedBatch]:
    """Yield each complete batch between two positions of a file.

    The iteration ends at bytes that are not a batch. Only headers are read, and the rest of batches larger than a chunk
    is skipped.
    """
    assert chunk_bytes >= HEADER_SIZE, "no header could ever be read"
    chunk, origin = b"", position
    while position + HEADER_SIZE <= end:
        at = position - origin
        if at + HEADER_SIZE > len(chunk):
            chunk, origin, at = file.pread(min(chunk_bytes, end - position), position), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = BatchHeader._make(HEADER.unpack_from(chunk, at))
        stop = position + LENGTH_OVERHEAD + header.length
        if not is_batch(header.length, header.magic) or stop > end:
            return
        yield LocatedBatch(header, position, stop)
        position = stop


def walk_ends(file: File, position: int, end: int, chunk_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield last offset and byte range of each complete batch between two positions. Costs a third of `walk`."""
    assert chunk_bytes >= HEADER_SIZE, "no header could ever be read"
    chunk, origin = b"", position
    while position + HEADER_SIZE <= end:
        at = position - origin
        if at + HEADER_SIZE > len(chunk):
            chunk, origin, at = file.pread(min(chunk_bytes, end - position), position), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        base, length, magic, delta = _ENDS.unpack_from(chunk, at)
        stop = position + LENGTH_OVERHEAD + length
        if not is_batch(length, magic) or stop > end:
            return
        yield base + delta, position, stop
        position = stop


class BatchScanner:
    """Iterates over the batches of a file from its start, and checks each header, offset and CRC.

    Yields header, first byte position and bytes of each batch. If it ends early, `damage` has the reason.
    """

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size
        self.damage: str | None = None
        """Describes why the bytes after the last batch are not a batch; None if the file ends there."""

    def __iter__(self) -> Iterator[tuple[BatchHeader, int, memoryview]]:
        position, origin, chunk, left = 0, 0, memoryview(b""), 0
        while position < self._size:
            at = position - origin
            needed = HEADER_SIZE
            if left >= HEADER_SIZE:
                header = BatchHeader._make(HEADER.unpack_from(chunk, at))
                if not is_batch(header.length, header.magic):
                    self.damage = f"no batch at byte {position}"
                    return
                needed = LENGTH_OVERHEAD + header.length
                if left >= needed:
                    data = chunk[at : at + needed]
                    if not is_intact(header, data):
                        self.damage = f"the batch at byte {position} has a wrong CRC"
                        return
                    yield header, position, data
                    position += needed
                    left -= needed
                    continue
            if position + needed > self._size:
                self.damage = f"the batch at byte {position} is cut short"
                return
            chunk = memoryview(self._file.pread(min(max(needed, SCAN_CHUNK), self._size - position), position))
            origin, left = position, len(chunk)
            if left < needed:
                self.damage = f"byte {position} cannot be read"
                return
        assert position == self._size
