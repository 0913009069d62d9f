"""Rebuilds, from a log's batches alone, the state that the log keeps in addition to them: leader epochs, indexes, the
log's start.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from squall.broker.log.checkpoints import LOG_STARTS
from squall.broker.log.segment import INDEX, LOG, TIME_INDEX, file_name
from squall.broker.protocol.records import HEADER, HEADER_SIZE, LENGTH_OVERHEAD
from squall.chaos.runtimes.sim.invariants.durable import offsets_in
from squall.chaos.runtimes.sim.invariants.inspection import entries_of, peek
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from squall.broker.log.log import Log
    from squall.broker.log.segment import Segment
    from squall.chaos.runtimes.sim.invariants.headers import BatchIdentity


class IndexedBatch(NamedTuple):
    """Describes a batch as the indexes of its segment should: by its last offset, position and largest timestamp."""

    relative: int
    """Is the batch's last offset, less the segment's base offset."""
    position: int
    """Is the byte of the segment's file at which the batch begins."""
    timestamp: int
    """Is the batch's largest timestamp."""


class SegmentIndexes(NamedTuple):
    """Holds one segment's batches and its indexes."""

    base: int
    rows: tuple[IndexedBatch, ...]
    offsets: tuple[tuple[int, int], ...]
    """Lists the entries of the offset index: (a batch's last offset, less the segment's base offset; the byte at which
    that batch begins).
    """
    times: tuple[tuple[int, int], ...]
    """Lists the entries of the time index: (largest timestamp so far; last offset of the batch that has it, less the
    segment's base offset).
    """
    latest: tuple[int, int]
    """Is (largest timestamp, relative offset) that the log keeps in memory for the segment; the timestamp is -1 if
    there is none.
    """
    interval: int
    """Is the largest index.interval.bytes that the segment may have been written with."""
    sealed: bool
    """Is True if another segment follows: nothing more will be appended."""


class EpochCacheSnapshot(NamedTuple):
    """Holds the leader-epoch cache of a log, and the offsets [`start`, `end`) of the log."""

    entries: tuple[tuple[int, int], ...]
    start: int
    end: int


def indexed(log: Log, disk: Any, interval: int = 0) -> list[SegmentIndexes]:
    """Return all segments of a log, with their indexes. `interval`: the largest index.interval.bytes that the topic was
    seen with, because a segment may have been written with it.
    """
    return [_segment(log, segment, disk, segment is not log.segments[-1], interval) for segment in log.segments]


def _segment(log: Log, segment: Segment, disk: Any, sealed: bool, interval: int) -> SegmentIndexes:
    base, path = segment.base_offset, f"{log.directory}/{file_name(segment.base_offset, '')}"
    buffer, rows, at = peek(disk, path + LOG) or b"", [], 0
    size = min(segment.size, len(buffer))
    while at + HEADER_SIZE <= size:
        header = HEADER.unpack_from(buffer, at)
        # Base offset (0), length (1), last offset delta (6) and largest timestamp (8) of the batch's header.
        rows.append(IndexedBatch(header[0] + header[6] - base, at, header[8]))
        at += LENGTH_OVERHEAD + header[1]
    offsets = entries_of(segment.index, path + INDEX, disk)
    times = entries_of(segment.time_index, path + TIME_INDEX, disk)
    latest = segment.max_timestamp, segment.max_timestamp_offset - base
    return SegmentIndexes(base, tuple(rows), offsets, times, latest, max(interval, segment._index_interval), sealed)


def epochs_of(log: Log) -> EpochCacheSnapshot:
    """Return the leader-epoch cache that a log has in memory, and the log's offsets."""
    entries = tuple((each.epoch, each.start_offset) for each in log.epochs.entries)
    return EpochCacheSnapshot(entries, log.log_start_offset, log.log_end_offset)


def kept_start(log: Log, disk: Any, directory: str) -> int:
    """Return the log start offset that the node's checkpoint file has for a log; 0 if it has none."""
    return offsets_in(disk, f"{directory}/{LOG_STARTS}").get((log.topic, log.partition), 0)


@invariant(
    "epoch-cache-is-a-replay", CheckTrigger.EPOCHS, "KIP-101: the epoch cache follows from the batches; KAFKA-10432"
)
def epoch_cache_is_a_replay(cache: EpochCacheSnapshot, batches: Iterable[BatchIdentity]) -> str | None:
    """After a load, a truncation or a move of the log's start, the epoch cache follows from the batches: it has each
    epoch, with the offset of the epoch's first batch or with the log's start. (A leader that has written nothing yet
    also has its own epoch, with the log's end.)
    """
    wanted: list[tuple[int, int]] = []
    for batch in batches:
        if batch.end > cache.start and (not wanted or wanted[-1][0] != batch.epoch):
            wanted.append((batch.epoch, max(batch.base, cache.start)))
    found = list(cache.entries)
    if found and found[-1][1] >= cache.end and found != wanted:
        found.pop()
    return None if found == wanted else f"the epoch cache is {list(cache.entries)}, the batches say {wanted}"


@invariant("offset-index-is-a-replay", CheckTrigger.INDEXES, "Kafka: OffsetIndex; KAFKA-5642, KAFKA-7157")
def offset_index_is_a_replay(segment: SegmentIndexes) -> str | None:
    """After a load or a truncation, each entry of an offset index describes a batch of its segment: the batch's last
    offset, and the byte at which it begins. The entries are in order, without duplicates.
    """
    rows = {row.position: row.relative for row in segment.rows}
    wrong = [entry for entry in segment.offsets if rows.get(entry[1]) != entry[0]]
    if wrong or any(a[1] >= b[1] for a, b in zip(segment.offsets, segment.offsets[1:], strict=False)):
        return f"segment {segment.base}: the offset index has {wrong or list(segment.offsets)}: no such batches"
    return None


@invariant("time-index-is-a-replay", CheckTrigger.INDEXES, "Kafka: TimeIndex; KIP-33, KAFKA-5213")
def time_index_is_a_replay(segment: SegmentIndexes) -> str | None:
    """After a load or a truncation, each entry of a segment's time index follows from the batches: it holds the largest
    timestamp up to some point of the segment, and the last offset of the first batch with that timestamp. The log keeps
    one more such entry in memory, for the whole segment, which also follows from the batches.
    """
    steps = _steps(segment)
    known = dict(steps)
    wrong = [entry for entry in segment.times if known.get(entry[0]) != entry[1]]
    if wrong:
        return f"segment {segment.base}: the time index has {wrong}, the batches say {steps}"
    latest = steps[-1] if steps else (-1, segment.latest[1])
    return None if segment.latest == latest else f"segment {segment.base}: the latest is {segment.latest}, not {latest}"


def _steps(segment: SegmentIndexes) -> list[tuple[int, int]]:
    """Return (largest timestamp so far, last offset of the batch that has it), for each batch that raises the largest
    timestamp.
    """
    steps: list[tuple[int, int]] = []
    for row in segment.rows:
        if row.timestamp > (steps[-1][0] if steps else -1):
            steps.append((row.timestamp, row.relative))
    return steps


@invariant("offset-index-is-dense", CheckTrigger.INDEXES, "Kafka: OffsetIndex, index.interval.bytes")
def offset_index_is_dense(segment: SegmentIndexes) -> str | None:
    """After a load or a truncation, an offset index has an entry for each batch that begins more than
    index.interval.bytes after the previous batch in the index, or after the segment's beginning. (A change of that
    setting holds from the next segment or load on, and simulations do not change it.)
    """
    has, last = {position for _, position in segment.offsets}, 0
    for row in segment.rows:
        if row.position in has:
            last = row.position
        elif row.position - last > segment.interval:
            gap = f"between byte {last} and the batch at byte {row.position}"
            return f"segment {segment.base}: the offset index has nothing {gap}, nor that one"
    return None


@invariant("time-index-is-dense", CheckTrigger.INDEXES, "Kafka: TimeIndex; KIP-33")
def time_index_is_dense(segment: SegmentIndexes) -> str | None:
    """After a load or a truncation, a time index has an entry for each batch of the offset index, with the largest
    timestamp up to that batch. Once another segment follows, it also has the segment's largest timestamp.
    """
    ends = [relative for relative, _ in segment.offsets]
    if segment.sealed and segment.rows:
        ends.append(segment.rows[-1].relative)
    steps, has = _steps(segment), set(segment.times)
    for end in ends:
        at = bisect_right(steps, end, key=_relative)
        if at and steps[at - 1] not in has:
            return f"segment {segment.base}: the time index lacks {steps[at - 1]}, the largest up to {end}"
    return None


def _relative(step: tuple[int, int]) -> int:
    return step[1]


@invariant("log-start-is-kept", CheckTrigger.STARTED, "Kafka: log-start-offset-checkpoint; KIP-107")
def log_start_is_kept(start: int, first: int, kept: int, named: int) -> str | None:
    """The start of a loaded log is not before the base offset of its first segment (`first`), nor before the largest
    log start that its node has sent in a Fetch response (`named`). The start is not after the largest of three offsets:
    these two, and the log start in the node's checkpoint file (`kept`).
    """
    if max(first, named) <= start <= max(first, kept, named):
        return None
    return f"starts at {start}; first segment {first}, named before {named}, checkpoint {kept}"


@invariant("log-start-goes-on", CheckTrigger.WENT_BACK, "Kafka: a log's start only grows, but by a truncation; KIP-107")
def log_start_goes_on(before: int, now: int, end: int, cut: bool) -> str | None:
    """While a node runs, the start of a log moves back only if the log was truncated (`cut`) to an offset before its
    start. The log is then empty: its new start (`now`) is its end.
    """
    if now >= before or (cut and now == end):
        return None
    return f"starts at {now}, and started at {before}; it ends at {end}, and was {'' if cut else 'not '}truncated"


@invariant("metadata-log-follows-a-snapshot", CheckTrigger.TRIMMED, "KIP-630: a log starts where a snapshot ends")
def metadata_log_follows_a_snapshot(start: int, ends: Sequence[int]) -> str | None:
    """A node's metadata log starts at offset 0, or where a snapshot on its disk ends."""
    return None if not start or start in ends else f"starts at {start}; the snapshots end at {sorted(ends)}"


def wrong_in(segments: Sequence[SegmentIndexes], checks: Iterable[Any]) -> list[tuple[Any, str]]:
    """Return the invariants among `checks` that these segments break, each with its first problem in words."""
    found = [(each, each.check(segment)) for each in checks for segment in segments]
    return [(each, wrong) for each, wrong in found if wrong is not None]
