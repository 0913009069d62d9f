"""This node's log as the core sees it: its extent, how much of it is durable, and what is still to be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.quorum.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendOwn,
    InstallSnapshot,
    LogOp,
    Truncate,
    WriteSnapshotChunk,
)

if TYPE_CHECKING:
    from squall.broker.quorum.log_extent import LogExtent
    from squall.broker.quorum.messages import BatchSpan, Diverging, SnapshotId


class LocalLog:
    """Changes the extent at once and keeps the change for the edge to carry out (`take_ops`)."""

    def __init__(self, extent: LogExtent) -> None:
        self.extent = extent
        self.synced_offset = 0
        """All before it is durable. 0 after a start: what a killed process wrote may be in the page cache only."""
        self.generation = 0
        """Counts the truncations."""
        self.ops: list[LogOp] = []
        """To be carried out: see `take_ops`."""

    @property
    def is_synced(self) -> bool:
        """True when everything is durable."""
        return self.synced_offset >= self.extent.end_offset

    def take_ops(self) -> tuple[LogOp, ...]:
        """Return the operations that the edge has to apply to the log, each once."""
        ops, self.ops = tuple(self.ops), []
        return ops

    def append_own(self, epoch: int, count: int, payload: object) -> int:
        """A batch of this leader's. Returns its base offset."""
        base = self.extent.end_offset
        self.extent.append(epoch, base, base + count)
        self.ops.append(AppendOwn(base, epoch, count, payload))
        return base

    def append_leader_change(self, epoch: int, voters: tuple[int, ...], granting: tuple[int, ...]) -> int:
        """The record that begins an epoch. Returns its offset."""
        offset = self.extent.end_offset
        self.extent.append(epoch, offset, offset + 1)
        self.ops.append(AppendLeaderChange(offset, epoch, voters, granting))
        return offset

    def append_fetched(self, spans: tuple[BatchSpan, ...], payload: object, epoch: int) -> bool:
        """Batches from the leader of `epoch`. False, and nothing done, where they do not continue this log."""
        at, last_epoch = self.extent.end_offset, self.extent.last_epoch
        for span in spans:
            if span.base_offset != at or span.end_offset <= at or not last_epoch <= span.epoch <= epoch:
                return False
            at, last_epoch = span.end_offset, span.epoch
        for span in spans:
            self.extent.append(span.epoch, span.base_offset, span.end_offset)
        self.ops.append(AppendFetched(spans, payload))
        return True

    def truncate(self, diverging: Diverging, high_watermark: int) -> int:
        """Leave what the leader does not have. Returns the new end.

        A leader that would cut off what is committed, or nothing at all, is a bug in some node: AssertionError.
        """
        target = self.extent.truncation_target(diverging.epoch, diverging.end_offset)
        assert target < self.extent.end_offset, f"{diverging} does not diverge from a log that ends at {target}"
        assert target >= high_watermark, f"{diverging} cuts at {target}, below the high watermark {high_watermark}"
        self.extent.truncate_to(target)
        self.synced_offset = min(self.synced_offset, target)
        self.generation += 1
        self.ops.append(Truncate(target, self.generation))
        return target

    def write_snapshot(self, snapshot: SnapshotId, position: int, payload: object) -> None:
        """A piece of a snapshot that is being fetched."""
        self.ops.append(WriteSnapshotChunk(snapshot, position, payload))

    def install(self, snapshot: SnapshotId, high_watermark: int) -> None:
        """All of it is there: this log is left for it. What is known to be committed must be in it: AssertionError."""
        assert snapshot.end_offset >= high_watermark, f"{snapshot} lacks what is committed below {high_watermark}"
        self.extent.restart_at(snapshot)
        self.synced_offset = snapshot.end_offset
        self.generation += 1
        self.ops.append(InstallSnapshot(snapshot, self.generation))

    def synced(self, end_offset: int, generation: int) -> bool:
        """The log was durable up to `end_offset`. False where it has been truncated since that sync began."""
        if generation != self.generation:
            return False
        assert end_offset <= self.extent.end_offset
        self.synced_offset = max(self.synced_offset, end_offset)
        return True
