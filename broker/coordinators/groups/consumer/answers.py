"""Builds the coordinator's answers to members of consumer groups and to their admins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.values import NO_MEMBER, GroupResponse, GroupState, JoinResult
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.consumer.members import CurrentAssignment, MemberSubscription, Place
    from squall.broker.coordinators.groups.values import Join


@dataclass(frozen=True, slots=True)
class HeartbeatResult(GroupResponse):
    """Answers ConsumerBeat: the member's epoch, and its partitions where they may be news to it."""

    member_id: str = ""
    epoch: int = 0
    assigned: tuple[Place, ...] | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member, what it owns, and what it is to own."""

    member_id: str
    subscription: MemberSubscription
    current: CurrentAssignment
    target: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class ConsumerDescribeResult(GroupResponse):
    """Answers ConsumerDescribe."""

    state: GroupState = GroupState.DEAD
    epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedMember, ...] = ()


def generation_of(member_id: str, epoch: int, request: Join) -> JoinResult:
    """Return the answer to a classic member that joins a consumer group: it never leads."""
    return JoinResult(ErrorCode.NONE, member_id, epoch, request.protocol_type, request.protocols[0][0], NO_MEMBER)
