"""Defines the log records of consumer groups, and the requests of their members.

A `Place` is a partition: (topic id, partition index). Epochs only grow: the group epoch with each change of members or
topics, the epoch of the target assignment with the group epoch, and a member epoch with the target that the member has
reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

Place = tuple[bytes, int]

FIRST_EPOCH: Final = 1
"""Is the epoch of a new group and of its empty target assignment; the first assignment has epoch 2 (KAFKA-20268)."""
JOINS: Final = 0
"""Is the member epoch in a heartbeat that joins the group."""
LEAVES: Final = -1
"""Is the member epoch in a heartbeat of a member that leaves for good."""
LEAVES_FOR_NOW: Final = -2
"""Is the member epoch in a heartbeat of a static member that will return: it keeps its partitions until its session
ends.
"""


class MemberState(IntEnum):
    """Names how far a member has reconciled with its target assignment, with the numbers of Kafka's records."""

    STABLE = 0
    """The member has reached the target assignment of its epoch."""
    UNREVOKED = 1
    """The member has to revoke partitions before it can move to its next epoch."""
    UNRELEASED = 2
    """The member waits for partitions of its target that other members still own."""


@dataclass(frozen=True, slots=True)
class ClassicJoinMetadata:
    """Holds what a member of the classic protocol sent in its JoinGroup."""

    session_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """Holds a member's identity and the topics that it subscribes to."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_ms: int = -1
    assignor: str | None = None
    classic: ClassicJoinMetadata | None = None


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """Holds a member's current assignment: its partitions, each with the member epoch at which it was assigned."""

    epoch: int = 0
    previous_epoch: int = -1
    """Holds the member epoch before the current one. A member that missed the response with the current epoch still
    sends the previous epoch.
    """
    state: MemberState = MemberState.STABLE
    assigned: Mapping[Place, int] = field(default_factory=dict)
    revoking: Mapping[Place, int] = field(default_factory=dict)
    """Holds the partitions that the member has to revoke. No other member may get them before it confirms the
    revocation.
    """

    def holds(self, place: Place) -> bool:
        """Return whether the member owns this partition or is still revoking it, so that no other member may get it."""
        return place in self.assigned or place in self.revoking


@dataclass(frozen=True, slots=True)
class ResolvedRegularExpression:
    """Holds the topics that a regular expression matches."""

    topics: tuple[str, ...]
    version: int
    """Holds the offset of the metadata log up to which topics were matched."""
    at_ms: int
    """Holds the wall-clock time of the match, in ms."""


class GroupEpochRecord(NamedTuple):
    """Is the log record of the group epoch and of a hash of the topics that the group reads. Epoch None removes the
    group.
    """

    group_id: str
    epoch: int | None
    metadata_hash: int = 0


class SubscriptionRecord(NamedTuple):
    """Is the log record of a member's subscription. Subscription None removes the member."""

    group_id: str
    member_id: str
    subscription: MemberSubscription | None


class TargetEpochRecord(NamedTuple):
    """Is the log record of the group epoch for which the target assignments were computed. In a tombstone, which is
    written when the group is removed, `epoch` is None.
    """

    group_id: str
    epoch: int | None
    at_ms: int = 0
    """Holds the wall-clock time of the assignment, in ms."""


class TargetAssignmentRecord(NamedTuple):
    """Is the log record of the partitions of a member's target assignment. In a tombstone `places` is None: the member
    has left.
    """

    group_id: str
    member_id: str
    places: tuple[Place, ...] | None


class CurrentAssignmentRecord(NamedTuple):
    """Is the log record of a member's current assignment. In a tombstone `current` is None: the member has left and
    owns nothing.
    """

    group_id: str
    member_id: str
    current: CurrentAssignment | None


class RegularExpressionRecord(NamedTuple):
    """Is the log record of the topics that a regular expression matches. In a tombstone `resolved` is None: no member
    uses the expression any more.
    """

    group_id: str
    regex: str
    resolved: ResolvedRegularExpression | None


class LegacyPartitionMetadataRecord(NamedTuple):
    """Is a log record of brokers before Kafka 4.1: the topics that the group reads. Newer brokers write a hash of them
    (GroupEpochRecord). The value of this record is ignored.
    """

    group_id: str


ConsumerGroupLogRecord = (
    GroupEpochRecord
    | SubscriptionRecord
    | TargetEpochRecord
    | TargetAssignmentRecord
    | CurrentAssignmentRecord
    | RegularExpressionRecord
    | LegacyPartitionMetadataRecord
)


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """Holds a ConsumerGroupHeartbeat request. Fields that are None have not changed since the member's last heartbeat.
    """

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: tuple[Place, ...] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Return whether the heartbeat has all fields, as after a failed request: then the response needs all fields as
        well.
        """
        says = self.topics is not None or self.regex is not None
        return says and self.owned is not None and self.rebalance_ms != -1


@dataclass(frozen=True, slots=True)
class ConsumerDescribe:
    """Asks for a description of the consumer group; the request changes nothing."""

    group_id: str
