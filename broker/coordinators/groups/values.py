"""Defines the values that go in and out of a shard of the group coordinator: offsets, members, records, requests,
answers and effects.

Wall-clock times are ms since the Unix epoch, as they are in the log. Times of members (sessions, rebalances) are
monotonic ms of the coordinator's node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from squall.broker.coordinators.groups.consumer.members import (
    ConsumerDescribe,
    ConsumerGroupLogRecord,
    ConsumerHeartbeat,
)
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.wire import ZERO_UUID

NO_TIME: Final = -1
NO_GENERATION: Final = -1
NO_MEMBER: Final = ""
NO_PRODUCER: Final = -1
NOTHING_WRITTEN: Final = -1
"""In place of an offset of the coordinator's log: what is said rests on no record."""

TopicPartition = tuple[str, int]
Token = Any
"""Whoever waits for an answer. The shard hands it back and asks nothing of it."""


class GroupState(StrEnum):
    """States of a group, as DescribeGroups, ConsumerGroupDescribe and ListGroups call them."""

    EMPTY = "Empty"
    """No members. Its offsets may remain."""
    PREPARING = "PreparingRebalance"
    """Waits for all members to join the next generation."""
    COMPLETING = "CompletingRebalance"
    """The generation is known to its members; their leader has not said yet who gets what."""
    ASSIGNING = "Assigning"
    """Of a consumer group: its epoch has no target assignment yet."""
    RECONCILING = "Reconciling"
    """Of a consumer group: not every member has reached its target."""
    STABLE = "Stable"
    DEAD = "Dead"


class ClockReading(NamedTuple):
    """Now."""

    mono_ms: int
    wall_ms: int


# ------------------------------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset of one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = NO_TIME
    """Wall clock."""
    expires_ms: int = NO_TIME
    """Wall clock; only where an old client asked for a retention of its own."""
    topic_id: bytes = ZERO_UUID
    """Of the topic that the partition belongs to; ZERO_UUID in records of versions before 4, which do not hold it."""
    written_at: int = field(default=NOTHING_WRITTEN, compare=False)
    """Offset of its record in the coordinator's log."""


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member as a generation's record has it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    session_ms: int
    subscription: bytes
    """The member's metadata for the protocol that was chosen."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group's latest generation that has its assignments, or that has no members."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    since_ms: int
    """Wall clock: since when the group is in this state."""
    members: tuple[MemberRecord, ...] = ()


class GroupMetadataRecord(NamedTuple):
    """A record of the log: the group as of a generation, or None where it is forgotten."""

    group_id: str
    group: GroupRecord | None


class OffsetCommitRecord(NamedTuple):
    """A record of the log: an offset that a group has committed, or None where it is forgotten."""

    group_id: str
    partition: TopicPartition
    committed: OffsetAndMetadata | None


GroupLogRecord = GroupMetadataRecord | OffsetCommitRecord | ConsumerGroupLogRecord


# ------------------------------------------------------------------------------------------------------------ requests


@dataclass(frozen=True, slots=True)
class Join:
    """A consumer wants to be in the next generation."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata), the preferred one first."""
    fresh_id: str
    """An id that nobody has, for a consumer that comes without one."""
    needs_id: bool = True
    """A new dynamic member is given its id first, and joins with it (KIP-394): else one that gives up and tries again
    would leave a member behind each time.
    """
    may_skip: bool = False
    """The client knows that its generation may need no assignment (KIP-814)."""


@dataclass(frozen=True, slots=True)
class Sync:
    """A member wants its assignment. The leader brings those of all."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class ClassicHeartbeat:
    """A member is alive."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Members go: (member id, instance id) each. An admin names static members by their instance id alone."""

    group_id: str
    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Offsets of a group. Generation -1 and no member id: of somebody who is no member. Members of consumer groups
    send their member epoch as the generation.
    """

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[tuple[TopicPartition, OffsetAndMetadata], ...]
    version: int = 2**15 - 1
    """Of the request."""


@dataclass(frozen=True, slots=True)
class TxnOffsetCommit:
    """Offsets that count once their transaction is committed, and never if it is aborted."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[tuple[TopicPartition, OffsetAndMetadata], ...]
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Asks for a group's committed offsets; None: all of them. `stable`: not while a transaction may change one."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    stable: bool = False
    member_id: str | None = None
    """Of a member of a consumer group, with its member epoch; None: of anybody."""
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Forget offsets of partitions to which no member subscribes."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Forget a group that has no members, and all its offsets."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """Nothing changes: the answer carries the group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """The coordinator's own: forget offsets whose topic is gone, or that were left alone for long."""

    group_id: str
    partitions: tuple[TopicPartition, ...]
    """Only the offsets of these."""
    retention: bool = True
    """False: only those whose topic is gone."""


Request = (
    Join
    | Sync
    | ClassicHeartbeat
    | LeaveGroup
    | ConsumerHeartbeat
    | ConsumerDescribe
    | Commit
    | TxnOffsetCommit
    | FetchOffsets
    | DeleteOffsets
    | DeleteGroup
    | DescribeGroup
    | ExpireOffsets
)


# ------------------------------------------------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class GroupResponse:
    """The answer to a request, in the words of its latest version; the APIs translate for older ones."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class FetchOffsetsResult(GroupResponse):
    """Answers FetchOffsets."""

    offsets: tuple[tuple[TopicPartition, OffsetAndMetadata | None, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionErrors(GroupResponse):
    """Answers Commit and DeleteOffsets, where partitions differ."""

    errors: tuple[tuple[TopicPartition, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class JoinResult(GroupResponse):
    """Answers Join with the generation. `members` is for the leader alone: (member id, instance id, metadata) each."""

    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip: bool = False
    """The leader need not assign anything: the assignments of before are in force (KIP-814)."""


@dataclass(frozen=True, slots=True)
class SyncResult(GroupResponse):
    """Answers Sync."""

    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveResult(GroupResponse):
    """Answers Leave, for each member in the request's order."""

    members: tuple[tuple[str, str | None, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeResult(GroupResponse):
    """Answers Describe."""

    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberRecord, ...] = ()
    message: str = ""
    """What is wrong."""


# ------------------------------------------------------------------------------------------------------------- effects


class SendResponse(NamedTuple):
    """Answer somebody, once the record at `rests_on` is committed."""

    token: Token
    answer: GroupResponse
    rests_on: int = NOTHING_WRITTEN


class AppendRecords(NamedTuple):
    """Append records and replay them. When they are committed, or cannot be, have the shard settle."""

    records: tuple[GroupLogRecord, ...]
    settles: AppendCompletion
    producer: tuple[int, int] | None = None
    """(producer id, epoch) of the transaction that the records belong to."""
    whole: int | None = None
    """So many of them are in one batch; None: all. Those behind them may go into further ones, where one would be
    larger than the log takes: it is no harm if the log ends with any of them.
    """


class AppendCompletion(NamedTuple):
    """Describes what is to be settled when an append ends: the request of `token`, the assignment of `group` in
    `generation`, and `then`, a request that can only be looked at after the append.
    """

    token: Token = None
    answer: GroupResponse = GroupResponse()
    group: Any = None
    generation: int = NO_GENERATION
    then: Any = None


Effect = SendResponse | AppendRecords


class GroupListing(NamedTuple):
    """A group, as ListGroups tells of it."""

    group_id: str
    protocol_type: str
    state: GroupState
    group_type: str = "classic"


@dataclass(frozen=True, slots=True)
class GroupCoordinatorSettings:
    """Holds the broker's settings that a shard needs."""

    min_session_ms: int = 6000
    max_session_ms: int = 1_800_000
    initial_delay_ms: int = 3000
    max_size: int = 2**31 - 1
    retention_ms: int = 7 * 24 * 3_600_000
    consumer_session_ms: int = 45_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration: str = "bidirectional"
    """Which ways a group with members may go from one protocol to the other."""
    max_held: int = 64 << 20
    """Bytes of what members of classic groups have sent."""
    most_bytes: Callable[[], int] = lambda: 1 << 20
    """Of a batch that the log takes."""
    own_session_ms: Callable[[str], int | None] = lambda group_id: None
    """The session of a consumer group's members where the group has a setting of its own."""
