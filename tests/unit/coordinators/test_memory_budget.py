"""Checks that what members of classic groups have sent is held up to a limit, whatever groups they name."""

from __future__ import annotations

from typing import Any

from squall.broker.coordinators.groups.memory_budget import AGAIN_AFTER_MS
from squall.broker.coordinators.groups.values import GroupCoordinatorSettings, GroupState
from squall.broker.protocol.errors import ErrorCode
from tests.unit.coordinators.group_harness import REBALANCE_MS, SESSION_MS, GroupHarness

KIB = 1 << 10
LARGE = (("range", bytes(40 * KIB)),)
SMALL = GroupCoordinatorSettings(initial_delay_ms=0, max_held=100 * KIB)


def joins(harness: GroupHarness, name: str, group_id: str, **also: Any) -> ErrorCode:
    answer = harness.join(name, group_id=group_id, **also)
    assert answer is not None
    return answer.error


def test_whoever_would_need_more_than_there_is_room_for_is_refused() -> None:
    harness = GroupHarness(SMALL)
    assert [joins(harness, f"m{n}", f"g{n}", protocols=LARGE) for n in range(4)] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def test_there_is_room_again_once_members_have_gone() -> None:
    harness = GroupHarness(SMALL)
    for n in range(2):
        harness.join(f"m{n}", group_id=f"g{n}", protocols=LARGE)
    assert joins(harness, "late", "late", protocols=LARGE) == ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.wait(SESSION_MS + REBALANCE_MS)
    assert joins(harness, "later", "late", protocols=LARGE) == ErrorCode.NONE


def test_a_member_that_says_no_more_than_before_keeps_its_place() -> None:
    harness = GroupHarness(SMALL)
    first = harness.join("a", group_id="g0", protocols=LARGE)
    assert first is not None
    harness.join("b", group_id="g1", protocols=LARGE)
    assert joins(harness, "c", "g2", protocols=LARGE) == ErrorCode.GROUP_MAX_SIZE_REACHED
    again = joins(harness, "again", "g0", member_id=first.member_id, client_id="a", protocols=LARGE)
    assert again == ErrorCode.NONE
    larger = (("range", bytes(60 * KIB)),)
    refused = joins(harness, "more", "g0", member_id=first.member_id, protocols=larger)
    assert refused == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_long_names_need_room_as_well() -> None:
    harness, long = GroupHarness(SMALL), "x" * 20_000
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [joins(harness, f"m{n}", f"{long}{n}") for n in range(2)] == [ErrorCode.NONE, full]
    harness, long = GroupHarness(SMALL), "x" * 10_000
    assert [joins(harness, f"m{n}", "g", instance_id=f"{long}{n}") for n in range(2)] == [ErrorCode.NONE, full]
    # Who has gone leaves room: it is counted what is held.
    harness.wait(2 * AGAIN_AFTER_MS + SESSION_MS + REBALANCE_MS)
    assert joins(harness, "late", "g", instance_id=f"{long}late") == ErrorCode.NONE


def test_many_small_members_need_room_as_well() -> None:
    harness = GroupHarness(SMALL)
    errors = [joins(harness, f"m{n}", f"g{n}") for n in range(60)]
    assert errors.index(ErrorCode.GROUP_MAX_SIZE_REACHED) < 60
    assert errors[0] == ErrorCode.NONE


def test_assignments_need_room() -> None:
    harness = GroupHarness(SMALL)
    harness.join("a")
    refused = harness.sync("a", a=bytes(200 * KIB))
    assert refused is not None
    assert refused.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.group.state == GroupState.COMPLETING
