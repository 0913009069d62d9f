"""Tracks how much of a log is durable, and makes the rest durable off the event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from squall.broker.env import File, Fs
from squall.broker.log.config import LONG_MAX, LogConfig
from squall.broker.log.segment import Segment


class FlushJob(NamedTuple):
    """Makes durable what `Log.begin_flush` found not to be. One job of a log runs at a time."""

    fs: Fs
    files: Sequence[File]
    directory: str | None
    """Its names are made durable too; None where they are."""
    end_offset: int
    """All before this offset is durable once `run` has returned."""
    generation: int
    names: int
    inactive: Sequence[Segment]

    def run(self) -> None:
        """Blocking: give it to `env.cpu`. An OSError means that nothing of the directory is known to be durable."""
        for file in self.files:
            file.fsync()
        if self.directory is not None:
            self.fs.fsync_dir(self.directory)


class DurabilityTracker:
    """Tracks up to where one log's batches are durable, and whether the names of its files are.

    A file whose name is not durable can be gone after a power loss, however often it was synced itself.
    """

    __slots__ = ("_flush_messages", "_flush_ms", "_flushed_wall_ms", "_names", "_names_durable", "recovery_point")

    def __init__(self, config: LogConfig, wall_ms: int) -> None:
        self.recovery_point = 0
        """All before this offset is durable."""
        self._names, self._names_durable = 1, 0
        """How many files have appeared, and how many of those had when the directory was synced last."""
        self._flushed_wall_ms = wall_ms
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Settings in force from now on."""
        self._flush_messages, self._flush_ms = config.flush_messages, config.flush_ms

    @property
    def has_flush_settings(self) -> bool:
        """False where flushing is left to the system, as it is by default: nothing is ever due then."""
        return min(self._flush_messages, self._flush_ms) < LONG_MAX

    def is_due(self, log_end_offset: int, wall_ms: int) -> bool:
        """True where flush.messages or flush.ms ask for a flush now."""
        unflushed = log_end_offset - self.recovery_point
        if unflushed <= 0:
            return False
        if unflushed >= self._flush_messages:
            return True
        self._flushed_wall_ms = min(self._flushed_wall_ms, wall_ms)  # The clock may have been set back.
        return wall_ms - self._flushed_wall_ms >= self._flush_ms

    def is_flush_required(self, log_end_offset: int) -> bool:
        """True where flush.messages asks for a flush before anybody hears of what is new. (flush.ms promises none.)"""
        return log_end_offset - self.recovery_point >= self._flush_messages

    def file_created(self) -> None:
        """A file has appeared."""
        self._names += 1

    @property
    def has_unsynced_names(self) -> bool:
        """True while some file's name may not survive a power loss."""
        return self._names > self._names_durable

    def directory_synced(self) -> None:
        """All names there are now are durable."""
        self._names_durable = self._names

    def lower(self, offset: int) -> None:
        """Note that all from `offset` on is about to go: it is not durable any more, whatever comes in its place."""
        assert offset >= 0
        self.recovery_point = min(self.recovery_point, offset)

    def job(
        self, fs: Fs, directory: str, segments: Sequence[Segment], end_offset: int, generation: int, *, indexes: bool
    ) -> FlushJob | None:
        """Return the job of `Log.begin_flush`. The last segment is the active one."""
        files: list[File] = []
        inactive: list[Segment] = []
        active = segments[-1]
        assert active.next_offset == end_offset
        assert self.recovery_point <= end_offset
        for segment in reversed(segments):
            full = segment is not active
            if segment.next_offset <= self.recovery_point and (segment.indexes_durable or not (full or indexes)):
                break  # A job takes every segment behind the recovery point, so those before this one are durable, too.
            segment.write_out()
            files += segment.unsynced(indexes=full or indexes)
            if full:
                inactive.append(segment)
        if not files and not self.has_unsynced_names:
            return None
        # Oldest first: if a crash comes between two of them, what is durable is a beginning of the log without a hole.
        files.reverse()
        return FlushJob(
            fs, files, directory if self.has_unsynced_names else None, end_offset, generation, self._names, inactive
        )

    def done(self, job: FlushJob, generation: int, wall_ms: int) -> None:
        """Note that a job has ended, for `Log.finish_flush`; `generation` is the log's now."""
        assert job.generation <= generation
        assert job.names <= self._names
        self._names_durable = job.names
        if job.generation != generation:
            # The log was cut meanwhile, and others may have the offsets of what was flushed (Redpanda 15201).
            return
        self.recovery_point = max(self.recovery_point, job.end_offset)
        self._flushed_wall_ms = wall_ms
        for segment in job.inactive:
            segment.indexes_durable = True
            segment.release()
