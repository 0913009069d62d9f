"""Checks the batches that a leader sent, before a follower appends all of them or, on an error, none."""

from __future__ import annotations

from crc32c import crc32c

from squall.broker.log.markers import read_marker
from squall.broker.log.scan import CorruptRecords, LocatedBatch, UnexpectedOffset, is_batch
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import CONTROL_BIT, CRC_FROM, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader


def batch_around(records: memoryview, offset: int) -> int | None:
    """Return the base offset of the first batch in `records` if that batch contains `offset` but begins before it.
    Otherwise return None.
    """
    if len(records) >= HEADER_SIZE:
        base, *_, delta = HEADER.unpack_from(records)[:7]
        if 0 <= base < offset <= base + delta:
            return int(base)
    return None


def checked_batches(records: memoryview, expected: int, leader_epoch: int, *, gaps: bool) -> list[LocatedBatch]:
    """Return the complete batches of `records`, of which the first must begin at offset `expected`.

    Leaves out a partial batch at the end. Also leaves out the first batch whose epoch is above `leader_epoch`, the
    leader epoch in the follower's fetch, and everything after this batch. Such a batch shows that the leader had lost
    its leadership when it sent the records (KAFKA-18723), or that the leader's disk is damaged, because no checksum
    covers the epoch. `gaps`: offsets may be missing between batches, as compaction leaves them. Raises CorruptRecords,
    UnexpectedOffset.
    """
    found: list[LocatedBatch] = []
    at, end = 0, len(records)
    while end - at >= HEADER_SIZE:
        header = tuple.__new__(BatchHeader, HEADER.unpack_from(records, at))
        base, length, epoch, magic, crc, attributes, delta = header[:7]
        if not is_batch(length, magic):
            raise CorruptRecords(f"no batch at byte {at}: length {length}, magic {magic}")
        stop = at + LENGTH_OVERHEAD + length
        if stop > end or epoch > leader_epoch:
            break
        if base != expected and (base < expected or not gaps):
            raise UnexpectedOffset(f"a batch at offset {base} was sent instead of {expected}")
        if delta < 0 or epoch < 0 or crc32c(records[at + CRC_FROM : stop]) != crc:
            raise CorruptRecords(f"the batch at offset {base} has a wrong CRC, delta {delta} or epoch {epoch}")
        if attributes & CONTROL_BIT:
            _check_control(header, records[at:stop])
        found.append(tuple.__new__(LocatedBatch, (header, at, stop)))
        expected = base + delta + 1
        at = stop
    assert at <= end
    assert not found or found[-1].stop == at
    assert not found or found[0].start == 0
    return found


def _check_control(header: BatchHeader, batch: memoryview) -> None:
    try:
        read_marker(header, batch)
    except MalformedFrame as problem:
        raise CorruptRecords(f"the control batch at offset {header.base_offset}: {problem}") from problem
