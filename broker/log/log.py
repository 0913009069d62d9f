"""Implements one partition's log (mechanisms L1 and L3 in docs/mechanisms.md): append, slice, truncate, flush.

The hot path is `append_as_leader`, `append_as_follower` and `slice`. An append unpacks 61 bytes, checks one CRC and
writes once; a slice is two binary searches in memory. Single records are read only if the topic's settings require it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from crc32c import crc32c

from squall.broker.env import Fs
from squall.broker.log import reads
from squall.broker.log.arrivals import batch_around, checked_batches
from squall.broker.log.config import LogConfig
from squall.broker.log.durability import DurabilityTracker, FlushJob
from squall.broker.log.epochs import EpochCache
from squall.broker.log.indexes import AbortedTxn
from squall.broker.log.limits import AppendLimits
from squall.broker.log.lookups import TimestampLookup
from squall.broker.log.markers import TxnMarker, encode_marker
from squall.broker.log.producer_answers import answer_to, marker_answer
from squall.broker.log.producers import ProducerStates, remove_snapshots, write_snapshot
from squall.broker.log.reads import segment_at
from squall.broker.log.results import AppendResult, FollowerAppendResult, RecoveryResult
from squall.broker.log.retention import deletable
from squall.broker.log.scan import PLACE, LocatedBatch
from squall.broker.log.segment import Segment
from squall.broker.log.slices import FileSlice
from squall.broker.log.validation import ORDINARY, check_unusual, with_timestamp
from squall.broker.protocol.compression import MOST_UNPACKED
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.record_walk import CheckedBatch
from squall.broker.protocol.records import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    SMALLEST_RECORD,
    TRANSACTIONAL_BIT,
    BatchHeader,
)

SMALL_BYTES = 1 << 20
"""Is the size in bytes below which a segment counts as small: the minimum of segment.bytes in Kafka 4 (KIP-1030)."""


class Log:
    """Holds the batches of one partition. `recovery.load` makes it; one task uses it at a time; calls are synchronous.

    After an OSError, which comes from the disk, appends may be retried. After a failed fsync or truncation the
    directory cannot be trusted any more.
    """

    def __init__(
        self,
        fs: Fs,
        directory: str,
        config: LogConfig,
        segments: list[Segment],
        epochs: EpochCache,
        *,
        topic: str,
        partition: int,
        topic_id: bytes,
        wall_ms: int,
    ) -> None:
        self._fs, self.directory = fs, directory
        self.topic, self.partition = topic, partition
        self.topic_id = topic_id
        """Holds the 16 bytes of the topic id; zeros if it is unknown."""
        self.segments = segments
        self._active = segments[-1]
        self.epochs = epochs
        self.producers = ProducerStates()
        self.log_start_offset = segments[0].base_offset
        """Gives the first offset that readers may ask for."""
        self.log_end_offset = self._active.next_offset
        """Gives the offset of the next batch."""
        self.durability = DurabilityTracker(config, wall_ms)
        self.generation = 0
        """Counts truncations. Slices that were made before a truncation must not be sent after it."""
        self.recovery = RecoveryResult(True, 0, 0, 0, None, self.log_end_offset)
        self.before_shrink: Callable[[Log], None] = lambda log: None
        """Is called after the recovery point or the log start was lowered, to save both before records are removed."""
        self.before_cut: Callable[[Log, int], None] = lambda log, end_offset: None
        """Is called before a truncation, with the first offset that it removes, to lower the saved high watermark."""
        self.may_be_small: Callable[[], bool] = lambda: True
        """Returns False if there are too many segments: then none below SMALL_BYTES is rolled, even if it is due."""
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Apply changed settings. index.interval.bytes takes effect with the next segment."""
        self.config = config
        self._limits = AppendLimits(config)
        self.durability.configure(config)
        self.flushes = self.durability.has_flush_settings
        """Is False if neither flush.messages nor flush.ms is set; `flush_due` is then always False."""

    @property
    def recovery_point(self) -> int:
        """Returns the offset before which all batches are durable."""
        return self.durability.recovery_point

    @property
    def size(self) -> int:
        """Returns the bytes of all batches."""
        return sum(segment.size for segment in self.segments)

    def __repr__(self) -> str:
        return f"<Log {self.topic}-{self.partition} {self.log_start_offset}..{self.log_end_offset}>"

    def _check(self) -> None:
        """Assert the invariants that hold before and after each call. Appends assert only what they change."""
        assert self._active is self.segments[-1]
        assert self._active.next_offset == self.log_end_offset
        assert self.segments[0].base_offset <= self.log_start_offset
        assert self.log_start_offset <= self.log_end_offset
        assert 0 <= self.recovery_point
        assert self.recovery_point <= self.log_end_offset
        assert not self.epochs.entries or self.epochs.entries[-1].start_offset <= self.log_end_offset

    # ------------------------------------------------------------------------------------------------- appending

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        wall_ms: int,
        *,
        client: bool = True,
        zstd: bool = True,
        checked: CheckedBatch | AppendResult | None = None,
    ) -> AppendResult:
        """Append one batch at the end, and write its base offset and leader epoch into `records`. Returns an error if
        the batch must not be appended, and the earlier offsets if it is a duplicate.

        `client`: False for batches of the broker itself, which may be control batches. `zstd`: False for requests too
        old to carry zstd. `checked`: the result of `check_batch`, if the caller has called it.
        """
        size, limits = len(records), self._limits
        if size < HEADER_SIZE:
            return AppendResult.refused(ErrorCode.INVALID_RECORD, f"{size} bytes are no record batch")
        header = HEADER.unpack_from(records)
        offset, length, _, magic, crc, attributes, delta, first, timestamp, producer_id, epoch, sequence, n = header
        if (
            (length + LENGTH_OVERHEAD != size or magic != 2 or size > limits.batch_bytes or not 0 <= delta == n - 1)
            or attributes not in ORDINARY
            or (timestamp - wall_ms > limits.after_ms or wall_ms - first > limits.before_ms)
            or not -1 <= first <= timestamp
            or n * SMALLEST_RECORD > (size - HEADER_SIZE) * MOST_UNPACKED[attributes & CODEC_MASK]
            or (n > limits.most_records or offset or limits.checks_records or not zstd or not client)
            or (sequence | epoch < 0 if producer_id >= 0 else attributes & TRANSACTIONAL_BIT)
            or crc32c(records[CRC_FROM:]) != crc
        ):
            looked = check_unusual(records, self.config, wall_ms, client=client, zstd=zstd, checked=checked)
            if isinstance(looked, AppendResult):
                return looked
            records, timestamp = looked
        if producer_id >= 0:
            entry = self.producers.entries.get(producer_id)
            # Fast path: the batch is in order, and no transaction begins or ends with it.
            txn = attributes & TRANSACTIONAL_BIT != 0
            in_order = entry and entry.next_sequence == sequence and entry.epoch == epoch
            if entry is None or not in_order or (entry.txn_first_offset >= 0) is not txn:
                answer = self._answer_to(BatchHeader._make(header), records, client)
                if answer is not None:
                    return answer
        if limits.append_time:
            records, timestamp = with_timestamp(records, wall_ms, True), wall_ms
        elif records.readonly:
            records = memoryview(bytearray(records))
        base = self.log_end_offset
        last, segment = base + delta, self._active
        if (
            (segment.size + size > limits.segment_bytes or timestamp - segment.roll_timestamp > limits.segment_ms)
            or (last > segment.offset_limit or segment.full)
        ) and segment.size:
            segment = self.roll(must=last > segment.offset_limit)  # else its indexes could not hold the offset
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base)
        if self.epochs.dirty:
            self.epochs.flush()
        assert segment.next_offset == base
        PLACE.pack_into(records, 0, base, length, leader_epoch)
        segment.append(records)
        segment.note(last + 1, size, timestamp)
        self.log_end_offset = last + 1
        if producer_id >= 0:
            if attributes & CONTROL_BIT:
                self._replay(segment, BatchHeader._make(HEADER.unpack_from(records)), records)
            else:
                self.producers.appended(producer_id, epoch, sequence, base, delta, timestamp, txn)
        return AppendResult(0, base, last, timestamp if limits.append_time else -1, False, None)

    def _answer_to(self, header: BatchHeader, batch: memoryview, client: bool) -> AppendResult | None:
        verify = client and self.config.transaction_partition_verification_enable
        place = f"{self.topic}-{self.partition}"
        answer = answer_to(self.producers, header, batch, self.log_end_offset, place, verify=verify)
        plain = answer is None or answer.error or self._limits.append_time
        return answer if answer is None or plain else answer._replace(log_append_time_ms=-1)

    def end_transaction(
        self, producer_id: int, epoch: int, marker: TxnMarker, transaction_version: int, leader_epoch: int, wall_ms: int
    ) -> AppendResult:
        """Append a coordinator's transaction marker (mechanism P3). For a duplicate, returns the log's last offset."""
        verdict = self.producers.take_marker(producer_id, epoch, marker, transaction_version)
        if verdict is None:
            batch = encode_marker(producer_id, epoch, marker, wall_ms)
            return self.append_as_leader(batch, leader_epoch, wall_ms, client=False)
        return marker_answer(verdict, self.log_end_offset)

    def append_as_follower(self, records: memoryview, leader_epoch: int) -> FollowerAppendResult:
        """Append the batches in a leader's response unchanged. They must begin at the log's end. Skips a partial last
        batch, and everything from the first batch with an epoch above `leader_epoch`, the epoch of the request.

        Appends nothing on CorruptRecords and UnexpectedOffset. Writes once for each segment that gets batches.
        """
        first, start, limits = self.log_end_offset, self.log_start_offset, self._limits
        if not self._active.size and len(self.segments) == 1:
            # A log emptied by DeleteRecords may start inside a batch. It then begins with that batch.
            around = batch_around(records, first)
            first = first if around is None else around
        checked = checked_batches(records, first, leader_epoch, gaps=limits.compacted)
        if checked and first != self.log_end_offset:
            self.truncate_fully_and_start_at(first)
        run: list[LocatedBatch] = []
        segment, size, oldest = self._active, self._active.size, self._active.roll_timestamp
        for item in checked:
            header, at, stop = item
            if size and (
                size + stop - at > limits.segment_bytes
                or header.max_timestamp - oldest > limits.segment_ms
                or header.base_offset + header.last_offset_delta > segment.offset_limit
                or segment.full
            ):
                self._append_run(segment, records, run)
                segment = self.roll(must=header.base_offset + header.last_offset_delta > segment.offset_limit)
                run, size, oldest = [], segment.size, segment.roll_timestamp
            if not size and header.max_timestamp >= 0:
                oldest = header.max_timestamp
            size += stop - at
            run.append(item)
        self._append_run(segment, records, run)
        assert self._active.next_offset == self.log_end_offset
        assert first <= self.log_end_offset
        self.increment_log_start(start)
        return FollowerAppendResult(first, self.log_end_offset, run[-1].stop if run else 0)

    def _append_run(self, segment: Segment, records: memoryview, run: list[LocatedBatch]) -> None:
        """Append checked batches to one segment."""
        if not run:
            return
        epochs = self.epochs
        try:
            for header, _, _ in run:
                if header.leader_epoch != epochs.latest:
                    epochs.assign(header.leader_epoch, header.base_offset)
            if epochs.dirty:
                epochs.flush()
            segment.append(records[run[0].start : run[-1].stop])
        except OSError:
            epochs.truncate_from_end(self.log_end_offset)
            raise
        for header, at, stop in run:
            segment.note(header.base_offset + header.last_offset_delta + 1, stop - at, header.max_timestamp)
            if header.producer_id >= 0:
                self._replay(segment, header, records[at:stop])
        self.log_end_offset = segment.next_offset

    def _replay(self, segment: Segment, header: BatchHeader, batch: memoryview) -> None:
        aborted = self.producers.replay(header, batch)
        if aborted is not None:
            segment.aborted.add_aborted(aborted)
            self.durability.file_created()

    def roll(self, *, must: bool = False) -> Segment:
        """Begin a new segment at the log's end and return the active segment. Does nothing if the active segment is
        empty, or is small and there are too many segments, unless `must` is set.
        """
        old = self._active
        if not old.size or (old.size < SMALL_BYTES and not must and not self.may_be_small()):
            return old
        assert old.next_offset == self.log_end_offset
        old.become_inactive()
        write_snapshot(self._fs, self.directory, self.log_end_offset, self.producers)
        new = Segment(self._fs, self.directory, self.log_end_offset, self.config, fresh=True)
        self.durability.file_created()
        self.segments.append(new)
        self._active = new
        assert new.base_offset > old.base_offset
        if len(self.segments) > 2:
            self.segments[-3].drop_tail()
        return new

    # --------------------------------------------------------------------------------------------------- reading

    def slice(self, offset: int, limit_exclusive: int, max_bytes: int, at_least_one: bool) -> FileSlice | None:
        """Return complete batches of one segment: from the batch with `offset`, all below `limit_exclusive`.

        The slice has at most `max_bytes`, but at least one batch if `at_least_one`. Returns None if no batch meets
        this. The caller has checked that `offset` may be read.
        """
        active = self._active
        if offset >= active.base_offset:
            return active.slice(offset, limit_exclusive, max_bytes, at_least_one)
        for segment in self.segments[segment_at(self.segments, offset) :]:
            found = segment.slice(offset, limit_exclusive, max_bytes, at_least_one)
            # In a compacted log the batch that `offset` was in may be gone, with all that followed it in its segment.
            if found is not None or next(segment.walk_from(offset), None) is not None:
                return found
        return None

    def read_batches(self, offset: int, limit: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield header and bytes of each batch from the one that contains `offset`, all entirely below `limit`."""
        return reads.read_batches(self.segments, offset, limit)

    def offset_for_timestamp(self, timestamp: int | None, limit: int) -> TimestampLookup:
        """Return a search below offset `limit`: first record of at least `timestamp` ms (None: largest timestamp)."""
        return TimestampLookup(self.segments, self.log_start_offset, limit, timestamp, self.config)

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with batches in `offset` .. `end_offset` - 1, for read_committed readers."""
        return reads.aborted_transactions(self.segments, offset, end_offset)

    def bound_of(self, found: FileSlice, offset: int) -> int:
        """Return an upper bound (exclusive) of the offsets in `found`, a slice read from `offset`. May be too high."""
        for segment in self.segments[segment_at(self.segments, offset) :]:
            if segment.file is found.file:
                return segment.bound_at(found.position + found.length)
        return self.log_end_offset

    def recall_undecided(self, high_watermark: int) -> None:
        """Restore `producers.undecided` after loading (mechanism R5): the ended transactions whose markers are not
        below `high_watermark`, so not committed. Reads the batches, because producer snapshots lack these transactions.
        """
        if high_watermark < self.log_end_offset and self.producers.has_ended_transactions():
            start, end = self.segments[0].base_offset, self.log_end_offset
            found = reads.producers_at(self._fs, self.directory, self.segments, start, end, since=high_watermark)
            found.first_unstable_offset(high_watermark)
            self.producers.undecided = found.undecided

    # ------------------------------------------------------------------------------------------------ truncating

    def truncate_to(self, offset: int) -> bool:
        """Durably remove the batches that contain or follow `offset`. Returns whether there were any. Also removes a
        leader epoch that starts at the log's end: its leader wrote nothing.
        """
        assert offset >= 0
        self._check()
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        at = segment_at(self.segments, offset)
        segment = self.segments[at]
        found = next(segment.walk_from(offset), None)
        end, position = (min(offset, found.header.base_offset), found.start) if found else (offset, segment.size)
        self.generation += 1
        self._lower(end)
        self._remove_from(at + 1, end)
        segment.truncate(position, end)  # Makes the removals durable before it cuts.
        self._active = segment
        self.log_end_offset = end
        self.epochs.truncate_from_end(end)
        if self.producers.entries:
            start, ended = self.segments[0].base_offset, self.producers.undecided
            self.producers = reads.producers_at(self._fs, self.directory, self.segments, start, end)
            self.producers.undecided = deque(txn for txn in ended if txn.last_offset < end)
        assert self.log_end_offset <= offset
        self._check()
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all batches durably. The next batch gets `offset`."""
        self.generation += 1
        self._lower(min(offset, self.segments[0].base_offset))
        self._remove_from(0, -1)
        self._fs.fsync_dir(self.directory)
        # Write the epochs before the new segment: with the segment and old epochs, loading would assign a wrong epoch.
        self.epochs.clear()
        self.epochs.flush()
        self.producers = ProducerStates()
        self._active = Segment(self._fs, self.directory, offset, self.config, fresh=True)
        self.segments.append(self._active)
        self._fs.fsync_dir(self.directory)
        self.log_start_offset = self.log_end_offset = self.durability.recovery_point = offset
        self._check()

    def _lower(self, offset: int) -> None:
        """Lower recovery point and log start to `offset` before the records after it are removed. Otherwise recovery
        after a crash would trust unsynced batches below the old point, or discard all below the old start.
        """
        assert offset <= self.log_end_offset
        if offset < self.recovery_point or offset < self.log_start_offset:
            self.durability.lower(offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self.before_shrink(self)
        self.before_cut(self, offset)

    def _remove_from(self, at: int, snapshots_above: int) -> None:
        """Remove the segments from index `at` on, newest first, and the producer snapshots above an offset."""
        for segment in reversed(self.segments[at:]):
            segment.remove()
            self.segments.pop()
            if not at:
                # Otherwise segments that a power loss brings back would be taken for the whole log.
                self._fs.fsync_dir(self.directory)
        remove_snapshots(self._fs, self.directory, above=snapshots_above)

    # ------------------------------------------------------------------------------------------------- retention

    def increment_log_start(self, offset: int) -> bool:
        """Raise the log start to `offset`, at most the log's end. Returns whether it was raised."""
        if offset <= self.log_start_offset:
            return False
        assert offset <= self.log_end_offset
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def delete_old_segments(self, wall_ms: int, high_watermark: int) -> list[int]:
        """Delete the oldest segments that are below the log start or beyond retention, up to `high_watermark`. Returns
        their base offsets. The log start moves to the first remaining segment.
        """
        assert high_watermark <= self.log_end_offset
        doomed = deletable(self.segments, self.config, wall_ms, self.log_start_offset, high_watermark)
        if doomed == len(self.segments):
            self.roll(must=True)
        if doomed and self.durability.has_unsynced_names:
            # First make the names of the remaining segments durable: else a power loss could leave no segment at all.
            self._fs.fsync_dir(self.directory)
            self.durability.directory_synced()
        removed = [self._remove_oldest() for _ in range(doomed)]
        self._check()
        return removed

    def _remove_oldest(self) -> int:
        assert len(self.segments) > 1
        oldest = self.segments.pop(0)
        assert oldest.next_offset <= self.segments[0].base_offset
        self.increment_log_start(self.segments[0].base_offset)
        remove_snapshots(self._fs, self.directory, below=self.segments[0].base_offset)
        oldest.remove()
        # Remove one segment at a time: a power loss must leave no gap between the remaining ones.
        self._fs.fsync_dir(self.directory)
        return oldest.base_offset

    # -------------------------------------------------------------------------------------------------- flushing

    def flush_due(self, wall_ms: int) -> bool:
        """Return whether flush.messages or flush.ms require a flush now."""
        return self.durability.is_due(self.log_end_offset, wall_ms)

    @property
    def is_flush_required(self) -> bool:
        """Returns whether flush.messages requires a flush before new batches are acknowledged. flush.ms never does."""
        return self.durability.is_flush_required(self.log_end_offset)

    def begin_flush(self, *, indexes: bool = False) -> FlushJob | None:
        """Return the job that makes the log's present content durable, or None if it is durable; see `finish_flush`.
        Includes the active segment's indexes only if `indexes`: recovery can rebuild them from the batches.
        """
        return self.durability.job(
            self._fs, self.directory, self.segments, self.log_end_offset, self.generation, indexes=indexes
        )

    def finish_flush(self, job: FlushJob, wall_ms: int) -> None:
        """Raise the recovery point after a job of `begin_flush` has run, unless the log was truncated meanwhile."""
        self.durability.done(job, self.generation, wall_ms)
        self._check()

    def flush(self, wall_ms: int, *, indexes: bool = False) -> None:
        """Make everything durable, synchronously."""
        job = self.begin_flush(indexes=indexes)
        if job is not None:
            job.run()
            self.finish_flush(job, wall_ms)

    def close(self, wall_ms: int) -> None:
        """Flush batches, indexes and a producer snapshot, so that the next load needs no recovery; close the files."""
        self._active.become_inactive()
        write_snapshot(self._fs, self.directory, self.log_end_offset, self.producers)
        self.durability.file_created()  # the snapshot's name is fsynced with the flush
        self.flush(wall_ms, indexes=True)
        if self.epochs.dirty:
            self.epochs.flush()
        self.release()

    def release(self) -> None:
        """Close the files without flushing them."""
        for segment in self.segments:
            segment.release()
            segment.file.close()
