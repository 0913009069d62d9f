"""Checks the ids and client names of members of classic groups, and how their group is described."""

from __future__ import annotations

from uuid import UUID

import pytest

from squall.broker.apis.describe import GROUP_OPERATIONS
from squall.broker.apis.groups import _described, fresh_member_id
from squall.broker.coordinators.groups.values import DescribeResult, GroupState, MemberRecord

DRAWN = UUID(int=1, version=4)


@pytest.mark.parametrize("of", ["", "client", "c" * 0x7FFF, "\u20ac" * 10_000 + "cc", "\u20ac" * 10_922])
def test_a_members_name_can_be_read_by_the_others_of_its_group(of: str) -> None:
    """A client id of 32,767 bytes ended the connection of the group's leader, which was sent an even longer string."""
    name = fresh_member_id(of, DRAWN)
    assert name.endswith(f"-{DRAWN}")
    kept = name.removesuffix(f"-{DRAWN}")
    assert of.startswith(kept)
    assert len(name.encode()) <= 0x7FFF
    assert kept == of or len(name.encode()) > 0x7FFF - 3


def test_a_group_that_prepares_a_rebalance_still_shows_assignments_and_no_subscriptions() -> None:
    """As with Kafka, which also names the operations that were asked for (KIP-430)."""
    member = MemberRecord("m", None, "c", "/h", 1, 1, b"subscribed", b"assigned")
    answer = DescribeResult(state=GroupState.PREPARING, members=(member,))
    described = _described("g", answer, 6, GROUP_OPERATIONS)
    assert [(each.member_metadata, each.member_assignment) for each in described.members] == [(b"", b"assigned")]
    assert described.authorized_operations == 3400
