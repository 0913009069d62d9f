"""Checks what a swarm's seed gives the brokers of groups."""

from __future__ import annotations

from squall.broker.coordinators.groups import records
from squall.broker.coordinators.groups.consumer.members import (
    CurrentAssignmentRecord,
    SubscriptionRecord,
    TargetAssignmentRecord,
)
from squall.broker.coordinators.groups.values import GroupMetadataRecord, GroupRecord, MemberRecord
from squall.broker.protocol.records import Record, encode_batch
from squall.workloads.group_brokers import SEGMENTS
from squall.workloads.groups.scenario import GROUP

MOST_MEMBERS = 8
"""A swarm's group has four, and as many more that have crashed and are not given up yet."""


def test_the_largest_batch_of_a_group_fits_into_the_smallest_segment() -> None:
    """Else its group is stuck: swarm seed 1250226, whose members were given up and could not be written off."""
    ids = [f"squall-{number:036}" for number in range(MOST_MEMBERS)]
    of_all = ("squall", "/127.0.0.1", 2_000, 1_500, bytes(60), bytes(60))
    members = tuple(MemberRecord(each, each, *of_all) for each in ids)
    gone = [
        kind(GROUP, each, None)
        for each in ids
        for kind in (CurrentAssignmentRecord, TargetAssignmentRecord, SubscriptionRecord)
    ]
    written = [
        *gone,
        GroupMetadataRecord(GROUP, GroupRecord("consumer", 1_000, "cooperative-sticky", None, 0, members)),
    ]
    encoded = map(records.encode, written)
    size = len(encode_batch([Record(n, 0, key, value) for n, (key, value) in enumerate(encoded)]))
    assert 1_500 < size <= min(map(int, SEGMENTS)), size
