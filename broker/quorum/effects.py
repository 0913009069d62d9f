"""Describes the effects that the core wants, in the order in which they must be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from squall.broker.quorum.messages import BatchSpan, QuorumMessage, SnapshotId
    from squall.broker.quorum.state import QuorumState


@dataclass(frozen=True, slots=True)
class AppendOwn:
    """The leader's next batch: `count` records from `base_offset` on, stamped with `epoch`."""

    base_offset: int
    epoch: int
    count: int
    payload: object


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """The first batch of a leader's epoch: one LeaderChangeMessage control record at `offset`."""

    offset: int
    epoch: int
    voters: tuple[int, ...]
    granting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Batches as the leader sent them. `spans` says where they stand, `payload` is theirs."""

    spans: tuple[BatchSpan, ...]
    payload: object


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log. From then on its syncs are reported under `generation`."""

    to_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """A piece of a snapshot that is being fetched, to stand at `position` of it. At 0 what was there of one is gone."""

    snapshot: SnapshotId
    position: int
    payload: object


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The pieces are whole: make them a snapshot, durably, then leave the log and begin it anew at the snapshot's end.

    A crash in between leaves the snapshot, and a log that does not reach its end and is left at the next start.
    """

    snapshot: SnapshotId
    generation: int


LogOp = AppendOwn | AppendLeaderChange | AppendFetched | Truncate | WriteSnapshotChunk | InstallSnapshot


@dataclass(frozen=True, slots=True)
class QuorumTraceEvent:
    """Something for the node's trace."""

    event: str
    fields: dict[str, Any]


class Ready(NamedTuple):
    """Holds one round of effects. Rounds are carried out one after another, each from top to bottom.

    What is in the log and not yet durable (`Raft.wants_sync`) is synced alongside and reported by `Raft.synced`;
    nothing in a round waits for it, because a message that depends on it is not made before it.
    """

    state: QuorumState | None
    """To be durable (temporary file, fsync, rename, fsync of the folder) before anything below is begun."""
    log: tuple[LogOp, ...]
    """To be written to the page cache, in this order, before the messages leave: replies read the log."""
    messages: tuple[QuorumMessage, ...]
    """To be sent, in any order. Each request ends in exactly one `Raft.step` with its reply or `Raft.failed`."""
    notes: tuple[QuorumTraceEvent, ...]
