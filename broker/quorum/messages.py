"""Defines the messages between voters and observers: KRaft's requests and replies, without their wire format.

`QuorumMessage.sender` names the sender of a request; a reply repeats the ticket of its request. Every reply carries the
sender's epoch and the leader it knows, and so the other nodes learn them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from squall.broker.protocol.errors import ErrorCode

HIGH_WATERMARK_IRRELEVANT = (1 << 63) - 1
"""Says, in a fetch, that a new high watermark alone is no reason to answer (KIP-1166's default)."""


@dataclass(frozen=True, slots=True)
class Vote:
    """Asks for a vote in `epoch`. With `pre_vote` it only asks whether the receiver would grant its vote in the next
    epoch (KIP-996).
    """

    epoch: int
    last_epoch: int
    """Gives the epoch of the last record in the sender's log; 0 if the log is empty."""
    end_offset: int
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """Announces that the sender was elected in `epoch`, so that the receiver fetches from it."""

    epoch: int


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """Announces that the sender no longer leads `epoch`. `successors`: the preferred candidates, best log first."""

    epoch: int
    successors: tuple[int, ...]


class Fetch(NamedTuple):
    """Asks the leader for the records from `offset` on, and says that the sender holds all records before `offset`
    durably.
    """

    epoch: int
    offset: int
    last_epoch: int
    """Gives the epoch of the record before `offset` in the sender's log; 0 if the log is empty."""
    high_watermark: int
    """Gives the high watermark that the sender knows. A leader with a higher one answers at once (KIP-1166)."""
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """Holds the offsets [base_offset, end_offset) of one record batch, written by the leader of `epoch`."""

    base_offset: int
    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Diverging:
    """Says that the fetcher's log diverges from the leader's log. `epoch` is the leader's highest epoch that is at most
    the fetcher's last epoch; in the leader's log it ends at `end_offset`.
    """

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """Names a snapshot of all committed records before `end_offset`; the last of them has `epoch`."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """Asks the leader for the bytes of a snapshot from `position` on."""

    epoch: int
    snapshot: SnapshotId
    position: int


@dataclass(frozen=True, slots=True)
class VoteReply:
    """Answers Vote: `granted` says whether the sender grants its vote, or would grant it (in reply to a pre-vote)."""

    error: ErrorCode
    epoch: int
    leader_id: int
    granted: bool = False


@dataclass(frozen=True, slots=True)
class BeginEpochReply:
    """Answers BeginEpoch: `error` is NONE if the receiver accepts the sender as the leader of the epoch."""

    error: ErrorCode
    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class EndEpochReply:
    """Answers EndEpoch: `error` is NONE if the receiver believes that the sender led the epoch."""

    error: ErrorCode
    epoch: int
    leader_id: int


class FetchReply(NamedTuple):
    """Answers Fetch. The leader's Raft core sets only the offsets of the records to send, [offset, limit). The core's
    caller reads the records from the log, and fills in `payload`, the batches, and `spans`, their offsets and epochs.
    """

    error: ErrorCode
    epoch: int
    leader_id: int
    high_watermark: int = -1
    log_start_offset: int = 0
    diverging: Diverging | None = None
    snapshot: SnapshotId | None = None
    """Names the snapshot to fetch if only a snapshot still holds the requested records."""
    offset: int = 0
    limit: int = 0
    """Gives the exclusive end of the records that may be sent with the reply. They begin at `offset`; there are none if
    `limit` equals `offset`.
    """
    spans: tuple[BatchSpan, ...] = ()
    payload: object = None
    """Holds the batches that `spans` describes, which the core does not read."""


@dataclass(frozen=True, slots=True)
class FetchSnapshotReply:
    """Answers FetchSnapshot. The leader's Raft core does not set `size` and `payload`: its caller, which has the
    snapshot files, fills them in.

    SNAPSHOT_NOT_FOUND: the snapshot was deleted, so the fetcher asks for records again. POSITION_OUT_OF_RANGE: the
    snapshot ends before `position`.
    """

    error: ErrorCode
    epoch: int
    leader_id: int
    snapshot: SnapshotId
    position: int
    size: int = -1
    """Gives the size of the whole snapshot file, in bytes."""
    length: int = 0
    """Gives the number of bytes in `payload`, which the fetcher's core does not read. The leader's core leaves it 0."""
    payload: object = None


Request = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot
Reply = VoteReply | BeginEpochReply | EndEpochReply | FetchReply | FetchSnapshotReply


class QuorumMessage(NamedTuple):
    """Holds a request, or the reply to one. `ticket` is the number that the sender of a request gives to it; the reply
    repeats it.
    """

    sender: int
    receiver: int
    ticket: int
    body: Request | Reply
