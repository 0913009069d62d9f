"""Loads a log from its directory, and recovers it first after an unclean shutdown (mechanism L6 in docs/mechanisms.md).

A clean log is used as its files are; only its end is read. Otherwise everything from the recovery point on is checked
batch by batch and truncated at the first damage; indexes, epochs and producer state are rebuilt from the batches.

Below the recovery point, recovery trusts batches and the indexes of segments that end before it. A segment that
contains the recovery point, or ends at it, is scanned from its first byte: its indexes may never have been synced.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.broker.env import Fs
from squall.broker.log import checkpoints, reads
from squall.broker.log.config import LONG_MAX, LogConfig
from squall.broker.log.epochs import EpochCache
from squall.broker.log.log import Log
from squall.broker.log.producers import ProducerStates, remove_snapshots
from squall.broker.log.results import RecoveryResult
from squall.broker.log.scan import BatchScanner
from squall.broker.log.segment import INDEX, LOG, SUFFIXES, TIME_INDEX, TRUNCATING, Segment, file_name
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import BatchHeader


def load(
    fs: Fs,
    directory: str,
    config: LogConfig,
    *,
    topic: str,
    partition: int,
    topic_id: bytes,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    wall_ms: int = 0,
) -> Log:
    """Load the log in `directory`, which is created if it is missing. `Log.recovery` describes what was found.

    All file names are durable on return. Otherwise a power loss could lose the name of the first segment. If that
    segment does not begin at offset 0, the log would then assign the same offsets again. Removed files could also
    return, and be taken for files that were written later under their names.

    `clean`: the clean-shutdown file was there. `recovery_point`, `log_start_offset`: from the checkpoints.
    """
    assert recovery_point >= 0
    assert log_start_offset >= 0
    fs.mkdirs(directory)
    bases = _remove_leftovers(fs, directory)
    loading = _LogLoader(fs, directory, config, bases, clean, recovery_point, log_start_offset)
    loading.run()
    segments, recovery_point = loading.segments, min(recovery_point, loading.end_offset)
    if segments and loading.end_offset < log_start_offset:
        # DeleteRecords has deleted records beyond the log's end, so no record here may be read any more.
        loading.discard_from(0, f"the log ends before its start {log_start_offset}")
        loading.epochs.clear()
        loading.epochs.flush()
        remove_snapshots(fs, directory, above=-1)
        fs.fsync_dir(directory)
    if not segments:
        segments.append(Segment(fs, directory, log_start_offset, config, fresh=True))
        recovery_point = log_start_offset
        loading.producers = ProducerStates()
    if not clean or segments[0].size == 0:
        fs.fsync_dir(directory)
    log = Log(
        fs,
        directory,
        config,
        segments,
        loading.epochs,
        topic=topic,
        partition=partition,
        topic_id=topic_id,
        wall_ms=wall_ms,
    )
    log.producers = loading.producers
    log.durability.recovery_point = recovery_point
    log.increment_log_start(log_start_offset)
    log.epochs.truncate_from_start(log.log_start_offset)
    log.recovery = loading.report(log.log_end_offset)
    assert log.log_start_offset == max(log_start_offset, segments[0].base_offset)
    assert log.recovery_point <= log.log_end_offset
    return log


def has_epoch(header: BatchHeader) -> bool:
    """Return whether a batch names its leader epoch (-1: it does not). 0 is a valid epoch (KAFKA-10432)."""
    return header.leader_epoch >= 0


def _remove_leftovers(fs: Fs, directory: str) -> list[int]:
    """Remove the files of interrupted operations, and return the base offsets of the segments, ascending."""
    names = fs.list(directory)
    stems = [name.removesuffix(LOG) for name in names if name.endswith(LOG)]
    bases = [int(stem) for stem in stems if stem.isdigit() and file_name(int(stem), "") == stem]
    for name in names:
        stem, dot, suffix = name.partition(".")
        orphan = stem.isdigit() and dot + suffix in (*SUFFIXES, TRUNCATING) and int(stem) not in bases
        if orphan or name.endswith(checkpoints.TEMPORARY):
            fs.remove(f"{directory}/{name}")
    assert len(set(bases)) == len(bases)
    return sorted(bases)


class _LogLoader:
    """Holds the segments, epochs and producer state of a log while `load` reads, checks and repairs them."""

    def __init__(
        self,
        fs: Fs,
        directory: str,
        config: LogConfig,
        bases: Sequence[int],
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._clean = clean
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._sparse = config.compacted
        self._scanned_segments = self._scanned_bytes = self._truncated_bytes = 0
        self._reason: str | None = None
        self._indexed = [self._has_indexes(base) for base in bases]
        self.segments = [Segment(fs, directory, base, config, fresh=False) for base in bases]
        for segment in self.segments:
            segment.complete_truncation()
        self.producers = ProducerStates()
        self.end_offset = 0
        cache = EpochCache.load(fs, directory)
        self._epochs_known = cache is not None
        self.epochs = cache or EpochCache(fs, directory)

    def _has_indexes(self, base: int) -> bool:
        path = f"{self._directory}/{file_name(base, '')}"
        return self._fs.exists(path + INDEX) and self._fs.exists(path + TIME_INDEX)

    def run(self) -> None:
        """Open the segments, scan those that need it, and truncate at damage."""
        first = self._first_to_scan()
        for segment, following in zip(self.segments[:first], self.segments[1:], strict=False):
            segment.open_inactive(following.base_offset)
        if first < len(self.segments):
            self._scan(first)
        elif first and not self._epochs_known:
            self._assign_epochs(self.segments[-1].next_offset)
        if not self.segments:
            # Without segments, epochs and snapshots describe no batch, not even one at offset 0.
            self.epochs.clear()
            if remove_snapshots(self._fs, self._directory, above=-1):
                self._fs.fsync_dir(self._directory)
            return
        self.end_offset = self.segments[-1].next_offset
        self.epochs.truncate_from_end(self.end_offset)
        self._complete_epochs()
        if remove_snapshots(self._fs, self._directory, above=self.end_offset):
            self._fs.fsync_dir(self._directory)
        if not self._scanned_segments:
            start = self.segments[0].base_offset
            self.producers = reads.producers_at(self._fs, self._directory, self.segments, start, self.end_offset)

    def _first_to_scan(self) -> int:
        """Return the index of the first segment to scan, or the number of segments if no segment needs a scan."""
        count = len(self.segments)
        if not count:
            return 0
        if self._clean:
            first = count if self.segments[-1].open_end() else count - 1
        else:
            # The segment that holds the recovery point is scanned from its start, which makes its indexes anew.
            inside = [at for at, segment in enumerate(self.segments) if segment.base_offset < self._recovery_point]
            first = inside[-1] if inside else 0
        # A segment without an index is scanned, with all segments after it: a scan rebuilds epochs and producer state.
        first = min([first, *(at for at in range(first) if not self._indexed[at])])
        assert 0 <= first
        assert first <= count
        return first

    # -------------------------------------------------------------------------------------------------- scanning

    def _scan(self, first: int) -> None:
        assert first < len(self.segments)
        assert not self._scanned_segments
        start = self.segments[first].base_offset
        if self._epochs_known:
            self.epochs.truncate_from_end(start)
        else:
            self._assign_epochs(start)
        oldest = self.segments[0].base_offset
        self.producers = reads.producers_at(self._fs, self._directory, self.segments[:first], oldest, start)
        expected = start
        for at in range(first, len(self.segments)):
            segment = self.segments[at]
            if segment.base_offset < expected or (segment.base_offset > expected and not self._sparse):
                self.discard_from(at, f"a segment begins at offset {segment.base_offset} instead of {expected}")
                return
            damage = self._scan_segment(segment)
            expected = segment.next_offset
            if damage is not None:
                self._reason = f"{damage} of the segment at offset {segment.base_offset}"
                self.discard_from(at + 1, self._reason)  # They would follow a gap in the offsets.
                return
            if at + 1 < len(self.segments):
                segment.become_inactive()
            if at - 2 >= first:
                self.segments[at - 2].drop_tail()

    def _scan_segment(self, segment: Segment) -> str | None:
        """Check and add the batches of one segment, and truncate it at the first damage. Returns the damage or None."""
        size = segment.size
        segment.forget()  # The indexes are not trusted: they may be as damaged as the batches.
        scan = BatchScanner(segment.file, size)
        damage = None
        for header, position, data in scan:
            damage = self._add_batch(segment, header, position, data)
            if damage is not None:
                break
        damage = damage or scan.damage
        assert segment.size <= size
        assert segment.base_offset <= segment.next_offset
        assert segment.next_offset <= segment.offset_limit + 1
        self._scanned_segments += 1
        self._scanned_bytes += segment.size
        if damage is not None:
            self._truncated_bytes += size - segment.size
            segment.truncate(segment.size, segment.next_offset)
        return damage

    def _add_batch(self, segment: Segment, header: BatchHeader, position: int, data: memoryview) -> str | None:
        """Add one batch to the segment, or return why its offset or content is wrong."""
        base, expected = header.base_offset, segment.next_offset
        last = base + header.last_offset_delta
        if base < expected or last < base or last > segment.offset_limit:
            return f"offset {base} instead of {expected} at byte {position}"
        aborted = None
        if header.producer_id >= 0:
            try:
                aborted = self.producers.replay(header, data)
            except MalformedFrame as problem:
                return f"control batch at byte {position} ({problem})"
        if base > expected or header.record_count <= header.last_offset_delta:
            self._sparse = True  # The log was compacted, so offsets may also be missing between segments.
        epoch = header.leader_epoch
        if epoch != self.epochs.latest and has_epoch(header):
            self.epochs.assign(epoch, base)
        segment.note(last + 1, len(data), header.max_timestamp)
        if aborted is not None:
            segment.aborted.add_aborted(aborted)
        return None

    def discard_from(self, at: int, reason: str) -> None:
        """Remove the segments from index `at` on, newest first. `reason` is reported unless damage was found before."""
        assert 0 <= at
        assert at <= len(self.segments)
        for segment in reversed(self.segments[at:]):
            self._truncated_bytes += segment.file.size()
            segment.remove()
            self.segments.pop()
            self._reason = self._reason or reason
        assert len(self.segments) == at
        self._fs.fsync_dir(self._directory)

    def _assign_epochs(self, end: int) -> None:
        """Rebuild the epochs from all batches that begin before the offset `end`."""
        assert self.segments
        for _, header, _, _ in reads.headers(self.segments, self.segments[0].base_offset, LONG_MAX):
            if header.base_offset >= end:
                return
            if has_epoch(header):
                self.epochs.assign(header.leader_epoch, header.base_offset)

    def _complete_epochs(self) -> None:
        """Rebuild the epochs between the log start and the first known epoch. They are missing after a crash between
        two steps: the log start was raised, which drops epochs, but the checkpoint still has the lower start.
        """
        known = self.epochs.entries
        first = max(self._log_start_offset, self.segments[0].base_offset)
        if known and first < known[0].start_offset:
            later = list(known)
            self.epochs.clear()
            self._assign_epochs(later[0].start_offset)
            for epoch, start in later:
                self.epochs.assign(epoch, start)
            assert self.epochs.latest == later[-1].epoch
            assert self.epochs.entries[0].start_offset <= later[0].start_offset

    def report(self, log_end_offset: int) -> RecoveryResult:
        """Return what loading found and did."""
        assert self._truncated_bytes == 0 or self._reason is not None
        assert self._scanned_bytes == 0 or self._scanned_segments > 0
        return RecoveryResult(
            self._clean and not self._scanned_segments,
            self._scanned_segments,
            self._scanned_bytes,
            self._truncated_bytes,
            self._reason,
            log_end_offset,
        )
