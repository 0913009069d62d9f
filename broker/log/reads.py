"""Reads from a log's segments: batches, aborted transactions, and the producer state at an offset."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter

from squall.broker.env import Fs
from squall.broker.log.indexes import AbortedTxn
from squall.broker.log.producer_rules import WINDOW, BatchMetadata
from squall.broker.log.producers import ProducerStates, load_snapshot
from squall.broker.log.scan import walk
from squall.broker.log.segment import Segment
from squall.broker.protocol.records import CONTROL_BIT, SEQUENCE_MASK, BatchHeader

REFILL_BYTES = 1 << 20
"""Limits how many bytes of batches before a producer snapshot are read again when it is loaded. The snapshot has only
the last batch of each producer; this read finds the up to four batches before that one.
"""

_base = attrgetter("base_offset")


def segment_at(segments: Sequence[Segment], offset: int) -> int:
    """Return the index of the segment that contains `offset` or would contain it; 0 if `offset` is before the first."""
    return max(0, bisect_right(segments, offset, key=_base) - 1)


def headers(segments: Sequence[Segment], offset: int, limit: int) -> Iterator[tuple[Segment, BatchHeader, int, int]]:
    """Yield (segment, header, start, stop) for each batch that ends below `limit`, beginning with the batch that
    contains `offset`. `start` and `stop` (exclusive) are the batch's byte range in the segment's file.
    """
    for segment in segments[segment_at(segments, offset) :]:
        for header, position, stop in segment.walk_from(offset):
            if header.base_offset + header.last_offset_delta >= limit:
                return
            yield segment, header, position, stop


def read_batches(segments: Sequence[Segment], offset: int, limit: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield header and bytes of each batch from the one that contains `offset`, all entirely below `limit`."""
    for segment, header, position, stop in headers(segments, offset, limit):
        yield header, segment.file.pread(stop - position, position)


def aborted_transactions(segments: Sequence[Segment], offset: int, end_offset: int) -> list[AbortedTxn]:
    """Return the aborted transactions with data in `offset` .. `end_offset` - 1, in the order of their markers."""
    found: list[AbortedTxn] = []
    for segment in segments[segment_at(segments, offset) :]:
        for txn in segment.aborted.ending_from(offset):
            if txn.first_offset < end_offset:
                found.append(txn)
            # Later markers end transactions that began at or after this offset, so none of them has data here.
            if txn.last_stable_offset >= end_offset:
                return found
    return found


def producers_at(
    fs: Fs, directory: str, segments: Sequence[Segment], start: int, end: int, *, since: int | None = None
) -> ProducerStates:
    """Return the producer state that the batches in [start, end) result in: load the newest snapshot, then replay
    batches.

    `since`: replay at least from this offset on, because a snapshot does not list the transactions that ended before
    it.
    """
    assert start <= end
    states, snapshot = load_snapshot(fs, directory, end if since is None else min(since, end))
    assert snapshot <= end
    if snapshot >= 0 and states.entries:
        _refill(states, segments, snapshot)
    for segment, header, position, stop in headers(segments, max(start, snapshot), end):
        control = header.attributes & CONTROL_BIT
        states.replay(header, memoryview(segment.file.pread(stop - position, position)) if control else None)
    return states


def _refill(states: ProducerStates, segments: Sequence[Segment], snapshot: int) -> None:
    """Fill each producer's window with its newest batches, read from the log just before the snapshot. The snapshot
    itself has only the latest batch of each producer.

    Kafka does not do this, so after a restart it recognizes only one of the five batches. It refuses retries of the
    other four as out of order.
    """
    if not segments:
        return
    segment = segments[segment_at(segments, snapshot - 1)]
    end = segment.position_before(snapshot)
    position = segment.index.boundary_before(max(0, snapshot - segment.base_offset), max(0, end - REFILL_BYTES))
    assert position <= end
    sent: dict[int, tuple[int, deque[BatchMetadata]]] = {}
    for header, _, _ in walk(segment.file, position, segment.size):
        last_offset = header.base_offset + header.last_offset_delta
        if last_offset >= snapshot:
            break  # The caller replays what follows.
        if header.producer_id < 0 or header.base_sequence < 0:
            continue  # also every control batch
        epoch, window = sent.get(header.producer_id, (-1, deque[BatchMetadata]()))
        if epoch != header.producer_epoch:
            window = deque(maxlen=WINDOW)
            sent[header.producer_id] = header.producer_epoch, window
        last = header.base_sequence + header.last_offset_delta & SEQUENCE_MASK
        window.append(BatchMetadata(header.base_sequence, last, header.base_offset, last_offset, header.max_timestamp))
    for producer_id, (epoch, window) in sent.items():
        entry = states.entries.get(producer_id)
        # Compared without the timestamp: a snapshot may have that of a marker that came after the batch.
        if entry is not None and entry.window and entry.epoch == epoch and entry.window[-1][:4] == window[-1][:4]:
            entry.window = list(window)
            assert entry.next_sequence == entry.window[-1].last_sequence + 1 & SEQUENCE_MASK
