"""Walking from batch to batch in a file, and the errors of batches that may not be appended."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from squall.broker.env import File
from squall.broker.protocol.records import CRC_FROM, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader

_ENDS = Struct(">qi4xb6xi")
"""Base offset, length, magic and last offset delta of a batch header."""
PLACE = Struct(">qii")
"""Base offset, length, leader epoch: the head of a batch, which its CRC does not cover."""
SMALLEST_LENGTH = HEADER_SIZE - LENGTH_OVERHEAD
LOOKUP_CHUNK = 8 << 10
WALK_CHUNK = 64 << 10
SCAN_CHUNK = 1 << 20


class LogError(Exception):
    """Batches that this log will not take. Nothing of them has been appended."""


class CorruptRecords(LogError):
    """Bytes that are no batch of magic 2, or whose CRC is wrong: the sender's fault."""


class UnexpectedOffset(LogError):
    """A batch that does not continue at the log's end: sender and receiver disagree on where that is."""


def is_batch(length: int, magic: int) -> bool:
    """True where a header's length and magic can be those of a batch."""
    return length >= SMALLEST_LENGTH and magic == 2


def is_intact(header: BatchHeader, data: memoryview) -> bool:
    """Return whether a batch is as it was written: by its checksum. `data`: all of its bytes."""
    return bool(crc32c(data[CRC_FROM:]) == header.crc)


class PlacedBatch(NamedTuple):
    """A batch, and where its bytes are."""

    header: BatchHeader
    start: int
    stop: int
    """Behind its last byte."""


def walk(file: File, position: int, end: int, chunk_bytes: int = WALK_CHUNK) -> Iterator[PlacedBatch]:
    """Yield each whole batch between two positions of a file.

    Ends at whatever is no batch. Reads headers only: batches larger than a chunk are jumped over.
    """
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
        yield PlacedBatch(header, position, stop)
        position = stop


def walk_ends(file: File, position: int, end: int, chunk_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield only the last offset of each batch, with its bytes' places: a third of the work of `walk`."""
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
    """All batches of a file from the start, each checked: header, first byte, and bytes that are good until the next.

    After the iteration, `damage` says why it ended early.
    """

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size
        self.damage: str | None = None
        """Why what follows the last batch is not one; None where the file ends with it."""

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
