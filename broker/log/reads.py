"""Reading a log's segments: batches, timestamps, aborted transactions, and producers' states as of an offset."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from broker.env import Fs
from broker.log.indexes import AbortedTxn
from broker.log.producer_rules import WINDOW, Sent
from broker.log.producers import ProducerStates, load_snapshot
from broker.log.scan import walk
from broker.log.segment import Segment
from broker.protocol.errors import MalformedFrame
from broker.protocol.records import CONTROL_BIT, SEQUENCE_MASK, BatchHeader, decode_batch

REFILL_BYTES = 1 << 20
"""How far before a snapshot the batches are looked for that it does not hold: only each producer's last is in it."""

_base = attrgetter("base_offset")


class Found(NamedTuple):
    """A record found by its timestamp (ms)."""

    timestamp: int
    offset: int
    leader_epoch: int


def segment_at(segments: Sequence[Segment], offset: int) -> int:
    """Which segment `offset` is in, or would be: 0 also before the first."""
    return max(0, bisect_right(segments, offset, key=_base) - 1)


def headers(segments: Sequence[Segment], offset: int, limit: int) -> Iterator[tuple[Segment, BatchHeader, int, int]]:
    """Segment, header and place of each batch from the one `offset` is in; all lie below `limit` entirely."""
    for segment in segments[segment_at(segments, offset) :]:
        for header, position, stop in segment.walk_from(offset):
            if header.base_offset + header.last_offset_delta >= limit:
                return
            yield segment, header, position, stop


def read_batches(segments: Sequence[Segment], offset: int, limit: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """As `headers`, with the batches' bytes."""
    for segment, header, position, stop in headers(segments, offset, limit):
        yield header, segment.file.pread(stop - position, position)


def find_timestamp(segments: Sequence[Segment], timestamp: int, start: int, limit: int) -> Found | None:
    """The first record from offset `start`, below `limit`, that is not earlier than `timestamp`."""
    for segment in segments[segment_at(segments, start) :]:
        if segment.max_timestamp < timestamp:
            continue
        from_offset = max(start, segment.base_offset + segment.time_index.offset_before(timestamp))
        for header, position, stop in segment.walk_from(from_offset):
            if header.base_offset >= limit:
                return None
            if header.max_timestamp < timestamp:
                continue
            found = _in_batch(header, segment.file.pread(stop - position, position), timestamp, start, limit)
            if found is not None:
                return found
    return None


def find_max_timestamp(segments: Sequence[Segment], start: int, limit: int) -> Found | None:
    """The first of the records with the largest timestamp (ListOffsets -3, KIP-734)."""
    best: tuple[BatchHeader, Segment, int, int] | None = None
    for segment in segments[segment_at(segments, start) :]:
        if segment.max_timestamp <= (-1 if best is None else best[0].max_timestamp):
            continue
        whole = start <= segment.max_timestamp_offset and segment.next_offset <= limit
        # Where the largest one may not be among those asked for, all are looked at.
        for header, position, stop in segment.walk_from(segment.max_timestamp_offset if whole else start):
            if header.base_offset >= limit:
                break
            if header.max_timestamp > (-1 if best is None else best[0].max_timestamp):
                best = header, segment, position, stop
            if whole:
                break
    if best is None:
        return None
    header, segment, position, stop = best
    return _in_batch(header, segment.file.pread(stop - position, position), header.max_timestamp, start, limit)


def _in_batch(header: BatchHeader, data: bytes, timestamp: int, start: int, limit: int) -> Found | None:
    """The first record that is not earlier than `timestamp`; the batch itself where it cannot be unpacked."""
    try:
        for record in decode_batch(header, memoryview(data)):
            if record.timestamp >= timestamp and start <= record.offset < limit:
                return Found(record.timestamp, record.offset, header.leader_epoch)
    except MalformedFrame:
        # What the producer packed wrongly is stored as it came: the batch's own bounds are all that is known.
        return Found(header.max_timestamp, max(start, header.base_offset), header.leader_epoch)
    return None


def aborted_transactions(segments: Sequence[Segment], offset: int, end_offset: int) -> list[AbortedTxn]:
    """The aborted transactions that have data in `offset` .. `end_offset` - 1, in the order of their markers."""
    found: list[AbortedTxn] = []
    for segment in segments[segment_at(segments, offset) :]:
        for txn in segment.aborted.ending_from(offset):
            if txn.first_offset < end_offset:
                found.append(txn)
            if txn.last_stable_offset >= end_offset:
                return found
    return found


def producers_at(
    fs: Fs, directory: str, segments: Sequence[Segment], start: int, end: int, *, since: int | None = None
) -> ProducerStates:
    """The producers' states as the batches from `start`, before `end`, make them: newest snapshot, then replay.

    `since`: replay at least what begins there, for a snapshot does not say which transactions have ended before it.
    """
    states, snapshot = load_snapshot(fs, directory, end if since is None else min(since, end))
    if snapshot >= 0 and states.entries:
        _refill(states, segments, snapshot)
    for segment, header, position, stop in headers(segments, max(start, snapshot), end):
        control = header.attributes & CONTROL_BIT
        states.replay(header, memoryview(segment.file.pread(stop - position, position)) if control else None)
    return states


def _refill(states: ProducerStates, segments: Sequence[Segment], snapshot: int) -> None:
    """Complete the windows of a snapshot, which has one batch of each, from the batches just before it.

    Kafka does without, and so forgets four of the five batches at each restart: a retry of those is then out of order.
    """
    if not segments:
        return
    segment = segments[segment_at(segments, snapshot - 1)]
    end = segment.position_before(snapshot)
    position = segment.index.boundary_before(max(0, snapshot - segment.base_offset), max(0, end - REFILL_BYTES))
    sent: dict[int, tuple[int, deque[Sent]]] = {}
    for header, _, _ in walk(segment.file, position, segment.size):
        last_offset = header.base_offset + header.last_offset_delta
        if last_offset >= snapshot:
            break
        if header.producer_id < 0 or header.attributes & CONTROL_BIT:
            continue
        epoch, window = sent.get(header.producer_id, (-1, deque[Sent]()))
        if epoch != header.producer_epoch:
            window = deque(maxlen=WINDOW)
            sent[header.producer_id] = header.producer_epoch, window
        last = header.base_sequence + header.last_offset_delta & SEQUENCE_MASK
        window.append(Sent(header.base_sequence, last, header.base_offset, last_offset, header.max_timestamp))
    for producer_id, (epoch, window) in sent.items():
        entry = states.entries.get(producer_id)
        if entry is not None and entry.window and entry.epoch == epoch and entry.window[-1][:4] == window[-1][:4]:
            entry.window = window
