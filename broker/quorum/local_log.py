"""Models this node's log for the Raft core: its extent, how much is durable, and operations to carry out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.quorum.effects import (
    AppendFetchedBatches,
    AppendLeaderBatch,
    AppendLeaderChange,
    InstallSnapshot,
    LogOp,
    Truncate,
    WriteSnapshotChunk,
)

if TYPE_CHECKING:
    from squall.broker.quorum.log_extent import LogExtent
    from squall.broker.quorum.messages import BatchSpan, Diverging, SnapshotId


class LocalLogModel:
    """Models this node's log. It changes the log's extent at once, and keeps each change as an operation that the
    caller of the Raft core has to apply to the log on disk (`take_ops`).
    """

    def __init__(self, extent: LogExtent) -> None:
        self.extent = extent
        self.synced_offset = 0
        """Gives the offset before which everything is durable. It is 0 after a start: the page cache may hold unsynced
        records.
        """
        self.generation = 0
        """Counts the changes that removed records: truncations and installed snapshots."""
        self.ops: list[LogOp] = []
        """Holds the changes of the log that the caller of the Raft core has not taken yet, by `take_ops`, to apply them
        on disk.
        """

    @property
    def is_synced(self) -> bool:
        """Is True if the whole log is durable."""
        return self.synced_offset >= self.extent.end_offset

    def take_ops(self) -> tuple[LogOp, ...]:
        """Return the operations that the caller has to apply to the log, each once."""
        ops, self.ops = tuple(self.ops), []
        return ops

    def append_own(self, epoch: int, count: int, payload: object) -> int:
        """Append a batch of this leader, and return its base offset."""
        base = self.extent.end_offset
        self.extent.append(epoch, base, base + count)
        self.ops.append(AppendLeaderBatch(base, epoch, count, payload))
        return base

    def append_leader_change(self, epoch: int, voters: tuple[int, ...], granting: tuple[int, ...]) -> int:
        """Append the leader-change record that begins an epoch, and return its offset."""
        offset = self.extent.end_offset
        self.extent.append(epoch, offset, offset + 1)
        self.ops.append(AppendLeaderChange(offset, epoch, voters, granting))
        return offset

    def append_fetched(self, spans: tuple[BatchSpan, ...], payload: object, epoch: int) -> bool:
        """Append batches from the leader of `epoch`. Returns False, with no change, if they do not follow the log."""
        at, last_epoch = self.extent.end_offset, self.extent.last_epoch
        for span in spans:
            if span.base_offset != at or span.end_offset <= at or not last_epoch <= span.epoch <= epoch:
                return False
            at, last_epoch = span.end_offset, span.epoch
        for span in spans:
            self.extent.append(span.epoch, span.base_offset, span.end_offset)
        self.ops.append(AppendFetchedBatches(spans, payload))
        return True

    def truncate(self, diverging: Diverging, high_watermark: int) -> int:
        """Remove the records that the leader does not have, and return the new end.

        Raises AssertionError if this would remove committed records or nothing at all: some node then has a bug.
        """
        target = self.extent.truncation_target(diverging.epoch, diverging.end_offset)
        assert target < self.extent.end_offset, f"{diverging} does not diverge from a log that ends at {target}"
        assert target >= high_watermark, f"{diverging} cuts at {target}, below the high watermark {high_watermark}"
        self.extent.truncate_to(target)
        # A sync that began before the truncation reports the old generation, and is ignored by `synced`.
        self.synced_offset = min(self.synced_offset, target)
        self.generation += 1
        self.ops.append(Truncate(target, self.generation))
        return target

    def write_snapshot(self, snapshot: SnapshotId, position: int, payload: object) -> None:
        """Ask the caller of the Raft core to write a chunk of a snapshot that is being fetched."""
        self.ops.append(WriteSnapshotChunk(snapshot, position, payload))

    def install(self, snapshot: SnapshotId, high_watermark: int) -> None:
        """Replace the log by a completely fetched snapshot. Raises AssertionError if the snapshot lacks committed
        records.
        """
        assert snapshot.end_offset >= high_watermark, f"{snapshot} lacks what is committed below {high_watermark}"
        self.extent.restart_at(snapshot)
        # `InstallSnapshot` makes the snapshot durable before the log begins behind it.
        self.synced_offset = snapshot.end_offset
        self.generation += 1
        self.ops.append(InstallSnapshot(snapshot, self.generation))

    def synced(self, end_offset: int, generation: int) -> bool:
        """Note that the log is durable up to `end_offset`. `generation` is the value that `self.generation` had when
        the sync began. Return False, and change nothing, if records were removed since then.
        """
        if generation != self.generation:
            return False
        assert end_offset <= self.extent.end_offset
        self.synced_offset = max(self.synced_offset, end_offset)
        return True
