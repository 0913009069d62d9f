"""Reads headers of batches, and the markers of transactions, from a log's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from squall.broker.env import Buffer
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import (
    CONTROL_BIT,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    decode_batch,
)

ABORT, COMMIT = 0, 1
"""Gives the types of control records that end a transaction (KIP-98)."""
_KEY, _VALUE = Struct(">hh"), Struct(">hi")
"""Parse a marker's key (version and type) and its value (version and coordinator epoch)."""


class TxnMarkerBatch(NamedTuple):
    """Holds the content of a control batch that ends a transaction."""

    commit: bool
    coordinator_epoch: int


class BatchIdentity(NamedTuple):
    """Identifies a batch by the fields of its header. Its offsets are `base` to `end` - 1."""

    base: int
    end: int
    epoch: int
    crc: int
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    marker: TxnMarkerBatch | None = None
    """Is the marker of a control batch that ends a transaction; None for other batches."""

    @property
    def is_control(self) -> bool:
        """Is True for control batches such as markers, which have no sequence."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def is_transactional(self) -> bool:
        """Is True for data of a transaction, and for its marker."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def where(self) -> str:
        """Returns the batch's offsets and epoch, in words."""
        last = self.end - 1
        what = f"the record at offset {last}" if self.base == last else f"the batch of offsets {self.base} to {last}"
        return f"{what} in epoch {self.epoch}"

    def __str__(self) -> str:
        return f"[{self.base}, {self.end}) of epoch {self.epoch}, crc {self.crc:08x}"


def read(buffer: Buffer, position: int, size: int, *, checked: bool = False) -> Iterator[tuple[BatchIdentity, int]]:
    """Yield each whole batch in the bytes from `position` to `size`, with the position of the byte after it. Ends at
    the first bytes that are no batch. `checked`: ends also at a batch whose CRC is wrong.
    """
    while position + HEADER_SIZE <= size:
        base, length, epoch, magic, crc, attributes, delta, _, _, producer_id, producer_epoch, sequence, _ = (
            HEADER.unpack_from(buffer, position)
        )
        stop = position + LENGTH_OVERHEAD + length
        if magic != 2 or length < HEADER_SIZE - LENGTH_OVERHEAD or stop > size:
            return
        if checked and crc32c(memoryview(buffer)[position + CRC_FROM : stop]) != crc:
            return
        marker = marker_in(memoryview(buffer)[position:stop]) if attributes & CONTROL_BIT else None
        fields = base, base + delta + 1, epoch, crc, attributes, producer_id, producer_epoch, sequence, marker
        yield tuple.__new__(BatchIdentity, fields), stop
        position = stop


def marker_in(batch: memoryview) -> TxnMarkerBatch | None:
    """Return the marker in a control batch; None for other control records, and for unreadable ones (flipped bits)."""
    try:
        records = decode_batch(BatchHeader._make(HEADER.unpack_from(batch)), batch)
        _, kind = _KEY.unpack_from(records[0].key or b"")
        _, coordinator_epoch = _VALUE.unpack_from(records[0].value or b"")
    except (MalformedFrame, StructError, IndexError):
        return None
    return TxnMarkerBatch(kind == COMMIT, coordinator_epoch) if kind in (ABORT, COMMIT) else None
