"""Defines the records that the log has of a consumer group, and the requests of its members.

A place is (topic id, partition). Epochs count up: the group's with each change of its members or their topics, the
target assignment's with the group's, a member's with the target that it has reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

Place = tuple[bytes, int]

FIRST_EPOCH: Final = 1
"""Of a group, and of its empty target, before anybody reads a topic: its first assignment has epoch 2 (KAFKA-20268)."""
JOINS: Final = 0
"""Member epoch of a heartbeat that joins the group."""
LEAVES: Final = -1
"""Member epoch of a member that goes for good."""
LEAVES_FOR_NOW: Final = -2
"""Member epoch of a static member that will be back: what it owns stays its own until its session is over."""


class MemberState(IntEnum):
    """Names how far a member is on its way to its target, as the records have it."""

    STABLE = 0
    """It has reached the target of its epoch."""
    UNREVOKED = 1
    """It has to give up partitions before it can go on to its next epoch."""
    UNRELEASED = 2
    """Partitions of its target are still owned by others."""


@dataclass(frozen=True, slots=True)
class ClassicJoinMetadata:
    """Holds what a member that speaks the classic protocol sent in its JoinGroup."""

    session_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """Represents a member and the topics that it wants to read."""

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
    """Represents a member's current assignment: partitions with the member epoch at which each was assigned to it."""

    epoch: int = 0
    previous_epoch: int = -1
    """A member whose last answer got lost still comes with this one."""
    state: MemberState = MemberState.STABLE
    assigned: Mapping[Place, int] = field(default_factory=dict)
    revoking: Mapping[Place, int] = field(default_factory=dict)
    """No longer its own once it says so: nobody else may have them before."""

    def holds(self, place: Place) -> bool:
        """Return whether no other member may have this partition."""
        return place in self.assigned or place in self.revoking


@dataclass(frozen=True, slots=True)
class ResolvedRegularExpression:
    """The topics that matched a regular expression."""

    topics: tuple[str, ...]
    version: int
    """Offset of the metadata log up to which topics were looked at."""
    at_ms: int
    """Wall clock."""


class GroupEpochRecord(NamedTuple):
    """The group's epoch, and a hash of the topics that it reads; None: the group is forgotten."""

    group_id: str
    epoch: int | None
    metadata_hash: int = 0


class SubscriptionRecord(NamedTuple):
    """A member's subscription; None: it is no member any more."""

    group_id: str
    member_id: str
    subscription: MemberSubscription | None


class TargetEpochRecord(NamedTuple):
    """The group epoch for which the targets of all members were computed; None: the group is forgotten."""

    group_id: str
    epoch: int | None
    at_ms: int = 0
    """Wall clock."""


class TargetAssignmentRecord(NamedTuple):
    """The partitions that a member is to have in the end; None: it is no member any more."""

    group_id: str
    member_id: str
    places: tuple[Place, ...] | None


class CurrentAssignmentRecord(NamedTuple):
    """Sets a member's current assignment; None: it has left, and owns nothing."""

    group_id: str
    member_id: str
    current: CurrentAssignment | None


class RegularExpressionRecord(NamedTuple):
    """The topics of a regular expression; None: no member has it any more."""

    group_id: str
    regex: str
    resolved: ResolvedRegularExpression | None


class LegacyPartitionMetadataRecord(NamedTuple):
    """Brokers before Kafka 4.1 wrote the topics themselves in place of their hash. Nothing is read from it."""

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
    """ConsumerGroupHeartbeat. What is None has not changed since the member's last one."""

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
        """It says everything, as after a failed request: then the answer has to say everything too."""
        says = self.topics is not None or self.regex is not None
        return says and self.owned is not None and self.rebalance_ms != -1


@dataclass(frozen=True, slots=True)
class ConsumerDescribe:
    """Nothing changes: the answer carries the consumer group."""

    group_id: str
