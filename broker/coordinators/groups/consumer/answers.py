"""Builds the coordinator's responses to members of consumer groups and to admins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.values import NO_MEMBER, GroupResponse, GroupState, JoinResult
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.consumer.members import CurrentAssignment, MemberSubscription, Place
    from squall.broker.coordinators.groups.values import JoinGroup


@dataclass(frozen=True, slots=True)
class HeartbeatResult(GroupResponse):
    """Answers a ConsumerHeartbeat: the member's epoch, and its partitions if the member may not know them (otherwise
    None).
    """

    member_id: str = ""
    epoch: int = 0
    assigned: tuple[Place, ...] | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """Describes a member: its subscription, its current assignment and its target assignment."""

    member_id: str
    subscription: MemberSubscription
    current: CurrentAssignment
    target: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class ConsumerDescribeResult(GroupResponse):
    """Answers a ConsumerDescribe with the state and the members of a consumer group."""

    state: GroupState = GroupState.DEAD
    epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedMember, ...] = ()


def generation_of(member_id: str, epoch: int, request: JoinGroup) -> JoinResult:
    """Return the JoinGroup response for a classic member of a consumer group. The generation in it is the member epoch
    `epoch`, and no member is the group leader.
    """
    assert request.protocols
    return JoinResult(ErrorCode.NONE, member_id, epoch, request.protocol_type, request.protocols[0][0], NO_MEMBER)
