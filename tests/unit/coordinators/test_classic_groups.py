"""Classic groups: who is in which generation, and who is told what. Each test is a story of one group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.coordinators.groups.values import Describe, GroupWritten, Leave, Moment, Settings, State, Sync
from broker.protocol.errors import ErrorCode
from tests.unit.coordinators.group_room import REBALANCE_MS, SESSION_MS, GroupRoom, Join, subscription

# ------------------------------------------------------------------------------------------------------------- joining


def test_a_new_dynamic_member_is_given_its_id_before_it_joins() -> None:
    room = GroupRoom()
    asked = Join("g", "", None, "a", "/h", SESSION_MS, REBALANCE_MS, "consumer", (("range", b""),), "a-1")
    told = room.do("a", asked)
    assert (told.error, told.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "a-1")
    assert not room.group.members
    room.wait(SESSION_MS)
    assert room.join("a", "a-1").error == ErrorCode.UNKNOWN_MEMBER_ID  # type: ignore[union-attr]
    assert room.machine.groups == {}, "nobody has come"


def test_the_leader_gets_all_members_and_the_others_none() -> None:
    room = GroupRoom()
    room.join("a")
    assert room.joined("a").generation == 1
    assert room.join("b") is None, "a has to join again first"
    assert room.beat(room.joined("a")) == ErrorCode.REBALANCE_IN_PROGRESS
    room.join("a", room.joined("a").member_id)
    a, b = room.joined("a"), room.joined("b")
    assert (a.generation, b.generation) == (2, 2)
    assert a.leader == b.leader == a.member_id
    assert [m[0] for m in a.members] == [a.member_id, b.member_id]
    assert b.members == ()


def test_assignments_are_told_once_they_are_in_the_log() -> None:
    room = GroupRoom()
    room.commits = False
    room.join("a")
    assert room.sync("a", a=b"all") is None
    assert room.group.state == State.COMPLETING
    room.settle()
    assert room.answers["a-sync"].assignment == b"all"
    assert room.group.state == State.STABLE
    assert room.machine.ledger.groups["g"] == room.group.record()


def test_assignments_that_cannot_be_written_are_told_to_nobody() -> None:
    room = GroupRoom()
    room.join("a")
    room.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = room.sync("a", a=b"all")
    assert answer is not None
    assert (answer.error, answer.assignment) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, b"")
    assert room.group.state == State.PREPARING


def test_a_first_rebalance_waits_for_members_that_start_together() -> None:
    room = GroupRoom(Settings(initial_delay_ms=3000))
    room.join("a")
    room.wait(2000)
    room.join("b")
    room.wait(1000)
    assert "a" not in room.answers, "b came meanwhile"
    room.wait(3000)
    assert (room.joined("a").generation, room.joined("b").generation) == (1, 1)


def test_members_that_do_not_join_in_time_are_no_members_any_more() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b")
    room.join("c")
    room.join("a", a.member_id)
    for _ in range(3):
        room.wait(SESSION_MS - 1)
        assert room.beat(b) == ErrorCode.REBALANCE_IN_PROGRESS
    room.wait(REBALANCE_MS)
    assert room.joined("c").generation == a.generation + 1
    assert room.beat(b) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_protocol_that_all_know_and_most_prefer_is_chosen() -> None:
    room = GroupRoom()
    x, y = ("x", b""), ("y", b"")
    room.join("a", protocols=(x, y))
    room.join("b", protocols=(y, x))
    room.join("c", protocols=(y, x))
    room.join("a", room.joined("a").member_id, protocols=(x, y))
    assert room.joined("c").protocol == "y"
    room = GroupRoom()
    room.join("a", protocols=(x, y))
    room.join("b", protocols=(y,))
    room.join("a", room.joined("a").member_id, protocols=(x, y))
    assert room.joined("b").protocol == "y", "b does not know x"
    refused = room.join("d", protocols=(("z", b""),))
    assert refused is not None
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_join_may_bring_any_number_of_protocols() -> None:
    room = GroupRoom()
    names = [(f"p{n}", b"") for n in range(50_000)]
    room.join("a", protocols=tuple(names))
    room.join("b", protocols=tuple(reversed(names)))
    room.join("a", room.joined("a").member_id, protocols=tuple(names))
    assert room.joined("b").protocol == "p0", "each has one voice, and the first member's order decides"


def test_a_join_whose_answer_got_lost_is_answered_again_and_causes_no_rebalance() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b")
    again = room.join("b", b.member_id)
    assert again == b
    assert room.group.state == State.STABLE
    assert room.join("a", a.member_id) is None, "the leader asks for the next generation"


def test_a_member_that_subscribes_to_something_else_causes_a_rebalance() -> None:
    room = GroupRoom()
    _, b = room.stable("a", "b")
    assert room.join("b", b.member_id, protocols=(("range", subscription("u")),)) is None
    assert room.group.state == State.PREPARING


def test_a_group_that_is_full_takes_nobody() -> None:
    room = GroupRoom(Settings(initial_delay_ms=0, max_size=1))
    room.stable("a")
    refused = room.join("b")
    assert refused is not None
    assert refused.error == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    ("also", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_that_cannot_be_is_refused(also: dict[str, object], error: ErrorCode) -> None:
    answer = GroupRoom().join("a", **also)  # type: ignore[arg-type]
    assert answer is not None
    assert answer.error == error


# ---------------------------------------------------------------------------------------------------- living and going


def test_a_member_that_is_not_heard_of_for_a_session_is_gone() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b")
    for _ in range(3):
        room.wait(SESSION_MS - 1)
        assert room.beat(a) == (ErrorCode.NONE if _ == 0 else ErrorCode.REBALANCE_IN_PROGRESS)
    assert room.beat(b) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_is_gone_at_once() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b")
    assert room.leave(b).members[0][2] == ErrorCode.NONE
    assert room.beat(a) == ErrorCode.REBALANCE_IN_PROGRESS
    assert room.join("a", a.member_id).generation == a.generation + 1  # type: ignore[union-attr]


def test_the_last_member_leaves_an_empty_group_in_the_log() -> None:
    room = GroupRoom()
    (a,) = room.stable("a")
    room.leave(a)
    assert room.group.state == State.EMPTY
    assert room.machine.ledger.groups["g"].members == ()
    assert room.do("d", Describe("g")).state == State.EMPTY


def test_a_member_that_never_asks_for_its_assignment_is_gone_after_the_rebalance_time_out() -> None:
    room = GroupRoom()
    room.join("a")
    room.join("b")
    room.join("a", room.joined("a").member_id)
    a, b = room.joined("a"), room.joined("b")
    room.sync("a", a=b"all")
    for _ in range(4):
        room.wait(REBALANCE_MS // 4)
        room.beat(a)
        last = room.beat(b)
    assert last == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_goes_before_it_assigns_is_followed_by_the_next() -> None:
    room = GroupRoom()
    room.join("a")
    room.join("b")
    room.join("a", room.joined("a").member_id)
    assert room.sync("b") is None
    room.leave(room.joined("a"))
    assert room.answers["b-sync"].error == ErrorCode.REBALANCE_IN_PROGRESS
    b = room.join("b", room.joined("b").member_id)
    assert b is not None
    assert b.leader == b.member_id


def test_requests_of_another_generation_are_refused() -> None:
    room = GroupRoom()
    (a,) = room.stable("a")
    assert room.do("s", Sync("g", a.generation - 1, a.member_id)).error == ErrorCode.ILLEGAL_GENERATION
    assert room.beat(replace(a, generation=a.generation - 1)) == ErrorCode.ILLEGAL_GENERATION
    assert room.beat(a) == ErrorCode.NONE


# ------------------------------------------------------------------------------------------------------ static members


def two_static(room: GroupRoom) -> None:
    room.join("a", instance_id="A")
    room.join("b", instance_id="B")
    room.join("a", room.joined("a").member_id, "A")
    room.assign("a", "b")


def test_a_static_member_that_is_back_within_its_session_causes_no_rebalance() -> None:
    room = GroupRoom()
    two_static(room)
    before, other = room.joined("b"), room.joined("a")
    room.wait(SESSION_MS - 1)
    room.beat(other, "A")
    back = room.join("b", instance_id="B")
    assert back is not None
    assert (back.generation, back.error) == (before.generation, ErrorCode.NONE)
    assert back.member_id != before.member_id
    assert room.group.state == State.STABLE
    answer = room.sync("b")
    assert answer is not None
    assert answer.assignment == b"b"
    assert room.beat(other, "A") == ErrorCode.NONE
    assert room.machine.ledger.groups["g"] == room.group.record(), "the next coordinator knows its new id"


def test_who_has_the_id_of_before_is_fenced() -> None:
    room = GroupRoom()
    two_static(room)
    before = room.joined("b")
    room.join("b2", instance_id="B")
    assert room.beat(before, "B") == ErrorCode.FENCED_INSTANCE_ID
    fenced = room.join("b", before.member_id, "B")
    assert fenced is not None
    assert fenced.error == ErrorCode.FENCED_INSTANCE_ID
    assert room.do("s", Sync("g", before.generation, before.member_id, "B")).error == ErrorCode.FENCED_INSTANCE_ID


def test_a_second_consumer_with_the_instance_id_of_one_that_waits_fences_it() -> None:
    room = GroupRoom(Settings(initial_delay_ms=3000))
    room.join("a", instance_id="A")
    room.join("a2", instance_id="A")
    assert room.joined("a").error == ErrorCode.FENCED_INSTANCE_ID
    room.wait(6000)
    assert room.joined("a2").error == ErrorCode.NONE
    assert list(room.group.static) == ["A"]


def with_two_of_one_instance() -> GroupRoom:
    """A static member, and one that was given an id and joins with the other's instance id."""
    room = GroupRoom()
    room.join("a", instance_id="A")
    room.sync("a", a=b"a")
    asked = Join("g", "", None, "b", "/h", SESSION_MS, REBALANCE_MS, "consumer", (("range", b""),), "b-1")
    assert room.do("b", asked).error == ErrorCode.MEMBER_ID_REQUIRED
    return room


def test_an_instance_id_that_comes_with_an_id_that_was_just_given_takes_nobodys_place() -> None:
    """The clock's task ended with the second one's session, and the broker with it: then the next coordinator."""
    room = with_two_of_one_instance()
    refused = room.join("b", "b-1", "A")
    assert refused is not None
    assert refused.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert list(room.group.members) == [room.joined("a").member_id]
    room.wait(10 * REBALANCE_MS)
    assert not room.group.members


def test_a_log_with_two_members_of_one_instance_ends_no_coordinator() -> None:
    room = with_two_of_one_instance()
    [one] = room.group.record().members
    record = replace(room.group.record(), members=(one, replace(one, member_id="b-1")))
    room.log.append((GroupWritten("g", record), -1))
    room.fail_over()
    assert len(room.group.members) == 2
    room.wait(10 * REBALANCE_MS)
    assert not room.group.members


@pytest.mark.parametrize("may_skip", [True, False])
def test_a_static_leader_that_is_back_assigns_nothing(may_skip: bool) -> None:
    room = GroupRoom()
    two_static(room)
    before = room.joined("a")
    back = room.join("a", instance_id="A", may_skip=may_skip)
    assert back is not None
    assert back.skip == may_skip
    # Without KIP-814 it is told that its old id leads.
    assert (back.leader == back.member_id) == may_skip
    assert (back.leader == before.member_id) == (not may_skip)
    assert room.group.state == State.STABLE


def test_a_static_member_that_changes_its_protocols_causes_a_rebalance() -> None:
    room = GroupRoom()
    room.join("a", instance_id="A", protocols=(("x", b""), ("y", b"")))
    room.assign("a")
    back = room.join("a", instance_id="A", protocols=(("y", b""),))
    assert back is not None
    assert (back.generation, back.protocol) == (2, "y")


def test_a_static_member_stays_one_although_it_does_not_join_in_time() -> None:
    room = GroupRoom()
    room.join("a", instance_id="A", session_ms=10 * REBALANCE_MS)
    room.assign("a")
    room.join("b")
    room.wait(REBALANCE_MS)
    b = room.joined("b")
    assert b.leader == b.member_id
    assert len(b.members) == 2


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(2**31)])
def test_a_static_member_that_gives_rebalances_no_time_does_not_keep_the_clock_busy(rebalance_ms: int) -> None:
    room = GroupRoom()
    room.join("a", instance_id="A", session_ms=60_000, rebalance_ms=rebalance_ms)
    room.assign("a")
    room.join("b", rebalance_ms=rebalance_ms)
    looked = 0
    while (due := room.machine.next_deadline_ms()) is not None and looked < 1000:
        room.now = Moment(max(due, room.now.mono_ms), room.now.wall_ms)
        room.machine.tick(room.now)
        looked += 1
    assert room.group.state == State.EMPTY, "its session has ended"
    assert looked < 100


def test_an_admin_removes_a_static_member_by_its_instance_id() -> None:
    room = GroupRoom()
    two_static(room)
    left = room.do("leave", Leave("g", (("", "B"), ("", "C"))))
    assert [error for *_, error in left.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(room.group.static) == ["A"]


# ------------------------------------------------------------------------------------------------- the next coordinator


def test_the_next_coordinator_goes_on_with_the_generation_and_gives_everybody_a_session() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b")
    room.fail_over()
    room.wait(SESSION_MS - 1)
    assert room.beat(a) == ErrorCode.NONE
    answer = room.sync("b")
    assert answer is not None
    assert answer.assignment == b"b"
    room.wait(SESSION_MS - 1)
    assert room.group.generation == a.generation
    assert room.beat(b) == ErrorCode.NONE
    room.wait(1)
    assert room.beat(a) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_generation_without_assignments_in_the_log_is_forgotten_by_the_next_coordinator() -> None:
    room = GroupRoom()
    a, _ = room.stable("a", "b")
    room.join("c")
    room.join("a", a.member_id)
    room.fail_over()
    assert room.group.generation == a.generation
    c = room.join("c", "c-who")
    assert c is not None
    assert c.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_lost_coordinator_tells_everybody_who_waits() -> None:
    room = GroupRoom()
    room.join("a")
    room.join("b")
    effects = room.machine.dissolve(ErrorCode.NOT_COORDINATOR)
    assert [(e.token, e.answer.error) for e in effects] == [("b", ErrorCode.NOT_COORDINATOR)]  # type: ignore[union-attr]
