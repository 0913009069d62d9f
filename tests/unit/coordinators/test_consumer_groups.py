"""Consumer groups (KIP-848): epochs, targets, reconciliation, fencing, static members, sessions, and their records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from squall.broker.coordinators.groups import records
from squall.broker.coordinators.groups.consumer.members import LEAVES, LEAVES_FOR_NOW, ConsumerHeartbeat, MemberState
from squall.broker.coordinators.groups.values import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    ExpireOffsets,
    GroupCoordinatorSettings,
    GroupMetadataRecord,
    GroupState,
    OffsetAndMetadata,
    TxnOffsetCommit,
)
from squall.broker.protocol.errors import ErrorCode
from tests.unit.coordinators.consumer_harness import (
    PATIENT,
    REBALANCE_MS,
    SESSION_MS,
    A,
    B,
    Consumer,
    ConsumerHarness,
    places,
)

OK = ErrorCode.NONE


@pytest.fixture
def harness() -> ConsumerHarness:
    return ConsumerHarness()


# ---------------------------------------------------------------------------------------------------------- reconciling


def test_the_first_member_has_everything_at_once(harness: ConsumerHarness) -> None:
    one = Consumer("m1")
    answer = harness.enter(one)
    assert (answer.error, answer.epoch, answer.assigned) == (OK, 2, places(A, 0, 1, 2, 3))
    assert harness.described().state == GroupState.STABLE


def test_a_member_hears_of_its_partitions_only_when_they_are_news(harness: ConsumerHarness) -> None:
    one = Consumer("m1")
    harness.enter(one)
    assert harness.alive(one).assigned is None
    everything = {"topics": ("a",), "rebalance_ms": REBALANCE_MS}
    assert harness.alive(one, owned=one.owned, **everything).assigned == places(A, 0, 1, 2, 3)


def test_a_partition_goes_to_the_next_only_after_its_owner_has_given_it_up(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    harness.enter(one)
    assert harness.enter(two).assigned == ()
    assert harness.alive(one).assigned == places(A, 0, 1), "it is told to give up two, in its epoch"
    assert one.epoch == 2
    assert harness.alive(two).assigned is None, "nobody has said that they are free"
    harness.alive(one, owned=places(A, 0, 1, 2))
    assert one.epoch == 2
    assert harness.alive(two).assigned is None, "one of them is still owned"
    harness.alive(one, owned=places(A, 0, 1))
    assert one.epoch == 3
    assert harness.alive(two).assigned == places(A, 2, 3)
    assert harness.described().state == GroupState.STABLE


def test_a_member_that_says_nothing_of_what_it_owns_owns_it_still(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    harness.together(one)
    harness.enter(two)
    for _ in range(3):
        harness.alive(one)
        harness.alive(two)
    assert (one.epoch, two.owned) == (2, ())
    assert harness.described().state == GroupState.RECONCILING


def test_partitions_that_are_free_are_given_while_others_are_waited_for(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1"), Consumer("m2", topics=("a", "b"))
    harness.enter(one)
    assert harness.enter(two).assigned == places(B, 0, 1)
    assert harness.consumers.now_of("m2").state == MemberState.UNRELEASED


def test_whoever_leaves_frees_what_it_had(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    harness.together(one, two)
    left = harness.ask("m1", LEAVES)
    assert (left.error, left.epoch) == (OK, LEAVES)
    assert harness.alive(two).assigned == places(A, 0, 1, 2, 3)
    assert (two.epoch, harness.described().state) == (4, GroupState.STABLE)


def test_three_members_share_and_no_partition_moves_without_need(harness: ConsumerHarness) -> None:
    members = [Consumer(f"m{n}", topics=("a", "b")) for n in range(3)]
    harness.together(*members[:2])
    before = [dict.fromkeys(one.owned) for one in members[:2]]
    harness.enter(members[2])
    harness.settle_down(*members)
    assert [len(one.owned) for one in members] == [2, 2, 2]
    assert all(place in had for one, had in zip(members, before, strict=False) for place in one.owned)


def test_another_subscription_is_another_epoch(harness: ConsumerHarness) -> None:
    one = Consumer("m1")
    harness.enter(one)
    assert harness.alive(one, topics=("a",)).epoch == 2
    answer = harness.alive(one, topics=("a", "b"), owned=one.owned)
    assert (answer.epoch, answer.assigned) == (3, places(A, 0, 1, 2, 3) + places(B, 0, 1))


@pytest.mark.parametrize("now", [(A, 5), None, (B, 4)], ids=["more partitions", "deleted", "made anew"])
def test_a_topic_that_changes_is_another_epoch(harness: ConsumerHarness, now: tuple[bytes, int] | None) -> None:
    one = Consumer("m1")
    harness.enter(one)
    del harness.topics.table["a"]
    if now is not None:
        harness.topics.table["a"] = now
    harness.settle_down(one)
    expected = () if now is None else places(now[0], *range(now[1]))
    assert one.owned == expected
    assert harness.consumers.epoch == 3


def test_a_topic_that_is_created_later_is_read_then(harness: ConsumerHarness) -> None:
    one = Consumer("m1", topics=("later",))
    assert harness.enter(one).assigned == ()
    harness.topics.table["later"] = (bytes(16), 1)
    harness.settle_down(one)
    assert one.owned == places(bytes(16), 0)


def test_a_regular_expression_reads_every_topic_that_it_matches(harness: ConsumerHarness) -> None:
    one = Consumer("m1", topics=())
    assert harness.enter(one, regex="a|later.*").assigned == places(A, 0, 1, 2, 3)
    harness.topics.table["later-1"], harness.topics.changes = (bytes(16), 1), 1
    harness.settle_down(one)
    assert one.owned == (*places(bytes(16), 0), *places(A, 0, 1, 2, 3))
    [member] = harness.described().members
    assert member.subscription.regex == "a|later.*"


def test_names_and_an_expression_together_are_one_subscription(harness: ConsumerHarness) -> None:
    one = Consumer("m1", topics=("b",))
    harness.enter(one, regex="[ab]")
    assert one.owned == places(A, 0, 1, 2, 3) + places(B, 0, 1)
    harness.alive(one, regex="", owned=one.owned)
    harness.settle_down(one)
    assert one.owned == places(B, 0, 1)
    assert not harness.consumers.regexes


def test_an_expression_that_is_none_is_refused(harness: ConsumerHarness) -> None:
    answer = harness.enter(Consumer("m1", topics=()), regex="(")
    assert answer.error == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.message == "SubscribedTopicRegex `(` is not a valid regular expression: missing ): (."
    assert not harness.log


def test_an_expression_goes_with_the_last_member_that_has_it(harness: ConsumerHarness) -> None:
    harness.enter(Consumer("m1", topics=()), regex="a")
    harness.enter(Consumer("m2"))
    harness.ask("m1", LEAVES)
    assert not harness.consumers.regexes
    assert harness.machine.ledger.inspect_consumers() == harness.replayed().inspect_consumers()


# ------------------------------------------------------------------------------------------------------------- fencing


def test_a_heartbeat_needs_all_that_joining_takes(harness: ConsumerHarness) -> None:
    join = {"rebalance_ms": REBALANCE_MS, "topics": ("a",), "owned": ()}
    for lacks in (
        {"rebalance_ms": -1},
        {"owned": None},
        {"owned": places(A, 0)},
        {"topics": None},
        {"instance_id": ""},
        {"rack_id": ""},
    ):
        assert harness.ask("m1", 0, **{**join, **lacks}).error == ErrorCode.INVALID_REQUEST, lacks
    assert harness.ask("", 0, **join).error == ErrorCode.INVALID_REQUEST
    assert harness.ask("m1", -3).error == ErrorCode.INVALID_REQUEST
    assert harness.ask("m1", LEAVES_FOR_NOW).error == ErrorCode.INVALID_REQUEST
    assert harness.ask("m1", 0, **join, assignor="sticky").error == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert not harness.log


def test_who_is_no_member_is_told_so(harness: ConsumerHarness) -> None:
    assert harness.ask("m1", 1).error == ErrorCode.GROUP_ID_NOT_FOUND
    harness.enter(Consumer("m1"))
    assert harness.ask("m2", 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.ask("m2", LEAVES).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_of_another_epoch_is_fenced(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    harness.together(one, two)
    harness.ask("m2", LEAVES)
    harness.turn(one)
    assert one.epoch == 4
    assert harness.ask("m1", 5).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert harness.ask("m1", 1).error == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_missed_its_newest_epoch_may_come_with_the_one_before(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    harness.together(one, two)
    harness.ask("m2", LEAVES)
    before, owned = one.epoch, one.owned
    harness.turn(one)
    assert harness.ask("m1", before, owned=owned).epoch == one.epoch
    assert harness.ask("m1", before).error == ErrorCode.FENCED_MEMBER_EPOCH, "what it owns is not known"
    assert harness.ask("m1", before, owned=places(B, 0)).error == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    harness = ConsumerHarness(replace(PATIENT, consumer_max_size=1))
    one = Consumer("m1")
    harness.enter(one)
    assert harness.enter(Consumer("m2")).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.enter(one).error == OK


# ------------------------------------------------------------------------------------------------------ static members


def test_a_static_member_comes_back_to_what_it_had_and_nobody_notices(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1", "i1"), Consumer("m2", "i2")
    harness.together(one, two)
    had, epoch = one.owned, harness.consumers.epoch
    assert harness.ask("m1", LEAVES_FOR_NOW, instance_id="i1").epoch == LEAVES_FOR_NOW
    harness.settle_down(two)
    assert len(two.owned) == 2, "what the other had is not given away"
    back = Consumer("m1-again", "i1")
    assert harness.enter(back).assigned == had
    assert (harness.consumers.epoch, back.epoch) == (epoch, epoch)
    assert sorted(harness.consumers.members) == ["m1-again", "m2"]


def test_two_with_one_instance_id_the_second_has_to_wait(harness: ConsumerHarness) -> None:
    one = Consumer("m1", "i1")
    harness.together(one)
    assert harness.enter(Consumer("m9", "i1")).error == ErrorCode.UNRELEASED_INSTANCE_ID
    assert harness.turn(one).error == OK


def test_a_static_member_that_was_replaced_is_fenced(harness: ConsumerHarness) -> None:
    harness.together(Consumer("m1", "i1"))
    harness.ask("m1", LEAVES_FOR_NOW, instance_id="i1")
    harness.enter(Consumer("m9", "i1"))
    assert harness.ask("m1", 1, instance_id="i1").error == ErrorCode.FENCED_INSTANCE_ID
    assert harness.ask("m1", LEAVES_FOR_NOW, instance_id="i1").error == ErrorCode.FENCED_INSTANCE_ID
    assert harness.ask("m1", 1, instance_id="i2").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_goes_with_its_session(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1", "i1"), Consumer("m2")
    harness.together(one, two)
    harness.ask("m1", LEAVES_FOR_NOW, instance_id="i1")
    harness.wait(SESSION_MS - 1)
    harness.turn(two)
    assert len(two.owned) == 2
    harness.wait(1)
    harness.settle_down(two)
    assert len(two.owned) == 4


# ------------------------------------------------------------------------------------------------------------ sessions


def test_a_member_that_is_not_heard_of_is_none_any_more(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    harness.together(one, two)
    harness.wait(SESSION_MS - 1)
    harness.turn(two)
    harness.wait(1)
    assert harness.turn(one).error == ErrorCode.UNKNOWN_MEMBER_ID
    harness.settle_down(two)
    assert len(two.owned) == 4


def test_a_group_may_have_a_session_of_its_own() -> None:
    harness = ConsumerHarness(GroupCoordinatorSettings(initial_delay_ms=0, own_session_ms={"g": SESSION_MS + 5000}.get))
    one = Consumer("m1")
    harness.together(one)
    harness.wait(SESSION_MS + 4999)
    assert harness.alive(one).error == OK
    harness.wait(SESSION_MS + 5000)
    assert harness.alive(one).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_what_it_should_is_none_any_more(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    harness.together(one)
    harness.enter(two)
    harness.alive(one)
    harness.wait(REBALANCE_MS - 1)
    assert harness.alive(one).error == OK
    harness.wait(1)
    assert harness.alive(one).error == ErrorCode.UNKNOWN_MEMBER_ID
    harness.settle_down(two)
    assert len(two.owned) == 4


def test_an_end_that_could_not_be_written_down_is_tried_again(harness: ConsumerHarness) -> None:
    harness.together(Consumer("m1"))
    harness.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.wait(SESSION_MS)
    assert harness.consumers.members
    harness.refuses = OK
    harness.wait(1000)
    assert not harness.consumers.members


def test_who_could_not_join_is_not_waited_for(harness: ConsumerHarness) -> None:
    harness.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    asked = {"rebalance_ms": REBALANCE_MS, "topics": ("a",), "owned": ()}
    assert harness.do("beat", ConsumerHeartbeat("g", "m1", 0, **asked)).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.wait(SESSION_MS)
    assert harness.machine.next_deadline_ms() is None


def test_the_next_coordinator_goes_on_where_this_one_was(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    harness.together(one)
    harness.enter(two)
    harness.alive(one)
    before = harness.machine.ledger.inspect_consumers()
    harness.fail_over()
    assert harness.machine.ledger.inspect_consumers() == before
    assert harness.alive(two).assigned is None, "what was promised to be given up is not free yet"
    harness.wait(REBALANCE_MS)
    harness.settle_down(two)
    assert len(two.owned) == 4, "and is waited for no longer than before"


# ------------------------------------------------------------------------------------------------------------- offsets


def test_members_commit_with_their_epoch(harness: ConsumerHarness) -> None:
    one = Consumer("m1")
    harness.together(one)
    assert harness.commit_as(one) == OK
    assert harness.commit_as(one, epoch=one.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert harness.commit_as(Consumer("m9", epoch=1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.commit(7) == ErrorCode.UNKNOWN_MEMBER_ID, "nobody's, while the group has members"


def test_an_older_epoch_commits_only_what_it_has_owned_since(harness: ConsumerHarness) -> None:
    one, two = Consumer("m1"), Consumer("m2")
    harness.together(one, two)
    harness.ask("m2", LEAVES)
    harness.turn(one)
    assert harness.commit_as(one, ("a", 0), epoch=2) == OK, "it has had it all the time"
    assert harness.commit_as(one, ("a", 3), epoch=2) == ErrorCode.STALE_MEMBER_EPOCH, "the other had it meanwhile"
    assert harness.commit_as(one, ("a", 3)) == OK
    assert harness.commit_as(one, ("b", 0), epoch=2) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_client_that_knows_no_member_epochs_commits_nothing(harness: ConsumerHarness) -> None:
    one = Consumer("m1")
    harness.together(one)
    old = CommitOffsets("g", one.epoch, "m1", None, ((("a", 0), OffsetAndMetadata(7)),), 8)
    assert harness.do("commit", old).error == ErrorCode.UNSUPPORTED_VERSION


def test_offsets_in_transactions_are_held_to_the_epoch_too(harness: ConsumerHarness) -> None:
    one = Consumer("m1")
    harness.together(one)

    def within(epoch: int, member_id: str) -> ErrorCode:
        asked = TxnOffsetCommit("g", epoch, member_id, None, ((("a", 0), OffsetAndMetadata(7)),), 5, 0)
        error: ErrorCode = harness.do("txn", asked).error
        return error

    assert within(one.epoch, "m1") == OK
    assert within(one.epoch + 1, "m1") == ErrorCode.ILLEGAL_GENERATION
    assert within(-1, "") == OK


def test_offsets_are_told_to_members_of_this_epoch_and_to_anybody_without_one(harness: ConsumerHarness) -> None:
    one = Consumer("m1")
    harness.together(one)
    harness.commit_as(one)
    assert harness.offset(("a", 0)) == 7
    assert harness.fetch_as("m1", one.epoch) == OK
    assert harness.fetch_as("m1", one.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert harness.fetch_as("m9", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_are_neither_deleted_nor_forgotten(harness: ConsumerHarness) -> None:
    one = Consumer("m1")
    harness.together(one)
    harness.commit_as(one)
    found = harness.do("delete", DeleteOffsets("g", (("a", 0),)))
    assert found.errors == ((("a", 0), ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),)
    harness._at(harness.now.mono_ms + 2 * PATIENT.retention_ms)
    harness.do("expire", ExpireOffsets("g", (("a", 0),)))
    assert harness.offset(("a", 0)) == 7


def test_a_group_without_members_goes_with_its_last_offset(harness: ConsumerHarness) -> None:
    one = Consumer("m1")
    harness.together(one)
    harness.commit_as(one)
    harness.ask("m1", LEAVES)
    assert harness.described().state == GroupState.EMPTY
    harness._at(harness.now.mono_ms + PATIENT.retention_ms)
    harness.do("expire", ExpireOffsets("g", (("a", 0),)))
    assert harness.machine.listed() == []
    assert harness.replayed().inspect_consumers() == {}


# ------------------------------------------------------------------------------------------------- two kinds of groups


def test_only_a_group_without_members_is_deleted(harness: ConsumerHarness) -> None:
    harness.together(Consumer("m1"))
    assert harness.do("delete", DeleteGroup("g")).error == ErrorCode.NON_EMPTY_GROUP
    harness.ask("m1", LEAVES)
    assert harness.do("delete", DeleteGroup("g")).error == OK
    assert harness.described().error == ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.machine.ledger.inspect_consumers() == harness.replayed().inspect_consumers() == {}


def test_each_kind_is_listed_and_described_as_what_it_is(harness: ConsumerHarness) -> None:
    harness.together(Consumer("m1"))
    [listed] = harness.machine.listed()
    assert listed == ("g", "consumer", GroupState.STABLE, "consumer")
    other = harness.do("describe", DescribeGroup("g"))
    assert (other.error, other.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    described = harness.described()
    assert (described.epoch, described.target_epoch, described.assignor) == (2, 2, "uniform")
    [member] = described.members
    assert (member.member_id, tuple(member.current.assigned)) == ("m1", member.target)


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(harness: ConsumerHarness) -> None:
    told = harness.join("old")
    assert told is not None
    harness.assign("old")
    assert harness.enter(Consumer("m1")).error == ErrorCode.GROUP_ID_NOT_FOUND, "nobody can read what its member owns"
    harness.commit(7, told, ("a", 0))
    harness.leave(told)
    one = Consumer("m1")
    harness.together(one)
    assert harness.offset(("a", 0)) == 7
    assert "g" not in harness.machine.ledger.groups
    assert [group.group_type for group in harness.machine.listed()] == ["consumer"]


def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets(harness: ConsumerHarness) -> None:
    one = Consumer("m1")
    harness.together(one)
    harness.commit_as(one)
    harness.ask("m1", LEAVES)
    joined = harness.join("new")
    assert joined is not None
    assert joined.error == OK
    assert harness.offset(("a", 0)) == 7
    assert harness.machine.ledger.inspect_consumers() == harness.replayed().inspect_consumers() == {}


def test_what_a_group_is_stands_in_records_that_can_be_read_back(harness: ConsumerHarness) -> None:
    harness.together(Consumer("m1", "i1"), Consumer("m2"))
    harness.enter(Consumer("m3", topics=()), regex="b")
    for member_id in ("m2", "m3"):
        harness.ask(member_id, LEAVES)
    for written, _ in harness.log:
        assert not isinstance(written, GroupMetadataRecord)
        assert records.decode(*records.encode(written)) == written
