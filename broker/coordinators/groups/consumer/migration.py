"""Converts a group with members from one protocol to the other (KIP-848, group.consumer.migration.policy).

A classic group is upgraded when the first member of the consumer protocol joins: the partitions that the classic
members own become their target and current assignments, and the generation becomes the group epoch. A consumer group is
downgraded when its last such member has left: the epoch becomes a generation without a leader, and the classic members
join the next generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.consumer import embedded
from squall.broker.coordinators.groups.consumer.members import (
    ClassicJoinMetadata,
    ConsumerGroupLogRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberState,
    MemberSubscription,
    RegularExpressionRecord,
    SubscriptionRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from squall.broker.coordinators.groups.consumer.topics import metadata_hash
from squall.broker.coordinators.groups.rules import CONSUMER
from squall.broker.coordinators.groups.values import (
    ClockReading,
    GroupLogRecord,
    GroupMetadataRecord,
    GroupRecord,
    GroupState,
    MemberRecord,
)
from squall.broker.protocol.errors import MalformedFrame

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.classic import ClassicGroup
    from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
    from squall.broker.coordinators.groups.consumer.members import Place
    from squall.broker.coordinators.groups.consumer.topics import TopicLookup

UPWARDS, DOWNWARDS = ("bidirectional", "upgrade"), ("bidirectional", "downgrade")
"""List values of group.consumer.migration.policy. Those in UPWARDS let a classic group become a consumer group; those
in DOWNWARDS permit the reverse.
"""
DISABLED = "disabled"


def upgraded(classic: ClassicGroup, topics: TopicLookup) -> tuple[GroupLogRecord, ...]:
    """Return the records that turn a stable classic group into a consumer group; none if a member's subscription or
    assignment cannot be decoded.

    A cooperative member may still own partitions that the generation assigns to no member, because this member has not
    revoked them yet. The records say that it has to revoke them, so no other member gets them before.
    """
    assert classic.state == GroupState.STABLE
    assert classic.members
    if classic.protocol_type != CONSUMER:
        return ()
    group_id, epoch = classic.group_id, classic.generation
    try:
        said = {
            one: embedded.decode_subscription(m.metadata(classic.protocol), topics)
            for one, m in classic.members.items()
        }
        given = {one: embedded.decode_assignment(m.assignment, topics) for one, m in classic.members.items()}
    except MalformedFrame:
        return ()
    taken = {place for places in given.values() for place in places}
    records: list[ConsumerGroupLogRecord] = []
    for member_id, member in classic.members.items():
        known = said[member_id]
        subscription = MemberSubscription(
            member.instance_id,
            known.rack_id,
            member.client_id,
            member.client_host,
            known.topics,
            None,
            member.rebalance_ms,
            None,
            ClassicJoinMetadata(member.session_ms, tuple(member.protocols)),
        )
        kept = [place for place in known.owned if place not in taken]
        taken.update(kept)
        records.append(SubscriptionRecord(group_id, member_id, subscription))
        records.append(TargetAssignmentRecord(group_id, member_id, given[member_id]))
        records.append(CurrentAssignmentRecord(group_id, member_id, _current(epoch, given[member_id], kept)))
    assert len(records) == 3 * len(classic.members)
    # As of now: later heartbeats compare it to see whether topics have changed since.
    found = metadata_hash(topics, dict.fromkeys(name for each in said.values() for name in each.topics))
    first: tuple[GroupLogRecord, ...] = (GroupMetadataRecord(group_id, None), GroupEpochRecord(group_id, epoch, found))
    return (*first, *records, TargetEpochRecord(group_id, epoch))


def _current(epoch: int, given: tuple[Place, ...], kept: list[Place]) -> CurrentAssignment:
    assert not set(given) & set(kept)
    state = MemberState.UNREVOKED if kept else MemberState.STABLE
    return CurrentAssignment(epoch, epoch, state, dict.fromkeys(given, epoch), dict.fromkeys(kept, epoch))


def has_only_classic_members(group: ConsumerGroup) -> bool:
    """Return whether the group has members and all of them are classic members."""
    return bool(group.members) and all(one.classic is not None for one in group.members.values())


def common_protocols(group: ConsumerGroup) -> tuple[str, ...]:
    """Return the names of the protocols that all classic members of the group support, such as ("range", "roundrobin"),
    in the first member's order.
    """
    said = [[name for name, _ in one.classic.protocols] for one in group.members.values() if one.classic is not None]
    return tuple(name for name in said[0] if all(name in each for each in said)) if said else ()


def downgraded(group: ConsumerGroup, topics: TopicLookup, now: ClockReading) -> tuple[GroupLogRecord, ...]:
    """Return the records that turn a consumer group, all of whose members are classic members, into a classic group."""
    assert group.members
    group_id, protocol = group.group_id, common_protocols(group)[0]
    gone: list[GroupLogRecord] = []
    members = []
    for member_id, one in group.members.items():
        assert one.classic is not None
        # Of two protocols with one name the first counts, as in `ClassicGroupMember`.
        said = dict(reversed(one.classic.protocols))[protocol]
        places = tuple(group.now_of(member_id).assigned)
        members.append(
            MemberRecord(
                member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                one.rebalance_ms,
                one.classic.session_ms,
                said,
                embedded.encode_assignment(places, said, topics),
            )
        )
        gone += [CurrentAssignmentRecord(group_id, member_id, None), TargetAssignmentRecord(group_id, member_id, None)]
        gone.append(SubscriptionRecord(group_id, member_id, None))
    gone += [RegularExpressionRecord(group_id, regex, None) for regex in group.regexes]
    gone += [TargetEpochRecord(group_id, None), GroupEpochRecord(group_id, None)]
    assert len(members) == len(group.members)
    # Without a leader the classic group rebalances, so that its members join again.
    record = GroupRecord(CONSUMER, group.epoch, protocol, None, now.wall_ms, tuple(members))
    return (*gone, GroupMetadataRecord(group_id, record))
