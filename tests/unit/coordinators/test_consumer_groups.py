"""Consumer groups (KIP-848): epochs, targets, reconciliation, fencing, static members, sessions, and their records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.coordinators.groups import records
from broker.coordinators.groups.consumer.facts import LEAVES, LEAVES_FOR_NOW, ConsumerBeat, MemberState
from broker.coordinators.groups.values import (
    Commit,
    Committed,
    DeleteGroup,
    DeleteOffsets,
    Describe,
    Expire,
    GroupWritten,
    Settings,
    State,
    TxnCommit,
)
from broker.protocol.errors import ErrorCode
from tests.unit.coordinators.consumer_room import (
    PATIENT,
    REBALANCE_MS,
    SESSION_MS,
    A,
    B,
    Consumer,
    ConsumerRoom,
    places,
)

OK = ErrorCode.NONE


@pytest.fixture
def room() -> ConsumerRoom:
    return ConsumerRoom()


# ---------------------------------------------------------------------------------------------------------- reconciling


def test_the_first_member_has_everything_at_once(room: ConsumerRoom) -> None:
    one = Consumer("m1")
    answer = room.enter(one)
    assert (answer.error, answer.epoch, answer.assigned) == (OK, 1, places(A, 0, 1, 2, 3))
    assert room.described().state == State.STABLE


def test_a_member_hears_of_its_partitions_only_when_they_are_news(room: ConsumerRoom) -> None:
    one = Consumer("m1")
    room.enter(one)
    assert room.alive(one).assigned is None
    everything = {"topics": ("a",), "rebalance_ms": REBALANCE_MS}
    assert room.alive(one, owned=one.owned, **everything).assigned == places(A, 0, 1, 2, 3)


def test_a_partition_goes_to_the_next_only_after_its_owner_has_given_it_up(room: ConsumerRoom) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    room.enter(one)
    assert room.enter(two).assigned == ()
    assert room.alive(one).assigned == places(A, 0, 1), "it is told to give up two, in its epoch"
    assert one.epoch == 1
    assert room.alive(two).assigned is None, "nobody has said that they are free"
    room.alive(one, owned=places(A, 0, 1, 2))
    assert one.epoch == 1
    assert room.alive(two).assigned is None, "one of them is still owned"
    room.alive(one, owned=places(A, 0, 1))
    assert one.epoch == 2
    assert room.alive(two).assigned == places(A, 2, 3)
    assert room.described().state == State.STABLE


def test_a_member_that_says_nothing_of_what_it_owns_owns_it_still(room: ConsumerRoom) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    room.together(one)
    room.enter(two)
    for _ in range(3):
        room.alive(one)
        room.alive(two)
    assert (one.epoch, two.owned) == (1, ())
    assert room.described().state == State.RECONCILING


def test_partitions_that_are_free_are_given_while_others_are_waited_for(room: ConsumerRoom) -> None:
    one, two = Consumer("m1"), Consumer("m2", topics=("a", "b"))
    room.enter(one)
    assert room.enter(two).assigned == places(B, 0, 1)
    assert room.consumers.now_of("m2").state == MemberState.UNRELEASED


def test_whoever_leaves_frees_what_it_had(room: ConsumerRoom) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    room.together(one, two)
    left = room.ask("m1", LEAVES)
    assert (left.error, left.epoch) == (OK, LEAVES)
    assert room.alive(two).assigned == places(A, 0, 1, 2, 3)
    assert (two.epoch, room.described().state) == (3, State.STABLE)


def test_three_members_share_and_no_partition_moves_without_need(room: ConsumerRoom) -> None:
    members = [Consumer(f"m{n}", topics=("a", "b")) for n in range(3)]
    room.together(*members[:2])
    before = [dict.fromkeys(one.owned) for one in members[:2]]
    room.enter(members[2])
    room.settle_down(*members)
    assert [len(one.owned) for one in members] == [2, 2, 2]
    assert all(place in had for one, had in zip(members, before, strict=False) for place in one.owned)


def test_another_subscription_is_another_epoch(room: ConsumerRoom) -> None:
    one = Consumer("m1")
    room.enter(one)
    assert room.alive(one, topics=("a",)).epoch == 1
    answer = room.alive(one, topics=("a", "b"), owned=one.owned)
    assert (answer.epoch, answer.assigned) == (2, places(A, 0, 1, 2, 3) + places(B, 0, 1))


@pytest.mark.parametrize("now", [(A, 5), None, (B, 4)], ids=["more partitions", "deleted", "made anew"])
def test_a_topic_that_changes_is_another_epoch(room: ConsumerRoom, now: tuple[bytes, int] | None) -> None:
    one = Consumer("m1")
    room.enter(one)
    del room.topics.table["a"]
    if now is not None:
        room.topics.table["a"] = now
    room.settle_down(one)
    expected = () if now is None else places(now[0], *range(now[1]))
    assert one.owned == expected
    assert room.consumers.epoch == 2


def test_a_topic_that_is_created_later_is_read_then(room: ConsumerRoom) -> None:
    one = Consumer("m1", topics=("later",))
    assert room.enter(one).assigned == ()
    room.topics.table["later"] = (bytes(16), 1)
    room.settle_down(one)
    assert one.owned == places(bytes(16), 0)


def test_a_regular_expression_reads_every_topic_that_it_matches(room: ConsumerRoom) -> None:
    one = Consumer("m1", topics=())
    assert room.enter(one, regex="a|later.*").assigned == places(A, 0, 1, 2, 3)
    room.topics.table["later-1"], room.topics.changes = (bytes(16), 1), 1
    room.settle_down(one)
    assert one.owned == (*places(bytes(16), 0), *places(A, 0, 1, 2, 3))
    [member] = room.described().members
    assert member.subscription.regex == "a|later.*"


def test_names_and_an_expression_together_are_one_subscription(room: ConsumerRoom) -> None:
    one = Consumer("m1", topics=("b",))
    room.enter(one, regex="[ab]")
    assert one.owned == places(A, 0, 1, 2, 3) + places(B, 0, 1)
    room.alive(one, regex="", owned=one.owned)
    room.settle_down(one)
    assert one.owned == places(B, 0, 1)
    assert not room.consumers.regexes


def test_an_expression_that_is_none_is_refused(room: ConsumerRoom) -> None:
    answer = room.enter(Consumer("m1", topics=()), regex="(")
    assert answer.error == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.message == "SubscribedTopicRegex `(` is not a valid regular expression: missing )."
    assert not room.log


def test_an_expression_goes_with_the_last_member_that_has_it(room: ConsumerRoom) -> None:
    room.enter(Consumer("m1", topics=()), regex="a")
    room.enter(Consumer("m2"))
    room.ask("m1", LEAVES)
    assert not room.consumers.regexes
    assert room.machine.ledger.inspect_consumers() == room.replayed().inspect_consumers()


# ------------------------------------------------------------------------------------------------------------- fencing


def test_a_heartbeat_needs_all_that_joining_takes(room: ConsumerRoom) -> None:
    join = {"rebalance_ms": REBALANCE_MS, "topics": ("a",), "owned": ()}
    for lacks in (
        {"rebalance_ms": -1},
        {"owned": None},
        {"owned": places(A, 0)},
        {"topics": None},
        {"instance_id": ""},
    ):
        assert room.ask("m1", 0, **{**join, **lacks}).error == ErrorCode.INVALID_REQUEST, lacks
    assert room.ask("", 0, **join).error == ErrorCode.INVALID_REQUEST
    assert room.ask("m1", -3).error == ErrorCode.INVALID_REQUEST
    assert room.ask("m1", LEAVES_FOR_NOW).error == ErrorCode.INVALID_REQUEST
    assert room.ask("m1", 0, **join, assignor="sticky").error == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert not room.log


def test_who_is_no_member_is_told_so(room: ConsumerRoom) -> None:
    assert room.ask("m1", 1).error == ErrorCode.GROUP_ID_NOT_FOUND
    room.enter(Consumer("m1"))
    assert room.ask("m2", 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.ask("m2", LEAVES).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_of_another_epoch_is_fenced(room: ConsumerRoom) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    room.together(one, two)
    room.ask("m2", LEAVES)
    room.turn(one)
    assert one.epoch == 3
    assert room.ask("m1", 4).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert room.ask("m1", 1).error == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_missed_its_newest_epoch_may_come_with_the_one_before(room: ConsumerRoom) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    room.together(one, two)
    room.ask("m2", LEAVES)
    before, owned = one.epoch, one.owned
    room.turn(one)
    assert room.ask("m1", before, owned=owned).epoch == one.epoch
    assert room.ask("m1", before).error == ErrorCode.FENCED_MEMBER_EPOCH, "what it owns is not known"
    assert room.ask("m1", before, owned=places(B, 0)).error == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    room = ConsumerRoom(replace(PATIENT, consumer_max_size=1))
    one = Consumer("m1")
    room.enter(one)
    assert room.enter(Consumer("m2")).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert room.enter(one).error == OK


# ------------------------------------------------------------------------------------------------------ static members


def test_a_static_member_comes_back_to_what_it_had_and_nobody_notices(room: ConsumerRoom) -> None:
    one, two = Consumer("m1", "i1"), Consumer("m2", "i2")
    room.together(one, two)
    had, epoch = one.owned, room.consumers.epoch
    assert room.ask("m1", LEAVES_FOR_NOW, instance_id="i1").epoch == LEAVES_FOR_NOW
    room.settle_down(two)
    assert len(two.owned) == 2, "what the other had is not given away"
    back = Consumer("m1-again", "i1")
    assert room.enter(back).assigned == had
    assert (room.consumers.epoch, back.epoch) == (epoch, epoch)
    assert sorted(room.consumers.members) == ["m1-again", "m2"]


def test_two_with_one_instance_id_the_second_has_to_wait(room: ConsumerRoom) -> None:
    one = Consumer("m1", "i1")
    room.together(one)
    assert room.enter(Consumer("m9", "i1")).error == ErrorCode.UNRELEASED_INSTANCE_ID
    assert room.turn(one).error == OK


def test_a_static_member_that_was_replaced_is_fenced(room: ConsumerRoom) -> None:
    room.together(Consumer("m1", "i1"))
    room.ask("m1", LEAVES_FOR_NOW, instance_id="i1")
    room.enter(Consumer("m9", "i1"))
    assert room.ask("m1", 1, instance_id="i1").error == ErrorCode.FENCED_INSTANCE_ID
    assert room.ask("m1", LEAVES_FOR_NOW, instance_id="i1").error == ErrorCode.FENCED_INSTANCE_ID
    assert room.ask("m1", 1, instance_id="i2").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_goes_with_its_session(room: ConsumerRoom) -> None:
    one, two = Consumer("m1", "i1"), Consumer("m2")
    room.together(one, two)
    room.ask("m1", LEAVES_FOR_NOW, instance_id="i1")
    room.wait(SESSION_MS - 1)
    room.turn(two)
    assert len(two.owned) == 2
    room.wait(1)
    room.settle_down(two)
    assert len(two.owned) == 4


# ------------------------------------------------------------------------------------------------------------ sessions


def test_a_member_that_is_not_heard_of_is_none_any_more(room: ConsumerRoom) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    room.together(one, two)
    room.wait(SESSION_MS - 1)
    room.turn(two)
    room.wait(1)
    assert room.turn(one).error == ErrorCode.UNKNOWN_MEMBER_ID
    room.settle_down(two)
    assert len(two.owned) == 4


def test_a_group_may_have_a_session_of_its_own() -> None:
    room = ConsumerRoom(Settings(initial_delay_ms=0, own_session_ms={"g": SESSION_MS + 5000}.get))
    one = Consumer("m1")
    room.together(one)
    room.wait(SESSION_MS + 4999)
    assert room.alive(one).error == OK
    room.wait(SESSION_MS + 5000)
    assert room.alive(one).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_what_it_should_is_none_any_more(room: ConsumerRoom) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    room.together(one)
    room.enter(two)
    room.alive(one)
    room.wait(REBALANCE_MS - 1)
    assert room.alive(one).error == OK
    room.wait(1)
    assert room.alive(one).error == ErrorCode.UNKNOWN_MEMBER_ID
    room.settle_down(two)
    assert len(two.owned) == 4


def test_an_end_that_could_not_be_written_down_is_tried_again(room: ConsumerRoom) -> None:
    room.together(Consumer("m1"))
    room.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    room.wait(SESSION_MS)
    assert room.consumers.members
    room.refuses = OK
    room.wait(1000)
    assert not room.consumers.members


def test_who_could_not_join_is_not_waited_for(room: ConsumerRoom) -> None:
    room.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    asked = {"rebalance_ms": REBALANCE_MS, "topics": ("a",), "owned": ()}
    assert room.do("beat", ConsumerBeat("g", "m1", 0, **asked)).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    room.wait(SESSION_MS)
    assert room.machine.next_deadline_ms() is None


def test_the_next_coordinator_goes_on_where_this_one_was(room: ConsumerRoom) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    room.together(one)
    room.enter(two)
    room.alive(one)
    before = room.machine.ledger.inspect_consumers()
    room.fail_over()
    assert room.machine.ledger.inspect_consumers() == before
    assert room.alive(two).assigned is None, "what was promised to be given up is not free yet"
    room.wait(REBALANCE_MS)
    room.settle_down(two)
    assert len(two.owned) == 4, "and is waited for no longer than before"


# ------------------------------------------------------------------------------------------------------------- offsets


def test_members_commit_with_their_epoch(room: ConsumerRoom) -> None:
    one = Consumer("m1")
    room.together(one)
    assert room.commit_as(one) == OK
    assert room.commit_as(one, epoch=one.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert room.commit_as(Consumer("m9", epoch=1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.commit(7) == ErrorCode.UNKNOWN_MEMBER_ID, "nobody's, while the group has members"


def test_an_older_epoch_commits_only_what_it_has_owned_since(room: ConsumerRoom) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    room.together(one, two)
    room.ask("m2", LEAVES)
    room.turn(one)
    assert room.commit_as(one, ("a", 0), epoch=1) == OK, "it has had it all the time"
    assert room.commit_as(one, ("a", 3), epoch=1) == ErrorCode.STALE_MEMBER_EPOCH, "the other had it meanwhile"
    assert room.commit_as(one, ("a", 3)) == OK
    assert room.commit_as(one, ("b", 0), epoch=1) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_client_that_knows_no_member_epochs_commits_nothing(room: ConsumerRoom) -> None:
    one = Consumer("m1")
    room.together(one)
    old = Commit("g", one.epoch, "m1", None, ((("a", 0), Committed(7)),), 8)
    assert room.do("commit", old).error == ErrorCode.UNSUPPORTED_VERSION


def test_offsets_in_transactions_are_held_to_the_epoch_too(room: ConsumerRoom) -> None:
    one = Consumer("m1")
    room.together(one)

    def within(epoch: int, member_id: str) -> ErrorCode:
        asked = TxnCommit("g", epoch, member_id, None, ((("a", 0), Committed(7)),), 5, 0)
        error: ErrorCode = room.do("txn", asked).error
        return error

    assert within(one.epoch, "m1") == OK
    assert within(one.epoch + 1, "m1") == ErrorCode.ILLEGAL_GENERATION
    assert within(-1, "") == OK


def test_offsets_are_told_to_members_of_this_epoch_and_to_anybody_without_one(room: ConsumerRoom) -> None:
    one = Consumer("m1")
    room.together(one)
    room.commit_as(one)
    assert room.offset(("a", 0)) == 7
    assert room.fetch_as("m1", one.epoch) == OK
    assert room.fetch_as("m1", one.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert room.fetch_as("m9", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_are_neither_deleted_nor_forgotten(room: ConsumerRoom) -> None:
    one = Consumer("m1")
    room.together(one)
    room.commit_as(one)
    found = room.do("delete", DeleteOffsets("g", (("a", 0),)))
    assert found.errors == ((("a", 0), ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),)
    room._at(room.now.mono_ms + 2 * PATIENT.retention_ms)
    room.do("expire", Expire("g"))
    assert room.offset(("a", 0)) == 7


def test_a_group_without_members_goes_with_its_last_offset(room: ConsumerRoom) -> None:
    one = Consumer("m1")
    room.together(one)
    room.commit_as(one)
    room.ask("m1", LEAVES)
    assert room.described().state == State.EMPTY
    room._at(room.now.mono_ms + PATIENT.retention_ms)
    room.do("expire", Expire("g"))
    assert room.machine.listed() == []
    assert room.replayed().inspect_consumers() == {}


# ------------------------------------------------------------------------------------------------- two kinds of groups


def test_only_a_group_without_members_is_deleted(room: ConsumerRoom) -> None:
    room.together(Consumer("m1"))
    assert room.do("delete", DeleteGroup("g")).error == ErrorCode.NON_EMPTY_GROUP
    room.ask("m1", LEAVES)
    assert room.do("delete", DeleteGroup("g")).error == OK
    assert room.described().error == ErrorCode.GROUP_ID_NOT_FOUND
    assert room.machine.ledger.inspect_consumers() == room.replayed().inspect_consumers() == {}


def test_each_kind_is_listed_and_described_as_what_it_is(room: ConsumerRoom) -> None:
    room.together(Consumer("m1"))
    [listed] = room.machine.listed()
    assert listed == ("g", "consumer", State.STABLE, "consumer")
    other = room.do("describe", Describe("g"))
    assert (other.error, other.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    described = room.described()
    assert (described.epoch, described.target_epoch, described.assignor) == (1, 1, "uniform")
    [member] = described.members
    assert (member.member_id, tuple(member.current.assigned)) == ("m1", member.target)


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(room: ConsumerRoom) -> None:
    told = room.join("old")
    assert told is not None
    room.assign("old")
    assert room.enter(Consumer("m1")).error == ErrorCode.GROUP_ID_NOT_FOUND, "nobody can read what its member owns"
    room.commit(7, told, ("a", 0))
    room.leave(told)
    one = Consumer("m1")
    room.together(one)
    assert room.offset(("a", 0)) == 7
    assert "g" not in room.machine.ledger.groups
    assert [group.group_type for group in room.machine.listed()] == ["consumer"]


def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets(room: ConsumerRoom) -> None:
    one = Consumer("m1")
    room.together(one)
    room.commit_as(one)
    room.ask("m1", LEAVES)
    joined = room.join("new")
    assert joined is not None
    assert joined.error == OK
    assert room.offset(("a", 0)) == 7
    assert room.machine.ledger.inspect_consumers() == room.replayed().inspect_consumers() == {}


def test_what_a_group_is_stands_in_records_that_can_be_read_back(room: ConsumerRoom) -> None:
    room.together(Consumer("m1", "i1"), Consumer("m2"))
    room.enter(Consumer("m3", topics=()), regex="b")
    for member_id in ("m2", "m3"):
        room.ask(member_id, LEAVES)
    for written, _ in room.log:
        assert not isinstance(written, GroupWritten)
        assert records.decode(*records.encode(written)) == written
