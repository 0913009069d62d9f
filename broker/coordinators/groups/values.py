"""Defines the inputs and outputs of a shard of the group coordinator: offsets, members, records, requests, responses
and effects.

Wall-clock times are ms since the Unix epoch, as in the log. Times of members (sessions, rebalances) are monotonic ms of
the coordinator's node.
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
"""Is used in place of a log offset if there is no record. A response with this offset is sent at once."""

TopicPartition = tuple[str, int]
Token = Any
"""Identifies a waiting request. The shard returns it with the response and does not use it otherwise."""


class GroupState(StrEnum):
    """Names the states of a group, as DescribeGroups, ConsumerGroupDescribe and ListGroups do."""

    EMPTY = "Empty"
    """The group has no members, but may have offsets."""
    PREPARING = "PreparingRebalance"
    """The group waits for all members to join the next generation."""
    COMPLETING = "CompletingRebalance"
    """The members know their generation, but the group leader has not sent the assignments yet."""
    ASSIGNING = "Assigning"
    """The consumer group's epoch has no target assignment yet."""
    RECONCILING = "Reconciling"
    """Some member of the consumer group has not reached its target assignment yet."""
    STABLE = "Stable"
    DEAD = "Dead"


class ClockReading(NamedTuple):
    """Holds the current time, in ms, of the monotonic clock and of the wall clock."""

    mono_ms: int
    wall_ms: int


# ------------------------------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """Holds a committed offset of one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = NO_TIME
    """Gives the wall-clock time of the commit, in ms."""
    expires_ms: int = NO_TIME
    """Gives the wall-clock time, in ms, at which the offset expires, if an old client asked for its own retention."""
    topic_id: bytes = ZERO_UUID
    """Holds the id of the partition's topic; ZERO_UUID in records of versions before 4, which lack it."""
    written_at: int = field(default=NOTHING_WRITTEN, compare=False)
    """Holds the offset of the commit's record in the coordinator's log."""


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """Holds a member as the record of its generation describes it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    session_ms: int
    subscription: bytes
    """Holds the member's metadata for the elected protocol."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """Holds a classic group as its latest record describes it. The record is written when a generation has its
    assignments, or when the last member has left.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    since_ms: int
    """Gives the wall-clock time, in ms, at which the generation began or the last member left; NO_TIME in old records.
    """
    members: tuple[MemberRecord, ...] = ()


class GroupMetadataRecord(NamedTuple):
    """Is the log record of a classic group's generation. Group None removes the group."""

    group_id: str
    group: GroupRecord | None


class OffsetCommitRecord(NamedTuple):
    """Is the log record of an offset that a group has committed. In a tombstone, which removes the offset, `committed`
    is None.
    """

    group_id: str
    partition: TopicPartition
    committed: OffsetAndMetadata | None


GroupLogRecord = GroupMetadataRecord | OffsetCommitRecord | ConsumerGroupLogRecord


# ------------------------------------------------------------------------------------------------------------ requests


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Asks to join the next generation of a classic group."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Lists (name, metadata) of each protocol, the preferred protocol first."""
    fresh_id: str
    """Holds an unused member id, for a consumer that has none yet."""
    needs_id: bool = True
    """Says whether a new dynamic member first gets its id and has to join again with it (KIP-394). If False, as in old
    versions of JoinGroup, the member joins at once. A client that gives up and retries then leaves an unused member in
    the group each time.
    """
    may_skip: bool = False
    """Says whether the client's version of JoinGroup has SkipAssignment in its response (`JoinResult.skip`, KIP-814).
    """


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """Asks for a member's assignment. The group leader also sends the assignments of all members."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class ClassicHeartbeat:
    """Says that a member of a classic group is alive (Heartbeat)."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Asks to remove members, each named by (member id, instance id). An admin names a static member by its instance id
    alone.
    """

    group_id: str
    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Asks to commit offsets of a group (OffsetCommit). A client that is no member sends generation -1 and no member
    id. Members of consumer groups send their member epoch as the generation.
    """

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[tuple[TopicPartition, OffsetAndMetadata], ...]
    version: int = 2**15 - 1
    """Is the version of the OffsetCommit request. The default, the largest int16, is above all versions that exist."""


@dataclass(frozen=True, slots=True)
class TxnOffsetCommit:
    """Asks to commit offsets that take effect only if their transaction is committed."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[tuple[TopicPartition, OffsetAndMetadata], ...]
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Asks for committed offsets of a group; `partitions` None means all. With `stable`, an offset that an open
    transaction may change gets UNSTABLE_OFFSET_COMMIT.
    """

    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    stable: bool = False
    member_id: str | None = None
    """Holds the id of a consumer group's member, whose epoch is checked; None for any other client."""
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Asks to delete a group's offsets of these partitions. Partitions of topics to which a member subscribes get an
    error.
    """

    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Asks to delete a group without members, and all its offsets."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """Asks for a description of a classic group; the request changes nothing."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """Asks to delete offsets whose topic was deleted or whose retention has passed. The coordinator itself sends it."""

    group_id: str
    partitions: tuple[TopicPartition, ...]
    """Holds the partitions whose offsets are checked."""
    retention: bool = True
    """Says whether offsets are also deleted because their retention has passed. If False, only offsets of deleted
    topics are.
    """


Request = (
    JoinGroup
    | SyncGroup
    | ClassicHeartbeat
    | LeaveGroup
    | ConsumerHeartbeat
    | ConsumerDescribe
    | CommitOffsets
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
    """Holds the response to a request, in the terms of its latest version; the APIs translate it for older versions."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class FetchOffsetsResult(GroupResponse):
    """Answers FetchOffsets with (partition, offset or None, error) for each partition."""

    offsets: tuple[tuple[TopicPartition, OffsetAndMetadata | None, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionErrors(GroupResponse):
    """Answers CommitOffsets and DeleteOffsets if the errors of partitions differ."""

    errors: tuple[tuple[TopicPartition, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class JoinResult(GroupResponse):
    """Answers JoinGroup with the generation. `members` is filled for the leader only: (member id, instance id,
    metadata) of each.
    """

    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip: bool = False
    """Tells the leader not to assign partitions, because the previous assignments are still in force (KIP-814)."""


@dataclass(frozen=True, slots=True)
class SyncResult(GroupResponse):
    """Answers SyncGroup with the member's assignment."""

    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveResult(GroupResponse):
    """Answers LeaveGroup with an error for each member, in the request's order."""

    members: tuple[tuple[str, str | None, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeResult(GroupResponse):
    """Answers DescribeGroup with the state and the members of a classic group."""

    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberRecord, ...] = ()
    message: str = ""
    """Holds an error message for the client; empty if there is none."""


# ------------------------------------------------------------------------------------------------------------- effects


class SendResponse(NamedTuple):
    """Asks to send a response once the record at offset `required_offset` is committed."""

    token: Token
    answer: GroupResponse
    required_offset: int = NOTHING_WRITTEN


class AppendRecords(NamedTuple):
    """Asks the caller to append and replay records. Once they are committed, or the append has failed, the caller
    passes `completion` to the shard's `settle`.
    """

    records: tuple[GroupLogRecord, ...]
    completion: AppendCompletion
    producer: tuple[int, int] | None = None
    """Holds the (producer id, epoch) of the transaction that the records belong to."""
    whole: int | None = None
    """Gives the number of records, from the first on, that must be in the same batch; None means all. The other records
    go into further batches if one batch would be too large. The group stays consistent if a failover loses some of
    these further batches.
    """


class AppendCompletion(NamedTuple):
    """Describes what to do when an append ends: answer the request of `token`, complete the assignment of `group` in
    `generation`, and handle the request `then`, which had to wait for the append.
    """

    token: Token = None
    answer: GroupResponse = GroupResponse()
    group: Any = None
    generation: int = NO_GENERATION
    then: Any = None


Effect = SendResponse | AppendRecords


class GroupListing(NamedTuple):
    """Describes a group for ListGroups."""

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
    """Holds group.consumer.migration.policy. "upgrade" lets a classic group with members become a consumer group,
    "downgrade" the reverse, "bidirectional" both, and "disabled" neither.
    """
    max_held: int = 64 << 20
    """Limits the memory, in bytes, for data that members of classic groups have sent to a shard. It is not used if
    several shards share a `MemoryBudget`.
    """
    most_bytes: Callable[[], int] = lambda: 1 << 20
    """Returns the size in bytes of the largest batch that the log accepts."""
    own_session_ms: Callable[[str], int | None] = lambda group_id: None
    """Returns the session time-out of a consumer group that has its own setting, or None."""
