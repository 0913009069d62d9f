"""The rules of consumer groups (P6, KIP-848), one method each. None of them changes anything.

They are methods so that a planted bug can replace exactly one (`chaos/mutants`), and so that tests can ask them
directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.consumer.members import JOINS, LEAVES, LEAVES_FOR_NOW, ConsumerHeartbeat, Place
from squall.broker.coordinators.groups.values import NO_MEMBER, Commit, GroupState, TxnOffsetCommit
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
    from squall.broker.coordinators.groups.values import FetchOffsets

EPOCHS_FROM = 9
"""First version of OffsetCommit whose clients know member epochs."""


def wrong_with(beat: ConsumerHeartbeat, assignors: tuple[str, ...]) -> tuple[ErrorCode, str]:
    """Return the error of a heartbeat that is invalid whatever the group is like; NONE if it is valid."""
    if not beat.group_id:
        return ErrorCode.INVALID_REQUEST, "GroupId can't be empty."
    if beat.epoch < LEAVES_FOR_NOW:
        return ErrorCode.INVALID_REQUEST, f"MemberEpoch is {beat.epoch}, but must be greater than or equal to -2."
    if not beat.member_id:
        return ErrorCode.INVALID_REQUEST, "MemberId can't be empty."
    if beat.instance_id == "":
        return ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."
    if beat.rack_id == "":
        return ErrorCode.INVALID_REQUEST, "RackId can't be empty."
    if beat.epoch == LEAVES_FOR_NOW and beat.instance_id is None:
        return ErrorCode.INVALID_REQUEST, "InstanceId can't be null."
    if beat.epoch == JOINS:
        if beat.rebalance_ms == -1:
            return ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request."
        if beat.owned is None or beat.owned:
            return ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining."
        if beat.topics is None and beat.regex is None:
            return (
                ErrorCode.INVALID_REQUEST,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )
    if beat.assignor is not None and beat.assignor not in assignors:
        known = ", ".join(assignors)
        return (
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {known}.",
        )
    return ErrorCode.NONE, ""


class ConsumerGroupRules:
    """Decides which requests members of a consumer group may make."""

    __slots__ = ()

    # ------------------------------------------------------------------------------------------------------- who is who

    def refusal_of_beat(self, group: ConsumerGroup, beat: ConsumerHeartbeat) -> ErrorCode:
        """Why a heartbeat of this member does not count: it is unknown, another has its instance id, or the group has
        gone on without it. NONE where it counts.
        """
        if beat.instance_id is not None:
            current = group.static.get(beat.instance_id)
            if beat.epoch == JOINS:
                return self.refusal_of_instance(group, current, beat.member_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != beat.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if beat.epoch == JOINS:
            return ErrorCode.NONE
        if beat.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if beat.epoch < 0 else self.refusal_of_epoch(group, beat)

    def refusal_of_instance(self, group: ConsumerGroup, current: str | None, member_id: str) -> ErrorCode:
        """Return the error of a join with an instance id that another member still has: that member must have left, for
        now or with its session.
        """
        if current is None or group.now_of(current).epoch == LEAVES_FOR_NOW:
            return ErrorCode.NONE
        return ErrorCode.UNRELEASED_INSTANCE_ID

    def refusal_of_epoch(self, group: ConsumerGroup, beat: ConsumerHeartbeat) -> ErrorCode:
        """Return the error of a heartbeat with an epoch that is not the member's. The answer with its newest epoch may
        have got lost: then it comes with the epoch before, and owns nothing beyond what it was given.
        """
        current = group.now_of(beat.member_id)
        if beat.epoch == current.epoch:
            return ErrorCode.NONE
        lost = beat.epoch == current.previous_epoch and beat.epoch < current.epoch
        if lost and beat.owned is not None and all(place in current.assigned for place in beat.owned):
            return ErrorCode.NONE
        return ErrorCode.FENCED_MEMBER_EPOCH

    def has_room(self, group: ConsumerGroup, member_id: str, most: int) -> bool:
        """Return whether one more member may join; members of the group always may."""
        return member_id in group.members or len(group.members) < most

    # --------------------------------------------------------------------------------------------------------- offsets

    def refusal_of_commit(
        self, group: ConsumerGroup, request: Commit | TxnOffsetCommit, places: tuple[Place, ...]
    ) -> ErrorCode:
        """Why offsets of these partitions must not be committed: their sender may own them no more (KIP-848, KIP-1251).

        Who is no member may commit for a group that has none, and in a transaction always: its producer's epoch
        fences it.
        """
        in_transaction = isinstance(request, TxnOffsetCommit)
        if request.generation < 0 and not group.members:
            return ErrorCode.NONE
        nobody = request.generation < 0 and request.member_id == NO_MEMBER and request.instance_id is None
        if in_transaction and nobody:
            return ErrorCode.NONE
        subscription = group.members.get(request.member_id)
        if subscription is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        classic = subscription.classic is not None
        if isinstance(request, Commit) and not classic and request.version < EPOCHS_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        stale = ErrorCode.ILLEGAL_GENERATION if classic or in_transaction else ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE if self.owns_since(group, request.member_id, request.generation, places) else stale

    def owns_since(self, group: ConsumerGroup, member_id: str, epoch: int, places: tuple[Place, ...]) -> bool:
        """Return whether a member has had these partitions since `epoch` or before: then no other member can have read
        on.
        """
        current = group.now_of(member_id)
        if epoch == current.epoch:
            return True
        if epoch > current.epoch or epoch < 0:
            return False
        held = {**current.assigned, **current.revoking}
        return all(place in held and held[place] <= epoch for place in places)

    def refusal_of_fetch(self, group: ConsumerGroup, request: FetchOffsets) -> ErrorCode:
        """Why offsets are not told to this member: it is none, or has yet to hear of its newest epoch."""
        if request.member_id is None and request.epoch < 0:
            return ErrorCode.NONE
        if request.member_id is None or request.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.epoch != group.now_of(request.member_id).epoch:
            return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    # -------------------------------------------------------------------------------------------------------- the group

    def state(self, group: ConsumerGroup) -> GroupState:
        """As ListGroups and ConsumerGroupDescribe call it."""
        if not group.members:
            return GroupState.EMPTY
        if group.epoch > group.target_epoch:
            return GroupState.ASSIGNING
        reconciled = all(group.is_reconciled(member_id) for member_id in group.members)
        return GroupState.STABLE if reconciled else GroupState.RECONCILING

    def is_answer_full(self, beat: ConsumerHeartbeat, before: tuple[Place, ...], after: tuple[Place, ...]) -> bool:
        """Return whether the answer contains the member's assignment: it does if the member may not know it."""
        return beat.epoch == JOINS or beat.is_full or before != after


def leaves(beat: ConsumerHeartbeat) -> bool:
    """Return whether a heartbeat is a member's last one."""
    return beat.epoch in (LEAVES, LEAVES_FOR_NOW)
