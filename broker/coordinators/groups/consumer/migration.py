"""A group that has members goes from one protocol to the other (KIP-848, group.consumer.migration.policy).

Upwards with the first member that speaks the consumer protocol: what the classic members own becomes their target and
their assignment, and the generation the group's epoch. Downwards when the last such member has gone: the epoch becomes
a generation without a leader, and the classic members join the next one.
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
"""Policies that allow it."""
DISABLED = "disabled"


def upgraded(classic: ClassicGroup, topics: TopicLookup) -> tuple[GroupLogRecord, ...]:
    """Records that make a consumer group of a stable classic group; none where its members say what nobody can read.

    A cooperative member may still read what its generation has taken from it, until it has heard of that: this waits
    for it to be revoked, as anything else that a member is to give up.
    """
    assert classic.state == GroupState.STABLE
    if classic.protocol_type != CONSUMER:
        return ()
    group_id, epoch = classic.group_id, classic.generation
    try:
        said = {one: embedded.wanted(m.metadata(classic.protocol), topics) for one, m in classic.members.items()}
        given = {one: embedded.assigned(m.assignment, topics) for one, m in classic.members.items()}
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
    found = metadata_hash(topics, dict.fromkeys(name for each in said.values() for name in each.topics))
    first: tuple[GroupLogRecord, ...] = (GroupMetadataRecord(group_id, None), GroupEpochRecord(group_id, epoch, found))
    return (*first, *records, TargetEpochRecord(group_id, epoch))


def _current(epoch: int, given: tuple[Place, ...], kept: list[Place]) -> CurrentAssignment:
    assert not set(given) & set(kept)
    state = MemberState.UNREVOKED if kept else MemberState.STABLE
    return CurrentAssignment(epoch, epoch, state, dict.fromkeys(given, epoch), dict.fromkeys(kept, epoch))


def is_of_classics(group: ConsumerGroup) -> bool:
    """Return whether the group has members, and all of them are classic ones."""
    return bool(group.members) and all(one.classic is not None for one in group.members.values())


def common_protocols(group: ConsumerGroup) -> tuple[str, ...]:
    """Return the protocols that all classic members can embed, in the first member's order."""
    said = [[name for name, _ in one.classic.protocols] for one in group.members.values() if one.classic is not None]
    return tuple(name for name in said[0] if all(name in each for each in said)) if said else ()


def downgraded(group: ConsumerGroup, topics: TopicLookup, now: ClockReading) -> tuple[GroupLogRecord, ...]:
    """Records that make a classic group of a consumer group of classic members only."""
    assert group.members
    group_id, protocol = group.group_id, common_protocols(group)[0]
    gone: list[GroupLogRecord] = []
    members = []
    for member_id, one in group.members.items():
        assert one.classic is not None
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
                embedded.assignment(places, said, topics),
            )
        )
        gone += [CurrentAssignmentRecord(group_id, member_id, None), TargetAssignmentRecord(group_id, member_id, None)]
        gone.append(SubscriptionRecord(group_id, member_id, None))
    gone += [RegularExpressionRecord(group_id, regex, None) for regex in group.regexes]
    gone += [TargetEpochRecord(group_id, None), GroupEpochRecord(group_id, None)]
    # Without a leader: so the classic group has its members join again before it assigns anything.
    record = GroupRecord(CONSUMER, group.epoch, protocol, None, now.wall_ms, tuple(members))
    return (*gone, GroupMetadataRecord(group_id, record))
