"""Decides the rules of consumer groups (mechanism P6 in docs/mechanisms.md, KIP-848), with one method for each rule. No
rule changes any state.

The rules are methods so that a planted bug can replace exactly one rule (`chaos/mutants`), and so that tests can call
them directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.consumer.members import JOINS, LEAVES, LEAVES_FOR_NOW, ConsumerHeartbeat, Place
from squall.broker.coordinators.groups.values import NO_MEMBER, CommitOffsets, GroupState, TxnOffsetCommit
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
    from squall.broker.coordinators.groups.values import FetchOffsets

EPOCHS_FROM = 9
"""Is the first version of OffsetCommit whose clients send member epochs."""


def heartbeat_error(beat: ConsumerHeartbeat, assignors: tuple[str, ...]) -> tuple[ErrorCode, str]:
    """Return the error and message for a heartbeat that is invalid for any group; NONE if it is valid."""
    # Order and texts are those of Kafka, whose clients show them.
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
    """Decides which requests of a consumer group's members are accepted."""

    __slots__ = ()

    # ------------------------------------------------------------------------------------------------------- who is who

    def refusal_of_heartbeat(self, group: ConsumerGroup, beat: ConsumerHeartbeat) -> ErrorCode:
        """Return the error of a heartbeat, or NONE if it is accepted. It is refused if the member is unknown, if
        another member has its instance id, or if the heartbeat has an outdated epoch.
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
        """Return UNRELEASED_INSTANCE_ID if the member `member_id` may not join, because the member `current` has its
        instance id. Return NONE if `current` has left with LEAVES_FOR_NOW, or if no member has the instance id
        (`current` is None).
        """
        assert current is None or current in group.members
        if current is None or group.now_of(current).epoch == LEAVES_FOR_NOW:
            return ErrorCode.NONE
        return ErrorCode.UNRELEASED_INSTANCE_ID

    def refusal_of_epoch(self, group: ConsumerGroup, beat: ConsumerHeartbeat) -> ErrorCode:
        """Return FENCED_MEMBER_EPOCH if the heartbeat's epoch is not the member's current epoch, else NONE. The
        previous epoch is accepted if the member owns only partitions that were assigned to it: the response with the
        current epoch may have got lost.
        """
        assert beat.epoch > JOINS
        assert beat.member_id in group.members
        current = group.now_of(beat.member_id)
        if beat.epoch == current.epoch:
            return ErrorCode.NONE
        lost = beat.epoch == current.previous_epoch and beat.epoch < current.epoch
        if lost and beat.owned is not None and all(place in current.assigned for place in beat.owned):
            return ErrorCode.NONE
        return ErrorCode.FENCED_MEMBER_EPOCH

    def has_room(self, group: ConsumerGroup, member_id: str, most: int) -> bool:
        """Return whether the member may join a group of at most `most` members; a member of the group always may."""
        return member_id in group.members or len(group.members) < most

    # --------------------------------------------------------------------------------------------------------- offsets

    def refusal_of_commit(
        self, group: ConsumerGroup, request: CommitOffsets | TxnOffsetCommit, places: tuple[Place, ...]
    ) -> ErrorCode:
        """Return the error of an offset commit, or NONE if it is accepted. It is refused if the sender may no longer
        own these partitions (KIP-848, KIP-1251).

        A client that is no member may commit if the group has no members. A TxnOffsetCommit that names no member is
        accepted even if the group has members, because the producer epoch fences old producers.
        """
        assert len(places) == len(request.offsets)
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
        if isinstance(request, CommitOffsets) and not classic and request.version < EPOCHS_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        # Classic members know no member epochs, and TxnOffsetCommit has no STALE_MEMBER_EPOCH.
        stale = ErrorCode.ILLEGAL_GENERATION if classic or in_transaction else ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE if self.owned_since(group, request.member_id, request.generation, places) else stale

    def owned_since(self, group: ConsumerGroup, member_id: str, epoch: int, places: tuple[Place, ...]) -> bool:
        """Return whether a member has owned these partitions since `epoch` or before, so that no other member can have
        read them since.
        """
        assert member_id in group.members
        current = group.now_of(member_id)
        if epoch == current.epoch:
            return True
        if epoch > current.epoch or epoch < 0:
            return False
        held = {**current.assigned, **current.revoking}
        return all(place in held and held[place] <= epoch for place in places)

    def refusal_of_fetch(self, group: ConsumerGroup, request: FetchOffsets) -> ErrorCode:
        """Return the error of an OffsetFetch, or NONE if it is accepted. A sender that names a member is refused if the
        member is unknown, or if the epoch that it sends is not the member's current epoch.
        """
        if request.member_id is None and request.epoch < 0:
            return ErrorCode.NONE
        if request.member_id is None or request.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.epoch != group.now_of(request.member_id).epoch:
            return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    # -------------------------------------------------------------------------------------------------------- the group

    def state(self, group: ConsumerGroup) -> GroupState:
        """Return the group's state as ListGroups and ConsumerGroupDescribe name it."""
        if not group.members:
            return GroupState.EMPTY
        if group.epoch > group.target_epoch:
            return GroupState.ASSIGNING
        reconciled = all(group.is_reconciled(member_id) for member_id in group.members)
        return GroupState.STABLE if reconciled else GroupState.RECONCILING

    def is_answer_full(self, beat: ConsumerHeartbeat, before: tuple[Place, ...], after: tuple[Place, ...]) -> bool:
        """Return whether the response contains the member's partitions, because the member may not know them: it joins,
        its heartbeat has all fields, or the heartbeat has changed its partitions from `before` to `after`.
        """
        return beat.epoch == JOINS or beat.is_full or before != after


def leaves(beat: ConsumerHeartbeat) -> bool:
    """Return whether the member leaves the group with this heartbeat."""
    return beat.epoch in (LEAVES, LEAVES_FOR_NOW)
