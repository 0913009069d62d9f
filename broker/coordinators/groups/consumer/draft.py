"""Collects the records of one change to a consumer group, and builds the records that most changes need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.consumer.members import (
    JOINS,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberSubscription,
    RegularExpressionRecord,
    SubscriptionRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
    from squall.broker.coordinators.groups.consumer.members import (
        ClassicJoinMetadata,
        ConsumerGroupLogRecord,
        ConsumerHeartbeat,
    )
    from squall.broker.coordinators.groups.values import GroupLogRecord


class GroupDraft:
    """Holds a group as it will be after a change that is being decided, and the records that make the change."""

    __slots__ = ("_own", "group", "records", "whole")

    def __init__(self, group: ConsumerGroup) -> None:
        self.group, self._own = group, False
        self.records: list[GroupLogRecord] = []
        self.whole: int | None = None
        """Gives the number of records, from the first on, that must be in the same batch; None means all."""

    def add(self, written: ConsumerGroupLogRecord) -> None:
        """Add one more record, and replay it into the group."""
        if not self._own:
            # Not earlier, because most heartbeats change nothing.
            self.group, self._own = self.group.copy(), True
        self.records.append(written)
        self.group.replay(written)
        assert self.whole is None or self.whole <= len(self.records)


def tombstones_of_group(group: ConsumerGroup) -> list[GroupLogRecord]:
    """Return the tombstones of all records of a group without members. A log whose start was deleted may still hold
    records of unknown members. Their tombstones are included, because the group exists as long as it has such records.
    """
    assert not group.members
    group_id = group.group_id
    gone: list[GroupLogRecord] = [CurrentAssignmentRecord(group_id, member_id, None) for member_id in group.current]
    gone += [TargetAssignmentRecord(group_id, member_id, None) for member_id in group.target]
    gone += [RegularExpressionRecord(group_id, regex, None) for regex in group.regexes]
    return [*gone, TargetEpochRecord(group_id, None), GroupEpochRecord(group_id, None)]


def tombstones_of_member(group_id: str, member_id: str) -> tuple[ConsumerGroupLogRecord, ...]:
    """Return the tombstones of a member's records, in the order in which they must be written. The tombstone of the
    subscription is the last one: if the log ends before it, the member still exists, but without partitions, and times
    out or joins again.
    """
    return (
        CurrentAssignmentRecord(group_id, member_id, None),
        TargetAssignmentRecord(group_id, member_id, None),
        SubscriptionRecord(group_id, member_id, None),
    )


def updated_subscription(
    known: MemberSubscription, beat: ConsumerHeartbeat, classic: ClassicJoinMetadata | None
) -> MemberSubscription:
    """Return a member's subscription with the changes of a heartbeat. `classic` is None for a member of the consumer
    protocol.
    """
    assert classic is None or beat.epoch == JOINS
    return MemberSubscription(
        known.instance_id if beat.instance_id is None else beat.instance_id,
        known.rack_id if beat.rack_id is None else beat.rack_id,
        beat.client_id,
        beat.client_host,
        known.topics if beat.topics is None else tuple(sorted(dict.fromkeys(beat.topics))),
        known.regex if beat.regex is None else (beat.regex or None),
        known.rebalance_ms if beat.rebalance_ms == -1 else beat.rebalance_ms,
        known.assignor if beat.assignor is None else beat.assignor,
        classic,
    )
