"""Classic groups: which members are in which generation, and what each is answered. A test is a story of a group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from squall.broker.coordinators.groups.values import (
    ClockReading,
    DescribeGroup,
    GroupCoordinatorSettings,
    GroupMetadataRecord,
    GroupState,
    LeaveGroup,
    SyncGroup,
)
from squall.broker.protocol.errors import ErrorCode
from tests.unit.coordinators.group_harness import REBALANCE_MS, SESSION_MS, GroupHarness, JoinGroup, subscription

# ------------------------------------------------------------------------------------------------------------- joining


def test_a_new_dynamic_member_is_given_its_id_before_it_joins() -> None:
    harness = GroupHarness()
    asked = JoinGroup("g", "", None, "a", "/h", SESSION_MS, REBALANCE_MS, "consumer", (("range", b""),), "a-1")
    told = harness.do("a", asked)
    assert (told.error, told.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "a-1")
    assert not harness.group.members
    harness.wait(SESSION_MS)
    assert harness.join("a", "a-1").error == ErrorCode.UNKNOWN_MEMBER_ID  # type: ignore[union-attr]
    assert harness.machine.groups == {}, "nobody has come"


def test_the_leader_gets_all_members_and_the_others_none() -> None:
    harness = GroupHarness()
    harness.join("a")
    assert harness.joined("a").generation == 1
    assert harness.join("b") is None, "a has to join again first"
    assert harness.beat(harness.joined("a")) == ErrorCode.REBALANCE_IN_PROGRESS
    harness.join("a", harness.joined("a").member_id)
    a, b = harness.joined("a"), harness.joined("b")
    assert (a.generation, b.generation) == (2, 2)
    assert a.leader == b.leader == a.member_id
    assert [m[0] for m in a.members] == [a.member_id, b.member_id]
    assert b.members == ()


def test_assignments_are_told_once_they_are_in_the_log() -> None:
    harness = GroupHarness()
    harness.commits = False
    harness.join("a")
    assert harness.sync("a", a=b"all") is None
    assert harness.group.state == GroupState.COMPLETING
    harness.settle()
    assert harness.answers["a-sync"].assignment == b"all"
    assert harness.group.state == GroupState.STABLE
    assert harness.machine.ledger.groups["g"] == harness.group.record()


def test_assignments_that_cannot_be_written_are_told_to_nobody() -> None:
    harness = GroupHarness()
    harness.join("a")
    harness.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = harness.sync("a", a=b"all")
    assert answer is not None
    assert (answer.error, answer.assignment) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, b"")
    assert harness.group.state == GroupState.PREPARING


def test_a_first_rebalance_waits_for_members_that_start_together() -> None:
    harness = GroupHarness(GroupCoordinatorSettings(initial_delay_ms=3000))
    harness.join("a")
    harness.wait(2000)
    harness.join("b")
    harness.wait(1000)
    assert "a" not in harness.answers, "b came meanwhile"
    harness.wait(3000)
    assert (harness.joined("a").generation, harness.joined("b").generation) == (1, 1)


def test_members_that_do_not_join_in_time_are_no_members_any_more() -> None:
    harness = GroupHarness()
    a, b = harness.stable("a", "b")
    harness.join("c")
    harness.join("a", a.member_id)
    for _ in range(3):
        harness.wait(SESSION_MS - 1)
        assert harness.beat(b) == ErrorCode.REBALANCE_IN_PROGRESS
    harness.wait(REBALANCE_MS)
    assert harness.joined("c").generation == a.generation + 1
    assert harness.beat(b) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_protocol_that_all_know_and_most_prefer_is_chosen() -> None:
    harness = GroupHarness()
    x, y = ("x", b""), ("y", b"")
    harness.join("a", protocols=(x, y))
    harness.join("b", protocols=(y, x))
    harness.join("c", protocols=(y, x))
    harness.join("a", harness.joined("a").member_id, protocols=(x, y))
    assert harness.joined("c").protocol == "y"
    harness = GroupHarness()
    harness.join("a", protocols=(x, y))
    harness.join("b", protocols=(y,))
    harness.join("a", harness.joined("a").member_id, protocols=(x, y))
    assert harness.joined("b").protocol == "y", "b does not know x"
    refused = harness.join("d", protocols=(("z", b""),))
    assert refused is not None
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_join_may_bring_any_number_of_protocols() -> None:
    harness = GroupHarness()
    names = [(f"p{n}", b"") for n in range(10_000)]
    harness.join("a", protocols=tuple(names))
    harness.join("b", protocols=tuple(reversed(names)))
    harness.join("a", harness.joined("a").member_id, protocols=tuple(names))
    assert harness.joined("b").protocol == "p0", "each has one voice, and the first member's order decides"


def test_a_join_whose_answer_got_lost_is_answered_again_and_causes_no_rebalance() -> None:
    harness = GroupHarness()
    a, b = harness.stable("a", "b")
    again = harness.join("b", b.member_id)
    assert again == b
    assert harness.group.state == GroupState.STABLE
    assert harness.join("a", a.member_id) is None, "the leader asks for the next generation"


def test_a_member_that_subscribes_to_something_else_causes_a_rebalance() -> None:
    harness = GroupHarness()
    _, b = harness.stable("a", "b")
    assert harness.join("b", b.member_id, protocols=(("range", subscription("u")),)) is None
    assert harness.group.state == GroupState.PREPARING


def test_a_group_that_is_full_takes_nobody() -> None:
    harness = GroupHarness(GroupCoordinatorSettings(initial_delay_ms=0, max_size=1))
    harness.stable("a")
    refused = harness.join("b")
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
    answer = GroupHarness().join("a", **also)  # type: ignore[arg-type]
    assert answer is not None
    assert answer.error == error
    assert getattr(answer, "member_id", "") == also.get("member_id", ""), "as with Kafka, it names who was refused"


# ---------------------------------------------------------------------------------------------------- living and going


def test_a_member_that_is_not_heard_of_for_a_session_is_gone() -> None:
    harness = GroupHarness()
    a, b = harness.stable("a", "b")
    for _ in range(3):
        harness.wait(SESSION_MS - 1)
        assert harness.beat(a) == (ErrorCode.NONE if _ == 0 else ErrorCode.REBALANCE_IN_PROGRESS)
    assert harness.beat(b) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_is_gone_at_once() -> None:
    harness = GroupHarness()
    a, b = harness.stable("a", "b")
    assert harness.leave(b).members[0][2] == ErrorCode.NONE
    assert harness.beat(a) == ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.join("a", a.member_id).generation == a.generation + 1  # type: ignore[union-attr]


def test_the_last_member_leaves_an_empty_group_in_the_log() -> None:
    harness = GroupHarness()
    (a,) = harness.stable("a")
    harness.leave(a)
    assert harness.group.state == GroupState.EMPTY
    assert harness.machine.ledger.groups["g"].members == ()
    assert harness.do("d", DescribeGroup("g")).state == GroupState.EMPTY


def test_a_member_that_never_asks_for_its_assignment_is_gone_after_the_rebalance_time_out() -> None:
    harness = GroupHarness()
    harness.join("a")
    harness.join("b")
    harness.join("a", harness.joined("a").member_id)
    a, b = harness.joined("a"), harness.joined("b")
    harness.sync("a", a=b"all")
    for _ in range(4):
        harness.wait(REBALANCE_MS // 4)
        harness.beat(a)
        last = harness.beat(b)
    assert last == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_goes_before_it_assigns_is_followed_by_the_next() -> None:
    harness = GroupHarness()
    harness.join("a")
    harness.join("b")
    harness.join("a", harness.joined("a").member_id)
    assert harness.sync("b") is None
    harness.leave(harness.joined("a"))
    assert harness.answers["b-sync"].error == ErrorCode.REBALANCE_IN_PROGRESS
    b = harness.join("b", harness.joined("b").member_id)
    assert b is not None
    assert b.leader == b.member_id


def test_requests_of_another_generation_are_refused() -> None:
    harness = GroupHarness()
    (a,) = harness.stable("a")
    assert harness.do("s", SyncGroup("g", a.generation - 1, a.member_id)).error == ErrorCode.ILLEGAL_GENERATION
    assert harness.beat(replace(a, generation=a.generation - 1)) == ErrorCode.ILLEGAL_GENERATION
    assert harness.beat(a) == ErrorCode.NONE


# ------------------------------------------------------------------------------------------------------ static members


def two_static(harness: GroupHarness) -> None:
    harness.join("a", instance_id="A")
    harness.join("b", instance_id="B")
    harness.join("a", harness.joined("a").member_id, "A")
    harness.assign("a", "b")


def test_a_static_member_that_is_back_within_its_session_causes_no_rebalance() -> None:
    harness = GroupHarness()
    two_static(harness)
    before, other = harness.joined("b"), harness.joined("a")
    harness.wait(SESSION_MS - 1)
    harness.beat(other, "A")
    back = harness.join("b", instance_id="B")
    assert back is not None
    assert (back.generation, back.error) == (before.generation, ErrorCode.NONE)
    assert back.member_id != before.member_id
    assert harness.group.state == GroupState.STABLE
    answer = harness.sync("b")
    assert answer is not None
    assert answer.assignment == b"b"
    assert harness.beat(other, "A") == ErrorCode.NONE
    assert harness.machine.ledger.groups["g"] == harness.group.record(), "the next coordinator knows its new id"


def test_who_has_the_id_of_before_is_fenced() -> None:
    harness = GroupHarness()
    two_static(harness)
    before = harness.joined("b")
    harness.join("b2", instance_id="B")
    assert harness.beat(before, "B") == ErrorCode.FENCED_INSTANCE_ID
    fenced = harness.join("b", before.member_id, "B")
    assert fenced is not None
    assert fenced.error == ErrorCode.FENCED_INSTANCE_ID
    assert (
        harness.do("s", SyncGroup("g", before.generation, before.member_id, "B")).error == ErrorCode.FENCED_INSTANCE_ID
    )


def test_a_second_consumer_with_the_instance_id_of_one_that_waits_fences_it() -> None:
    harness = GroupHarness(GroupCoordinatorSettings(initial_delay_ms=3000))
    harness.join("a", instance_id="A")
    harness.join("a2", instance_id="A")
    assert harness.joined("a").error == ErrorCode.FENCED_INSTANCE_ID
    harness.wait(6000)
    assert harness.joined("a2").error == ErrorCode.NONE
    assert list(harness.group.static) == ["A"]


def with_two_of_one_instance() -> GroupHarness:
    """A static member, and one that was given an id and joins with the other's instance id."""
    harness = GroupHarness()
    harness.join("a", instance_id="A")
    harness.sync("a", a=b"a")
    asked = JoinGroup("g", "", None, "b", "/h", SESSION_MS, REBALANCE_MS, "consumer", (("range", b""),), "b-1")
    assert harness.do("b", asked).error == ErrorCode.MEMBER_ID_REQUIRED
    return harness


def test_an_instance_id_that_comes_with_an_id_that_was_just_given_takes_nobodys_place() -> None:
    """The clock's task ended with the second one's session, and the broker with it: then the next coordinator."""
    harness = with_two_of_one_instance()
    refused = harness.join("b", "b-1", "A")
    assert refused is not None
    assert (refused.error, refused.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert list(harness.group.members) == [harness.joined("a").member_id]
    harness.wait(10 * REBALANCE_MS)
    assert not harness.group.members


def test_a_log_with_two_members_of_one_instance_ends_no_coordinator() -> None:
    harness = with_two_of_one_instance()
    [one] = harness.group.record().members
    record = replace(harness.group.record(), members=(one, replace(one, member_id="b-1")))
    harness.log.append((GroupMetadataRecord("g", record), -1))
    harness.fail_over()
    assert len(harness.group.members) == 2
    harness.wait(10 * REBALANCE_MS)
    assert not harness.group.members


@pytest.mark.parametrize("may_skip", [True, False])
def test_a_static_leader_that_is_back_assigns_nothing(may_skip: bool) -> None:
    harness = GroupHarness()
    two_static(harness)
    before = harness.joined("a")
    back = harness.join("a", instance_id="A", may_skip=may_skip)
    assert back is not None
    assert back.skip == may_skip
    # Without KIP-814 it learns that its old id leads.
    assert (back.leader == back.member_id) == may_skip
    assert (back.leader == before.member_id) == (not may_skip)
    assert harness.group.state == GroupState.STABLE


def test_a_static_member_that_changes_its_protocols_causes_a_rebalance() -> None:
    harness = GroupHarness()
    harness.join("a", instance_id="A", protocols=(("x", b""), ("y", b"")))
    harness.assign("a")
    back = harness.join("a", instance_id="A", protocols=(("y", b""),))
    assert back is not None
    assert (back.generation, back.protocol) == (2, "y")


def test_a_static_member_stays_one_although_it_does_not_join_in_time() -> None:
    harness = GroupHarness()
    harness.join("a", instance_id="A", session_ms=10 * REBALANCE_MS)
    harness.assign("a")
    harness.join("b")
    harness.wait(REBALANCE_MS)
    b = harness.joined("b")
    assert b.leader == b.member_id
    assert len(b.members) == 2


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(2**31)])
def test_a_static_member_that_gives_rebalances_no_time_does_not_keep_the_clock_busy(rebalance_ms: int) -> None:
    harness = GroupHarness()
    harness.join("a", instance_id="A", session_ms=60_000, rebalance_ms=rebalance_ms)
    harness.assign("a")
    harness.join("b", rebalance_ms=rebalance_ms)
    looked = 0
    while (due := harness.machine.next_deadline_ms()) is not None and looked < 1000:
        harness.now = ClockReading(max(due, harness.now.mono_ms), harness.now.wall_ms)
        harness.machine.tick(harness.now)
        looked += 1
    assert harness.group.state == GroupState.EMPTY, "its session has ended"
    assert looked < 100


def test_an_admin_removes_a_static_member_by_its_instance_id() -> None:
    harness = GroupHarness()
    two_static(harness)
    left = harness.do("leave", LeaveGroup("g", (("", "B"), ("", "C"))))
    assert [error for *_, error in left.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(harness.group.static) == ["A"]


# ------------------------------------------------------------------------------------------------- the next coordinator


def test_the_next_coordinator_goes_on_with_the_generation_and_gives_everybody_a_session() -> None:
    harness = GroupHarness()
    a, b = harness.stable("a", "b")
    harness.fail_over()
    harness.wait(SESSION_MS - 1)
    assert harness.beat(a) == ErrorCode.NONE
    answer = harness.sync("b")
    assert answer is not None
    assert answer.assignment == b"b"
    harness.wait(SESSION_MS - 1)
    assert harness.group.generation == a.generation
    assert harness.beat(b) == ErrorCode.NONE
    harness.wait(1)
    assert harness.beat(a) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_generation_without_assignments_in_the_log_is_forgotten_by_the_next_coordinator() -> None:
    harness = GroupHarness()
    a, _ = harness.stable("a", "b")
    harness.join("c")
    harness.join("a", a.member_id)
    harness.fail_over()
    assert harness.group.generation == a.generation
    c = harness.join("c", "c-who")
    assert c is not None
    assert c.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_lost_coordinator_tells_everybody_who_waits() -> None:
    harness = GroupHarness()
    harness.join("a")
    harness.join("b")
    effects = harness.machine.fail_waiting_requests(ErrorCode.NOT_COORDINATOR)
    assert [(e.token, e.answer.error) for e in effects] == [("b", ErrorCode.NOT_COORDINATOR)]  # type: ignore[union-attr]
