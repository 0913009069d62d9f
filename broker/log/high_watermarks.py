"""The checkpoint of high watermarks (replication-offset-checkpoint): read at the start, replaced now and then.

Its lines name topics, not topic ids, and offsets, not records. So it must not outlive what it speaks of: a high
watermark of a deleted topic would be taken for one of the next topic with that name, and one of records that were cut
off for one of those that took their offsets. Either shows to consumers what nobody has committed. Whatever takes
records away calls `cut` first.
"""

from __future__ import annotations

from collections.abc import Mapping

from squall.broker.env import Fs
from squall.broker.log import checkpoints
from squall.broker.log.checkpoints import HIGH_WATERMARKS, Offsets, TopicPartition

ASIDE = ".draft"


class HighWatermarkCheckpoint:
    """The checkpoint in one directory. One task uses it, but for `CheckpointDraft.write` and `CheckpointDraft.sync`."""

    def __init__(self, fs: Fs, log_dir: str) -> None:
        self._fs = fs
        self.path = f"{log_dir}/{HIGH_WATERMARKS}"
        self._offsets = checkpoints.read_offsets(fs, self.path)
        self._previous: Offsets = {}
        """What it offsets before, as long as a power loss may bring that back."""
        self._draft: CheckpointDraft | None = None

    def read(self) -> Offsets:
        """Return the offsets in the checkpoint."""
        return dict(self._offsets)

    def write(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Replace it, durably."""
        self._draft = None
        self._replace(high_watermarks)

    def draft(self, high_watermarks: Mapping[TopicPartition, int]) -> CheckpointDraft:
        """Begin to replace it: see `CheckpointDraft`. One at a time."""
        assert self._draft is None
        self._previous = {}  # The draft before this one was made durable.
        self._draft = CheckpointDraft(self._fs, self, high_watermarks)
        return self._draft

    def cut(self, place: TopicPartition, end_offset: int) -> None:
        """Nothing of this partition is known from `end_offset` on: its log begins anew, or loses what was there.
        Durable on return, so call it before that happens.
        """
        assert end_offset >= 0
        if self._draft is not None and self._draft.offsets.get(place, 0) > end_offset:
            self._draft = None
        self.correct({place: end_offset})
        assert self._offsets.get(place, 0) <= end_offset
        assert self._previous.get(place, 0) <= end_offset

    def correct(self, ends: Mapping[TopicPartition, int]) -> None:
        """Lower several partitions at once, as `cut` does one: each log ends at the offset beside it."""
        # A draft's new name may not be durable yet: a power loss would bring back what the file offsets before.
        offsets, previous = self._offsets, self._previous
        beyond = {
            place: min(offsets.get(place, 0), end)
            for place, end in ends.items()
            if max(offsets.get(place, 0), previous.get(place, 0)) > end
        }
        if beyond:
            self._replace({**offsets, **beyond})

    def replace_with(self, draft: CheckpointDraft) -> bool:
        """A draft takes the checkpoint's place, unless it says too much by now. Whether it does."""
        if self._draft is not draft:
            return False
        self._draft = None
        self._fs.rename(draft.path, self.path)
        self._previous, self._offsets = self._offsets, draft.offsets
        return True

    def _replace(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_offsets(self._fs, self.path, high_watermarks)
        self._previous, self._offsets = {}, dict(high_watermarks)


class CheckpointDraft:
    """Holds a checkpoint that is to replace the present one: `write` and `sync`, which wait for the disk, may run off
    the event loop. `keep` comes between them, on it.
    """

    def __init__(
        self, fs: Fs, checkpoint: HighWatermarkCheckpoint, high_watermarks: Mapping[TopicPartition, int]
    ) -> None:
        self._fs, self._checkpoint = fs, checkpoint
        self.path = checkpoint.path + ASIDE
        self.offsets = dict(high_watermarks)

    def write(self) -> None:
        """Write it beside the checkpoint, durably."""
        checkpoints.write_offsets_to(self._fs, self.path, self.offsets)

    def keep(self) -> bool:
        """Put it in the checkpoint's place. False, and nothing is done, where something it speaks of was cut since."""
        return self._checkpoint.replace_with(self)

    def sync(self) -> None:
        """Make its new name durable."""
        self._fs.fsync_dir(checkpoints.parent(self.path))
