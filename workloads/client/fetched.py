"""Decodes the bytes of a fetched partition into the records that are visible with an isolation level. The code is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import BatchHeader, Record, batches, check_crc, decode_batch
from squall.workloads.payload import NOT_KNOWN

READ_COMMITTED = 1
ABORT_MARKER = 0

_CONTROL_KEY = Struct(">hh")


class UnreadableBatch(NamedTuple):
    """Reports a batch that could not be decoded."""

    offset: int
    why: str


class ReadRecords(NamedTuple):
    """Holds the records that were decoded from one partition of a Fetch response."""

    records: list[Record]
    """Holds the records; their timestamps are NOT_KNOWN if the broker set them (LogAppendTime)."""
    next_position: int
    """Holds the offset to fetch next: one past the last complete batch, even if its records are not visible. A batch
    with a wrong CRC advances it by one offset only.
    """
    last_epoch: int
    """Holds the leader epoch of the last complete batch in the response; -1 if the response has none."""
    damage: list[UnreadableBatch]


def read_records(
    view: memoryview | None, position: int, aborted: Sequence[tuple[int, int]] | None, isolation: int
) -> ReadRecords:
    """Return the visible records from `position` on. `aborted` lists (producer id, first offset) of aborted
    transactions, as the broker reported them. `isolation` is the isolation level of the Fetch request.

    A batch with a wrong CRC is reported in `damage`. The batch's last offset is unknown, because its header may be
    wrong, too: the position advances by one offset only. Later fetches return the same batch until the position has
    passed it. Decoding ends at bytes in which no batch can be found.
    """
    found: list[Record] = []
    damage: list[UnreadableBatch] = []
    next_position, last_epoch = position, -1
    if view is None:
        return ReadRecords(found, next_position, last_epoch, damage)
    filtered = AbortedTransactionFilter(aborted) if isolation == READ_COMMITTED and aborted else None
    try:
        for header, start, end in batches(view):
            behind = header.base_offset + header.last_offset_delta + 1
            if not check_crc(view, start, end):
                # Its end offset is unknown, too, because the header itself may be damaged: skip one offset only.
                damage.append(UnreadableBatch(max(header.base_offset, next_position), "wrong batch CRC"))
                next_position, last_epoch = damage[-1].offset + 1, header.leader_epoch
                continue
            if behind <= position:
                continue
            next_position, last_epoch = behind, header.leader_epoch
            batch = view[start:end]
            if filtered is None or filtered.visible(header, batch):
                found += _visible_records(header, batch, position, damage)
    except MalformedFrame as problem:
        damage.append(UnreadableBatch(next_position, str(problem)))
    return ReadRecords(found, next_position, last_epoch, damage)


def _visible_records(
    header: BatchHeader, batch: memoryview, position: int, damage: list[UnreadableBatch]
) -> list[Record]:
    if header.is_control:
        return []
    try:
        records = decode_batch(header, batch)
    except MalformedFrame as problem:
        damage.append(UnreadableBatch(header.base_offset, str(problem)))
        return []
    # LogAppendTime: the leader set the time, and the payload repeats the producer's.
    if header.timestamp_type:
        records = [record._replace(timestamp=NOT_KNOWN) for record in records]
    if header.base_offset < position:
        return [record for record in records if record.offset >= position]
    return records


class AbortedTransactionFilter:
    """Hides the batches of aborted transactions from a reader. It follows the log in order of offsets and keeps the
    producers whose open transaction will be aborted.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._open: dict[int, None] = {}

    def visible(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return False for a batch of an aborted transaction. Call this for every batch, in order."""
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._open[self._coming.pop()[0]] = None
        if header.is_control:
            # Only an abort marker ends what `aborted` lists: the producer's next transaction may be committed.
            if header.producer_id in self._open and _marker_type(header, batch) == ABORT_MARKER:
                del self._open[header.producer_id]
            return False
        return not (header.is_transactional and header.producer_id in self._open)


def _marker_type(header: BatchHeader, batch: memoryview) -> int:
    """Return 0 for an abort marker, 1 for a commit marker, or -1 if the marker cannot be decoded."""
    try:
        (marker,) = decode_batch(header, batch)
        kind: int = _CONTROL_KEY.unpack_from(marker.key or b"")[1]
    except (MalformedFrame, ValueError, error):
        return -1
    return kind
