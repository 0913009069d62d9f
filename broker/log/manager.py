"""Manages all logs in a broker's data directory: loading, creation, deletion, checkpoints, clean-shutdown file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from squall.broker.env import Fs
from squall.broker.log import checkpoints
from squall.broker.log.checkpoints import CLEAN_SHUTDOWN, LOG_STARTS, META_PROPERTIES, RECOVERY_POINTS, TopicPartition
from squall.broker.log.config import LogConfig
from squall.broker.log.high_watermarks import HighWatermarkCheckpoint
from squall.broker.log.log import Log
from squall.broker.log.recovery import load

DELETED = "-delete"
ZERO_ID = bytes(16)
LONGEST_NAME = 255
_RESERVED_IDS = (ZERO_ID, bytes(15) + b"\x01", bytes(15) + b"\x02")


class InconsistentMetaProperties(Exception):
    """Is raised if meta.properties names another cluster or node. Starting would mix the data of both."""


class LogManager:
    """Manages the logs in one directory. One task uses it; the calls are synchronous and may fsync.

    A broker calls `load_all`, then `get_or_create`, `delete`, `tick`, `take_removable`, `checkpoint_recovery_points`,
    and at a controlled shutdown `close` and `mark_clean_shutdown`. Flush jobs of the logs must have ended before
    `close`.
    """

    def __init__(
        self,
        fs: Fs,
        log_dir: str,
        config_for: Callable[[str], LogConfig],
        *,
        rng: Random,
        cluster_id: str | None = None,
        node_id: int | None = None,
        segments: int = 1000,
    ) -> None:
        """Create the directory and its meta.properties if they are missing. Raises InconsistentMetaProperties if they
        belong to another node or cluster.

        `segments`: from this number of inactive segments on, in all logs together, no segment smaller than
        `log.SMALL_BYTES` is rolled.
        """
        self._fs = fs
        self.log_dir = log_dir
        self._config_for = config_for
        self._rng = rng
        self._segments = segments
        self.logs: dict[TopicPartition, Log] = {}
        self._removable: list[tuple[int, str]] = []
        """Holds the renamed directories of deleted logs, each with the wall-clock ms from which it may be removed."""
        self._deleted_since_checkpoint: dict[TopicPartition, None] = {}
        """Holds the partitions deleted since the checkpoints were written, which may still contain them."""
        self._starts_written: checkpoints.Offsets = {}
        """Holds the content of the log start checkpoint."""
        self.previous_broker_epoch = -1
        """Gives the broker epoch of the previous run if it ended cleanly (KIP-966), else -1."""
        self.clean = False
        """Is True if the previous run ended cleanly."""
        fs.mkdirs(log_dir)
        self.high_watermarks = HighWatermarkCheckpoint(fs, log_dir)
        self.directory_id = self._check_meta(cluster_id, node_id)
        """Holds the 16 bytes of the directory id in meta.properties, which never changes (KIP-858)."""

    def space(self) -> tuple[int, int]:
        """Return the total and the free bytes of the volume of the data directory; (-1, -1) if they are unknown."""
        try:
            return self._fs.space(self.log_dir)
        except OSError:
            return -1, -1

    def _check_meta(self, cluster_id: str | None, node_id: int | None) -> bytes:
        path = f"{self.log_dir}/{META_PROPERTIES}"
        found = checkpoints.read_properties(self._fs, path)
        wanted = {"version": "1"}
        if node_id is not None:
            wanted["node.id"] = str(node_id)
        if cluster_id is not None:
            wanted["cluster.id"] = cluster_id
        for name, value in wanted.items():
            if found.get(name, value) != value:
                raise InconsistentMetaProperties(f"{path} says {name}={found[name]}, the configuration {value}")
        directory_id = checkpoints.uuid_bytes(found.get("directory.id", ""))
        if directory_id is None:
            directory_id = self._new_id()
        wanted["directory.id"] = checkpoints.uuid_text(directory_id)
        merged = {**found, **wanted}
        if merged != found:
            checkpoints.write_properties(self._fs, path, merged)
            self._fs.fsync_dir(checkpoints.parent(self.log_dir))
        assert len(directory_id) == len(ZERO_ID)
        return directory_id

    def _new_id(self) -> bytes:
        """Return 16 random bytes for the directory id (KIP-858): no id that Kafka reserves, and none whose text begins
        with a dash.
        """
        while True:
            value = self._rng.randbytes(16)
            if value not in _RESERVED_IDS and not checkpoints.uuid_text(value).startswith("-"):
                return value

    # --------------------------------------------------------------------------------------------------- loading

    def load_all(self, wall_ms: int) -> list[Log]:
        """Load every log of the directory, with recovery if needed.

        First removes the clean-shutdown file durably, so that a crash while loading does not leave it for the next
        start (KAFKA-10471).
        """
        assert not self.logs, "the logs of a directory are loaded once"
        marker = f"{self.log_dir}/{CLEAN_SHUTDOWN}"
        epoch = checkpoints.read_clean_shutdown(self._fs, marker)
        self.clean = self._ended_cleanly(epoch)
        self.previous_broker_epoch = -1 if epoch is None else epoch
        if epoch is not None:
            self._fs.remove(marker)
        # This also covers the checkpoints: a power loss must not replace what is read now by older files.
        self._fs.fsync_dir(self.log_dir)
        recovery_points = checkpoints.read_offsets(self._fs, self._path(RECOVERY_POINTS))
        starts = self._starts_written = checkpoints.read_offsets(self._fs, self._path(LOG_STARTS))
        for name in self._fs.list(self.log_dir):
            if name.endswith(DELETED):
                self._fs.remove_dir(self._path(name))
                continue
            place = self._partition_of(name)
            if place is None:
                continue
            self._load(place, self.clean, recovery_points.get(place, 0), starts.get(place, 0), wall_ms)
        # The checkpoints may be ahead of truncated logs, or name deleted ones, whose names may be used again. Correct
        # them before the first append.
        known = {place: log.recovery_point for place, log in self.logs.items()}
        if (
            any(known.get(place, -1) < point for place, point in recovery_points.items())
            or starts.keys() - known.keys()
        ):
            self.checkpoint_recovery_points()
        self.high_watermarks.correct({place: log.log_end_offset for place, log in self.logs.items()})
        assert self._starts_written.keys() <= self.logs.keys()
        assert all(log.log_start_offset <= log.log_end_offset for log in self.logs.values())
        return list(self.logs.values())

    def _ended_cleanly(self, marker_epoch: int | None) -> bool:
        """Return whether the previous run shut down cleanly, so that the logs need no recovery. `marker_epoch`: the
        broker epoch in the clean-shutdown file (-1 if it names none), or None if there was no such file.
        """
        return marker_epoch is not None

    def _load(self, place: TopicPartition, clean: bool, recovery_point: int, start: int, wall_ms: int) -> Log:
        topic, partition = place
        directory = self._path(f"{topic}-{partition}")
        if not clean:
            self._fs.fsync_dir(directory)  # of checkpoints, too, the run before may have left names unsynced
        log = load(
            self._fs,
            directory,
            self._config_for(topic),
            topic=topic,
            partition=partition,
            topic_id=checkpoints.read_topic_id(self._fs, directory) or ZERO_ID,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=start,
            wall_ms=wall_ms,
        )
        log.before_shrink, log.before_cut = self._before_shrink, self._before_cut
        log.may_be_small = self._may_be_small
        self.logs[place] = log
        return log

    def _partition_of(self, name: str) -> TopicPartition | None:
        topic, dash, index = name.rpartition("-")
        if not dash or not topic or not index.isdigit() or "." in index:
            return None
        try:
            self._fs.list(self._path(name))
        except OSError:
            return None
        return topic, int(index)

    def _path(self, name: str) -> str:
        return f"{self.log_dir}/{name}"

    # -------------------------------------------------------------------------------------- making and deleting

    def get_or_create(self, topic: str, partition: int, topic_id: bytes, wall_ms: int = 0) -> Log:
        """Return the log of a partition, created if needed. Deletes an existing log of an older topic with the same
        name first.
        """
        assert partition >= 0
        assert len(topic_id) == len(ZERO_ID)
        log = self.logs.get((topic, partition))
        if log is not None and ZERO_ID != log.topic_id != topic_id != ZERO_ID:
            self.delete(topic, partition, wall_ms)
            log = None
        if log is None:
            if (topic, partition) in self._deleted_since_checkpoint:
                # The new log must not inherit the recovery point of the deleted one.
                self.checkpoint_recovery_points()
                assert (topic, partition) not in self._deleted_since_checkpoint
            # Nor its high watermark: consumers would read uncommitted records.
            self.high_watermarks.cut((topic, partition), 0)
            directory = self._path(f"{topic}-{partition}")
            self._fs.mkdirs(directory)
            # The id is durable before the first batch: a log without an id is used for any topic of its name.
            if topic_id != ZERO_ID:
                checkpoints.write_topic_id(self._fs, directory, topic_id)
            self._fs.fsync_dir(self.log_dir)
            return self._load((topic, partition), True, 0, 0, wall_ms)
        if log.topic_id == ZERO_ID != topic_id:
            checkpoints.write_topic_id(self._fs, log.directory, topic_id)
            log.topic_id = topic_id
        assert log.topic_id == topic_id or topic_id == ZERO_ID
        return log

    def delete(self, topic: str, partition: int, wall_ms: int) -> bool:
        """Rename a log's directory and schedule its removal after file.delete.delay.ms. Returns False if there is no
        such log.

        Files stay open while slices of them are being sent. Nothing is fsynced, because a topic may have many
        partitions: a power loss may undo the deletion.
        """
        log = self.logs.pop((topic, partition), None)
        if log is None:
            return False
        log.generation += 1  # Slices of the deleted log must not be sent any more.
        suffix = f".{self._rng.randbytes(16).hex()}{DELETED}"
        name = f"{topic}-{partition}"
        assert log.directory == self._path(name)
        renamed = self._path(name[: LONGEST_NAME - len(suffix)] + suffix)
        self._fs.rename(log.directory, renamed)
        self._deleted_since_checkpoint[topic, partition] = None
        self._removable.append((wall_ms + log.config.file_delete_delay_ms, renamed))
        return True

    # ------------------------------------------------------------------------------------------------ housekeeping

    def tick(self, wall_ms: int, high_watermark_of: Callable[[Log], int]) -> Iterator[tuple[Log, list[int]]]:
        """Apply retention and producer expiry to one log at each step, and yield the log with the base offsets of its
        deleted segments. Logs may be created and deleted between two steps.
        """
        for place, log in list(self.logs.items()):
            if self.logs.get(place) is log:
                log.producers.expire(wall_ms, log.config.producer_id_expiration_ms)
                yield log, log.delete_old_segments(wall_ms, high_watermark_of(log))

    def take_removable(self, wall_ms: int) -> list[str]:
        """Return the renamed directories that may be removed by now, each once. The caller calls `remove` for each."""
        due = [path for due_ms, path in self._removable if due_ms <= wall_ms]
        if due:
            # Otherwise a power loss could undo the renaming and bring half of a log back.
            self._fs.fsync_dir(self.log_dir)
            later = [item for item in self._removable if item[0] > wall_ms]
            assert len(due) + len(later) == len(self._removable)
            self._removable = later
        return due

    def remove(self, doomed: str) -> None:
        """Remove the directory of a deleted log. No other code uses this directory, so the call may run off the event
        loop.
        """
        assert doomed.endswith(DELETED)
        assert checkpoints.parent(doomed) == self.log_dir
        self._fs.remove_dir(doomed)

    def _may_be_small(self) -> bool:
        """Return whether a log may roll a segment smaller than `log.SMALL_BYTES`: False if all logs together have too
        many segments, because each segment has open files.
        """
        return sum(len(log.segments) - 1 for log in self.logs.values()) < self._segments

    def _before_shrink(self, log: Log) -> None:
        self.checkpoint_recovery_points()

    def _before_cut(self, log: Log, end_offset: int) -> None:
        self.high_watermarks.cut((log.topic, log.partition), end_offset)

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery point and the start of each log to the checkpoints, durably.

        The call is synchronous on purpose: a write in the background could overwrite a newer checkpoint with lower
        offsets.
        """
        points = {place: log.recovery_point for place, log in self.logs.items()}
        checkpoints.write_offsets(self._fs, self._path(RECOVERY_POINTS), points)
        self.checkpoint_log_starts()
        self._deleted_since_checkpoint.clear()

    def checkpoint_log_starts(self) -> None:
        """Write the checkpoint of log start offsets, durably. It leaves out each log that starts at the base offset of
        its first segment. Writes nothing if the checkpoint would not change.
        """
        starts = {
            place: log.log_start_offset
            for place, log in self.logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        if starts != self._starts_written:
            checkpoints.write_offsets(self._fs, self._path(LOG_STARTS), starts)
            self._starts_written = starts

    # -------------------------------------------------------------------------------------------------------- end

    def close(self, wall_ms: int) -> None:
        """Flush and close every log, and write the checkpoints."""
        for log in self.logs.values():
            log.close(wall_ms)
            assert log.recovery_point >= log.log_end_offset, "the next start does not recover this log"
        self.checkpoint_recovery_points()

    def mark_clean_shutdown(self, broker_epoch: int) -> None:
        """Write the clean-shutdown file, after `close`, so that the next start skips recovery."""
        assert all(log.recovery_point >= log.log_end_offset for log in self.logs.values())
        checkpoints.write_clean_shutdown(self._fs, self._path(CLEAN_SHUTDOWN), broker_epoch)
