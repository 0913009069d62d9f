"""Tracks how much of a log is durable, and makes the rest durable off the event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from squall.broker.env import File, Fs
from squall.broker.log.config import LONG_MAX, LogConfig
from squall.broker.log.segment import Segment


class FlushJob(NamedTuple):
    """Fsyncs the files that `Log.begin_flush` found not to be durable. A log has at most one running job."""

    fs: Fs
    files: Sequence[File]
    directory: str | None
    """Names the directory to fsync, or is None if the names of its files are durable already."""
    end_offset: int
    """Gives the offset before which everything is durable once `run` has returned."""
    generation: int
    names: int
    inactive: Sequence[Segment]

    def run(self) -> None:
        """Fsync the files and the directory. The call blocks, so it runs in `env.cpu`. After an OSError no file may be
        assumed durable.
        """
        for file in self.files:
            file.fsync()
        if self.directory is not None:
            self.fs.fsync_dir(self.directory)


class DurabilityTracker:
    """Tracks up to which offset one log is durable, and whether the names of its files are durable.

    After a power loss a file can be missing although its content was fsynced, if its directory was not fsynced.
    """

    __slots__ = ("_flush_messages", "_flush_ms", "_flushed_wall_ms", "_names", "_names_durable", "recovery_point")

    def __init__(self, config: LogConfig, wall_ms: int) -> None:
        self.recovery_point = 0
        """Gives the offset before which all batches are durable."""
        self._names, self._names_durable = 1, 0
        """Count the files created, and the files created before the directory was last fsynced."""
        self._flushed_wall_ms = wall_ms
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Apply changed settings."""
        self._flush_messages, self._flush_ms = config.flush_messages, config.flush_ms

    @property
    def has_flush_settings(self) -> bool:
        """Is True if flush.messages or flush.ms is set. By default only the operating system flushes."""
        return min(self._flush_messages, self._flush_ms) < LONG_MAX

    def is_due(self, log_end_offset: int, wall_ms: int) -> bool:
        """Return whether flush.messages or flush.ms require a flush now."""
        unflushed = log_end_offset - self.recovery_point
        if unflushed <= 0:
            return False
        if unflushed >= self._flush_messages:
            return True
        self._flushed_wall_ms = min(self._flushed_wall_ms, wall_ms)  # The clock may have been set back.
        return wall_ms - self._flushed_wall_ms >= self._flush_ms

    def is_flush_required(self, log_end_offset: int) -> bool:
        """Return whether flush.messages requires a flush before new batches are acknowledged. flush.ms never does."""
        return log_end_offset - self.recovery_point >= self._flush_messages

    def file_created(self) -> None:
        """Note that a file of the log was created, so its name is not durable yet."""
        self._names += 1

    @property
    def has_unsynced_names(self) -> bool:
        """Is True while the name of some file of the log may not survive a power loss."""
        return self._names > self._names_durable

    def directory_synced(self) -> None:
        """Note that the directory was fsynced: the names of all files created so far are durable."""
        assert self._names_durable <= self._names
        self._names_durable = self._names

    def lower(self, offset: int) -> None:
        """Lower the recovery point to `offset`, because the log is about to be truncated there."""
        assert offset >= 0
        self.recovery_point = min(self.recovery_point, offset)

    def job(
        self, fs: Fs, directory: str, segments: Sequence[Segment], end_offset: int, generation: int, *, indexes: bool
    ) -> FlushJob | None:
        """Return a job that fsyncs all files and names that are not durable yet, or None if there are none.

        The last of `segments` is the active one. `end_offset`: the log's end. `generation`: the log's count of
        truncations. `indexes`: include the indexes of the active segment.
        """
        files: list[File] = []
        inactive: list[Segment] = []
        active = segments[-1]
        assert active.next_offset == end_offset
        assert self.recovery_point <= end_offset
        assert self._names_durable <= self._names
        for segment in reversed(segments):
            full = segment is not active
            if segment.next_offset <= self.recovery_point and (segment.indexes_durable or not (full or indexes)):
                break  # A job takes all segments after the recovery point, so earlier ones are durable.
            segment.write_out()
            files += segment.unsynced(indexes=full or indexes)
            if full:
                inactive.append(segment)
        assert len(inactive) <= len(files)
        if not files and not self.has_unsynced_names:
            return None
        # Oldest first: after a crash between two fsyncs, the durable part is a prefix of the log without a gap.
        files.reverse()
        return FlushJob(
            fs, files, directory if self.has_unsynced_names else None, end_offset, generation, self._names, inactive
        )

    def done(self, job: FlushJob, generation: int, wall_ms: int) -> None:
        """Raise the recovery point to the end offset of a flush job that has run. Does not raise it if the log was
        truncated meanwhile: `generation`, the log's present count of truncations, is then above the job's.
        """
        assert job.generation <= generation
        assert job.names <= self._names
        # This may lower the count, if the directory was synced while the job ran. The next job then syncs it once more.
        self._names_durable = job.names
        if job.generation != generation:
            # The log was truncated meanwhile; new batches may have the offsets of the flushed ones (Redpanda 15201).
            return
        self.recovery_point = max(self.recovery_point, job.end_offset)
        self._flushed_wall_ms = wall_ms
        for segment in job.inactive:
            segment.indexes_durable = True
            segment.release()
