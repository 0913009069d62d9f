"""Translates JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members of a consumer group (KIP-848).

| request | translation |
|---|---|
| JoinGroup | a full heartbeat, with the partitions that the member still owns: the member reconciles |
| SyncGroup | returns the member's current assignment |
| Heartbeat | returns REBALANCE_IN_PROGRESS if the member has to join again to reconcile |
| LeaveGroup | removes members of either protocol |

The generation is the member's epoch. No member is the group leader, so only the coordinator assigns partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.consumer import embedded
from squall.broker.coordinators.groups.consumer.members import (
    JOINS,
    ClassicJoinMetadata,
    ConsumerHeartbeat,
    GroupEpochRecord,
    MemberState,
)
from squall.broker.coordinators.groups.consumer.migration import common_protocols
from squall.broker.coordinators.groups.rules import CONSUMER, refusal
from squall.broker.coordinators.groups.values import (
    NO_MEMBER,
    AppendCompletion,
    AppendRecords,
    Effect,
    GroupResponse,
    JoinResult,
    LeaveResult,
    SendResponse,
    SyncResult,
    Token,
)
from squall.broker.protocol.errors import ErrorCode, MalformedFrame

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.consumer.coordination import ConsumerCoordination
    from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
    from squall.broker.coordinators.groups.values import (
        ClassicHeartbeat,
        ClockReading,
        JoinGroup,
        LeaveGroup,
        SyncGroup,
    )


def join(
    of: ConsumerCoordination, group: ConsumerGroup, request: JoinGroup, token: Token, now: ClockReading
) -> list[Effect]:
    """Handle the JoinGroup of a classic member: it joins the group, or reconciles one step further."""
    assert group.members
    assert request.group_id == group.group_id
    required_offset = of.required_offset(group.group_id)
    refused = _refusal_of_join(of, group, request)
    if not refused:
        try:
            # A consumer embeds one subscription in all of its protocols. Kafka reads the first one, too.
            said = embedded.decode_subscription(request.protocols[0][1], of.topics)
        except MalformedFrame:
            refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if refused:
        known = NO_MEMBER if refused == ErrorCode.UNKNOWN_MEMBER_ID else request.member_id
        return [SendResponse(token, JoinResult(refused, known), required_offset)]
    assert request.protocol_type == CONSUMER
    is_new = request.member_id == NO_MEMBER
    assert not is_new or request.fresh_id not in group.members
    if is_new and request.instance_id is None and request.needs_id:
        return [SendResponse(token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.fresh_id), required_offset)]
    beat = ConsumerHeartbeat(
        group.group_id,
        request.fresh_id if is_new else request.member_id,
        JOINS,
        request.instance_id,
        said.rack_id,
        request.rebalance_ms,
        said.topics,
        "",
        None,
        said.owned,
        request.client_id,
        request.client_host,
    )
    return of.reconcile_classic_member(
        group, beat, ClassicJoinMetadata(request.session_ms, request.protocols), request, token, now
    )


def _refusal_of_join(of: ConsumerCoordination, group: ConsumerGroup, request: JoinGroup) -> ErrorCode:
    names = [name for name, _ in request.protocols]
    others = common_protocols(group)
    if not names or request.protocol_type != CONSUMER or (others and not any(name in names for name in others)):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not of.admits_classic_members:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # the group could never have a single protocol again (KAFKA-20640)
    if request.member_id != NO_MEMBER and request.instance_id is not None:
        return _refusal_of(group, request.member_id, request.instance_id)
    member = group.members.get(request.member_id)
    if member is not None and member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID  # the id belongs to a member of the consumer protocol
    comes_back = request.instance_id is not None and request.instance_id in group.static
    has_room = comes_back or of.has_room_for(group, request.member_id)
    return ErrorCode.NONE if has_room else ErrorCode.GROUP_MAX_SIZE_REACHED


def _refusal_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """Return the error of a request with these ids, or NONE if they are the ids of a current classic member."""
    refused = refusal(group.static, group.members, member_id, instance_id)
    if not refused and group.members[member_id].classic is None:
        refused = ErrorCode.UNKNOWN_MEMBER_ID
    return refused


def _refusal_in_generation(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    refused = _refusal_of(group, member_id, instance_id)
    if not refused and generation != group.now_of(member_id).epoch:
        refused = ErrorCode.ILLEGAL_GENERATION
    return refused


def sync(
    of: ConsumerCoordination, group: ConsumerGroup, request: SyncGroup, token: Token, now: ClockReading
) -> list[Effect]:
    """Return the current assignment of a classic member, as its SyncGroup asks."""
    member_id, required_offset = request.member_id, of.required_offset(group.group_id)
    refused = _refusal_in_generation(group, member_id, request.instance_id, request.generation)
    if refused:
        return [SendResponse(token, SyncResult(refused), required_offset)]
    member, current = group.members[member_id], group.now_of(member_id)
    assert member.classic is not None
    wrong_type = request.protocol_type not in (None, CONSUMER)
    if wrong_type or request.protocol not in (None, *(name for name, _ in member.classic.protocols)):
        return [SendResponse(token, SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), required_offset)]
    # A member that has to revoke needs its assignment first: it shows which partitions to give up. After that it
    # joins again, and gets to the new epoch.
    if group.epoch > current.epoch and current.state != MemberState.UNREVOKED:
        of.must_join(group, member_id, now)
        return [SendResponse(token, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS), required_offset)]
    of.has_synced(group, member_id, now)
    name, said = member.classic.protocols[0]
    given = embedded.encode_assignment(tuple(sorted(current.assigned)), said, of.topics)
    return [SendResponse(token, SyncResult(ErrorCode.NONE, given, CONSUMER, name), required_offset)]


def beat(
    of: ConsumerCoordination, group: ConsumerGroup, request: ClassicHeartbeat, token: Token, now: ClockReading
) -> list[Effect]:
    """Handle the Heartbeat of a classic member: extend its session, and answer REBALANCE_IN_PROGRESS if it has to join
    again.
    """
    member_id = request.member_id
    error = _refusal_in_generation(group, member_id, request.instance_id, request.generation)
    if not error:
        of.extend_session(group, member_id, now)
        if must_rejoin(group, member_id):
            of.must_join(group, member_id, now)
            error = ErrorCode.REBALANCE_IN_PROGRESS
    return [SendResponse(token, GroupResponse(error), of.required_offset(group.group_id))]


def must_rejoin(group: ConsumerGroup, member_id: str) -> bool:
    """Return whether a classic member has to join again, because the group has a newer epoch, or because the member has
    to give up partitions or can get more.
    """
    assert group.members[member_id].classic is not None
    current = group.now_of(member_id)
    if current.epoch < group.epoch or current.state == MemberState.UNREVOKED:
        return True
    if current.state != MemberState.UNRELEASED:
        return False
    lacking = [place for place in group.target.get(member_id, ()) if place not in current.assigned]
    return any(group.owners.get(place) is None for place in lacking)


def leave(
    of: ConsumerCoordination, group: ConsumerGroup, request: LeaveGroup, token: Token, now: ClockReading
) -> list[Effect]:
    """Remove members of either protocol: an admin may remove members of the consumer protocol (measured with Kafka
    4.3.1), and may name a static member by its instance id alone (KIP-345). A member that is named twice gets NONE
    twice.
    """
    gone: dict[str, None] = {}
    named = []
    for member_id, instance_id in request.members:
        who = member_id
        if member_id == NO_MEMBER and instance_id is not None:
            who = group.static.get(instance_id, NO_MEMBER)
        error = refusal(group.static, group.members, who, instance_id)
        if not error:
            gone[who] = None
        named.append((member_id, instance_id, error))
    answer = LeaveResult(members=tuple(named))
    if not gone:
        return [SendResponse(token, answer, of.required_offset(group.group_id))]
    assert all(member_id in group.members for member_id in gone)
    records = of.remove_members(group, list(gone), now)
    assert len(records) >= 3 * len(gone)
    # The group becomes a classic one, by records that belong together. (`_downgrade_fits`: one batch holds them.)
    if not isinstance(records[-1], GroupEpochRecord):
        return [AppendRecords(records, AppendCompletion(token, answer))]
    assert sum(isinstance(written, GroupEpochRecord) for written in records) == 1
    # Thousands of members need several batches. If the log ends between two batches, the remaining members are in the
    # new epoch, and a partly removed member times out or joins again.
    return [AppendRecords((records[-1], *records[:-1]), AppendCompletion(token, answer), whole=1)]
