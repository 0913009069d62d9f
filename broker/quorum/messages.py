"""Defines the messages of voters and observers: KRaft's requests and replies, less their wire form.

Requests carry their sender in `QuorumMessage.sender`; a reply repeats the ticket of its request. Every reply has the
sender's epoch and the leader that it knows: that is how nodes find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from squall.broker.protocol.errors import ErrorCode

HIGH_WATERMARK_IRRELEVANT = (1 << 63) - 1
"""In a fetch: do not answer for the sake of a new high watermark (KIP-1166's default)."""


@dataclass(frozen=True, slots=True)
class Vote:
    """Asks for a vote in `epoch`; with `pre_vote`, whether one would be given in the epoch after `epoch` (KIP-996)."""

    epoch: int
    last_epoch: int
    """Epoch of the last record in the sender's log; 0 when it is empty."""
    end_offset: int
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """The sender has been elected in `epoch`: fetch from it."""

    epoch: int


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """The sender leads `epoch` no longer. `successors`: who should stand first, best log first."""

    epoch: int
    successors: tuple[int, ...]


class Fetch(NamedTuple):
    """Asks the leader for what follows `offset`, and by that says: all before `offset` is durable here."""

    epoch: int
    offset: int
    last_epoch: int
    """Epoch of the record before `offset` in the sender's log; 0 when it is empty."""
    high_watermark: int
    """What the sender knows: a leader that knows more answers at once (KIP-1166)."""
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """Holds the place of one record batch: [base_offset, end_offset), written by the leader of `epoch`."""

    base_offset: int
    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Diverging:
    """The fetcher's log leaves the leader's, in which `epoch`, not above the fetcher's last, ends at `end_offset`."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """A snapshot: all that was committed before `end_offset`, the last record of which is of `epoch`."""

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
    """Answers Vote, pre-vote or not."""

    error: ErrorCode
    epoch: int
    leader_id: int
    granted: bool = False


@dataclass(frozen=True, slots=True)
class BeginEpochReply:
    """Answers BeginEpoch."""

    error: ErrorCode
    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class EndEpochReply:
    """Answers EndEpoch."""

    error: ErrorCode
    epoch: int
    leader_id: int


class FetchReply(NamedTuple):
    """Answers Fetch. The leader's core leaves `spans` and `payload` to its edge, which reads [offset, limit)."""

    error: ErrorCode
    epoch: int
    leader_id: int
    high_watermark: int = -1
    log_start_offset: int = 0
    diverging: Diverging | None = None
    snapshot: SnapshotId | None = None
    """The fetcher wants records that only a snapshot still holds: this one."""
    offset: int = 0
    limit: int = 0
    """Records of [offset, limit) may be sent along; none when they are equal."""
    spans: tuple[BatchSpan, ...] = ()
    payload: object = None
    """The batches that `spans` describes, opaque to the core."""


@dataclass(frozen=True, slots=True)
class FetchSnapshotReply:
    """Answers FetchSnapshot. The leader's core leaves `size` and `payload` to its edge, which has the files.

    SNAPSHOT_NOT_FOUND: it is gone, ask for records again. POSITION_OUT_OF_RANGE: it is no longer than that.
    """

    error: ErrorCode
    epoch: int
    leader_id: int
    snapshot: SnapshotId
    position: int
    size: int = -1
    """Of the whole snapshot, in what `position` counts."""
    length: int = 0
    """Of `payload`."""
    payload: object = None


Request = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot
Reply = VoteReply | BeginEpochReply | EndEpochReply | FetchReply | FetchSnapshotReply


class QuorumMessage(NamedTuple):
    """A request, or the reply to the request that `receiver` sent under `ticket`."""

    sender: int
    receiver: int
    ticket: int
    body: Request | Reply
