"""What members of classic groups have sent is held up to a limit, whatever groups they name."""

from __future__ import annotations

from broker.coordinators.groups.values import Settings, State
from broker.protocol.errors import ErrorCode
from tests.unit.coordinators.group_room import SESSION_MS, GroupRoom

KIB = 1 << 10
LARGE = (("range", bytes(40 * KIB)),)
SMALL = Settings(initial_delay_ms=0, max_held=100 * KIB)


def test_whoever_would_need_more_than_there_is_room_for_is_refused() -> None:
    room = GroupRoom(SMALL)
    assert [room.join(f"m{n}", group_id=f"g{n}", protocols=LARGE).error for n in range(4)] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def test_there_is_room_again_once_members_have_gone() -> None:
    room = GroupRoom(SMALL)
    for n in range(2):
        room.join(f"m{n}", group_id=f"g{n}", protocols=LARGE)
    assert room.join("late", group_id="late", protocols=LARGE).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    room.pass_time(SESSION_MS + 1)
    assert room.join("later", group_id="late", protocols=LARGE).error == ErrorCode.NONE


def test_a_member_that_says_no_more_than_before_keeps_its_place() -> None:
    room = GroupRoom(SMALL)
    first = room.join("a", group_id="g0", protocols=LARGE)
    room.join("b", group_id="g1", protocols=LARGE)
    assert room.join("c", group_id="g2", protocols=LARGE).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    again = room.join("again", first.member_id, group_id="g0", protocols=LARGE)
    assert again.error == ErrorCode.NONE
    more = room.join("more", first.member_id, group_id="g0", protocols=(("range", bytes(60 * KIB)),))
    assert more.error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_many_small_members_need_room_as_well() -> None:
    room = GroupRoom(SMALL)
    errors = [room.join(f"m{n}", group_id=f"g{n}").error for n in range(60)]
    assert errors.index(ErrorCode.GROUP_MAX_SIZE_REACHED) < 60
    assert errors[0] == ErrorCode.NONE


def test_assignments_need_room() -> None:
    room = GroupRoom(SMALL)
    joined = room.join("a", group_id="g0")
    refused = room.sync("s", joined.member_id, joined.generation, {joined.member_id: bytes(200 * KIB)}, group_id="g0")
    assert refused.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert room.machine.groups["g0"].state == State.COMPLETING
