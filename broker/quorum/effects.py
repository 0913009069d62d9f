"""Defines the effects that the Raft core asks its caller for, in the order in which they must be carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from squall.broker.quorum.messages import BatchSpan, QuorumMessage, SnapshotId
    from squall.broker.quorum.state import QuorumState


@dataclass(frozen=True, slots=True)
class AppendLeaderBatch:
    """Asks to append a batch that this leader proposed: `count` records from `base_offset` on, stamped with `epoch`."""

    base_offset: int
    epoch: int
    count: int
    payload: object


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """Asks to append the first batch of a leader's epoch: one LeaderChangeMessage control record at `offset`."""

    offset: int
    epoch: int
    voters: tuple[int, ...]
    granting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendFetchedBatches:
    """Asks to append batches unchanged as the leader sent them. `spans` has their offsets and epochs, `payload` their
    bytes.
    """

    spans: tuple[BatchSpan, ...]
    payload: object


@dataclass(frozen=True, slots=True)
class Truncate:
    """Asks to remove the records at and after `to_offset`. `generation` numbers the changes that remove records: each
    Truncate and each InstallSnapshot has the next number.

    When a sync ends, the caller passes to `Raft.synced` the generation that was the newest when the sync began. The
    core ignores the sync if a newer generation exists by then.
    """

    to_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Asks to write a chunk of a fetched snapshot at `position`. Position 0 begins the file anew."""

    snapshot: SnapshotId
    position: int
    payload: object


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Asks to make a completely fetched snapshot durable, then to empty the log and begin it at the snapshot's end.

    A crash between these two steps leaves the snapshot and a log that ends before it. The next start then empties the
    log.
    """

    snapshot: SnapshotId
    generation: int


LogOp = AppendLeaderBatch | AppendLeaderChange | AppendFetchedBatches | Truncate | WriteSnapshotChunk | InstallSnapshot


@dataclass(frozen=True, slots=True)
class QuorumTraceEvent:
    """Asks to write a line to the node's trace, with the name of an event and its fields."""

    event: str
    fields: dict[str, Any]


class Ready(NamedTuple):
    """Holds one round of effects. The caller completes a round before the next, and handles its fields in their order.

    Records that are not durable yet (`Raft.wants_sync`) are synced in parallel, and `Raft.synced` reports the result.
    No effect of a round waits for the sync, because the core makes a message that needs a sync only after that sync.
    """

    state: QuorumState | None
    """Holds the epoch, vote and leader to make durable before `log` and `messages` are carried out (temporary file,
    fsync, rename, fsync of the folder); None if they have not changed.
    """
    log: tuple[LogOp, ...]
    """Holds the changes of the log. They must be in the page cache, in this order, before the messages are sent,
    because replies read the log.
    """
    messages: tuple[QuorumMessage, ...]
    """Holds the messages to send, in any order. For each request the caller calls `Raft.step` with the reply or
    `Raft.failed`, exactly once.
    """
    notes: tuple[QuorumTraceEvent, ...]
