"""Keeps the checkpoint of high watermarks (replication-offset-checkpoint), read at the start and replaced periodically.

Its lines name topics and offsets, not topic ids and records. A stale line would let consumers read uncommitted records:
the high watermark of a deleted topic would apply to a new topic of that name, and the high watermark of truncated
records would apply to the records that took their offsets. So `cut` is called before records are removed.
"""

from __future__ import annotations

from collections.abc import Mapping

from squall.broker.env import Fs
from squall.broker.log import checkpoints
from squall.broker.log.checkpoints import HIGH_WATERMARKS, Offsets, TopicPartition

ASIDE = ".draft"


class HighWatermarkCheckpoint:
    """Reads and replaces the file replication-offset-checkpoint of one log directory. Only one task may call the
    methods of this class. `CheckpointDraft.write` and `CheckpointDraft.sync` may run in a thread.
    """

    def __init__(self, fs: Fs, log_dir: str) -> None:
        self._fs = fs
        self.path = f"{log_dir}/{HIGH_WATERMARKS}"
        self._offsets = checkpoints.read_offsets(fs, self.path)
        self._previous: Offsets = {}
        """Holds the offsets before the last replacement, as long as a power loss may bring the old file back."""
        self._draft: CheckpointDraft | None = None

    def read(self) -> Offsets:
        """Return the high watermark of each partition in the checkpoint; empty if the file was missing or damaged."""
        return dict(self._offsets)

    def write(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Replace the whole checkpoint by `high_watermarks`, durably, and drop the draft if there is one."""
        self._draft = None
        self._replace(high_watermarks)

    def draft(self, high_watermarks: Mapping[TopicPartition, int]) -> CheckpointDraft:
        """Return a draft that replaces the checkpoint by `high_watermarks` when the caller calls its `write`, `keep`
        and `sync`. Only one draft may exist at a time.
        """
        assert self._draft is None
        self._previous = {}  # The draft before this one was made durable.
        self._draft = CheckpointDraft(self._fs, self, high_watermarks)
        return self._draft

    def cut(self, place: TopicPartition, end_offset: int) -> None:
        """Lower a partition's high watermark to `end_offset`, because its log is about to lose the records from there
        on. The change is durable on return, so the caller removes the records after this call.
        """
        assert end_offset >= 0
        if self._draft is not None and self._draft.offsets.get(place, 0) > end_offset:
            self._draft = None
        self.correct({place: end_offset})
        assert self._draft is None or self._draft.offsets.get(place, 0) <= end_offset

    def correct(self, ends: Mapping[TopicPartition, int]) -> None:
        """Lower each high watermark that is above the end of its log, durably. `ends`: the end offset of each log."""
        # A draft's new name may not be durable yet: a power loss would bring the previous offsets back.
        offsets, previous = self._offsets, self._previous
        beyond = {
            place: min(offsets.get(place, 0), end)
            for place, end in ends.items()
            if max(offsets.get(place, 0), previous.get(place, 0)) > end
        }
        if beyond:
            self._replace({**offsets, **beyond})
        assert all(self._offsets.get(place, 0) <= end for place, end in ends.items())
        assert all(self._previous.get(place, 0) <= end for place, end in ends.items())

    def replace_with(self, draft: CheckpointDraft) -> bool:
        """Rename a written draft to the checkpoint's name. Returns False, and does nothing, if `cut` has made the draft
        stale.
        """
        if self._draft is not draft:
            return False
        self._draft = None
        self._fs.rename(draft.path, self.path)
        assert not self._previous, "a power loss could still bring the file before the last one back"
        self._previous, self._offsets = self._offsets, draft.offsets
        return True

    def _replace(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_offsets(self._fs, self.path, high_watermarks)
        self._previous, self._offsets = {}, dict(high_watermarks)


class CheckpointDraft:
    """Holds a checkpoint that replaces the present one in three steps: `write`, `keep`, `sync`. `write` and `sync` wait
    for the disk and may run off the event loop; `keep` must run on the event loop.
    """

    def __init__(
        self, fs: Fs, checkpoint: HighWatermarkCheckpoint, high_watermarks: Mapping[TopicPartition, int]
    ) -> None:
        self._fs, self._checkpoint = fs, checkpoint
        self.path = checkpoint.path + ASIDE
        self.offsets = dict(high_watermarks)

    def write(self) -> None:
        """Write the draft to a file beside the checkpoint and fsync its bytes."""
        checkpoints.write_offsets_to(self._fs, self.path, self.offsets)

    def keep(self) -> bool:
        """Rename the draft to the checkpoint's name. If a log was truncated below its high watermark in the draft, the
        draft is stale: do nothing and return False.
        """
        return self._checkpoint.replace_with(self)

    def sync(self) -> None:
        """Fsync the directory, so that the renaming is durable."""
        self._fs.fsync_dir(checkpoints.parent(self.path))
