"""Members of both protocols in one group (KIP-848): a consumer group serves classic members as well."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from squall.broker.coordinators.groups import records
from squall.broker.coordinators.groups.consumer import embedded
from squall.broker.coordinators.groups.consumer.group import by_topic
from squall.broker.coordinators.groups.consumer.members import LEAVES
from squall.broker.coordinators.groups.values import (
    ClassicHeartbeat,
    CommitOffsets,
    GroupCoordinatorSettings,
    GroupState,
    LeaveGroup,
    OffsetAndMetadata,
    SyncGroup,
    SyncResult,
)
from squall.broker.protocol.coordinator_frame import encode_versioned
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from tests.unit.coordinators.consumer_harness import A, Consumer, ConsumerHarness, places
from tests.unit.coordinators.group_harness import REBALANCE_MS, SESSION_MS

OK, AGAIN = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
Places = tuple[tuple[bytes, int], ...]


@dataclass
class ClassicMember:
    """A member by the classic protocol: its own view of its generation and partitions. It subscribes to topic "a"."""

    name: str
    instance_id: str | None = None
    cooperative: bool = True
    member_id: str = ""
    generation: int = -1
    owned: Places = ()


class MixedHarness(ConsumerHarness):
    """A shard with members of both protocols."""

    def said(self, one: ClassicMember) -> bytes:
        keeps = by_topic(one.owned) if one.cooperative else {}
        owned = [ConsumerProtocolSubscriptionTopicPartition("a", indexes) for indexes in keeps.values()]
        return encode_versioned(ConsumerProtocolSubscription(["a"], None, owned), 1)

    def rejoin(self, one: ClassicMember) -> ErrorCode:
        """Send JoinGroup; an eager member has released its partitions before."""
        answer = self.join(one.name, one.member_id, one.instance_id, protocols=(("range", self.said(one)),))
        assert answer is not None
        if not one.cooperative:
            one.owned = ()
        if not answer.error:
            assert answer.leader == "" and not answer.members, "nobody leads"
            one.member_id, one.generation = answer.member_id, answer.generation
        return answer.error

    def get(self, one: ClassicMember) -> ErrorCode:
        """Send SyncGroup, and let the member adopt the assignment."""
        asked = SyncGroup("g", one.generation, one.member_id, one.instance_id, "consumer", "range")
        answer = self.do("sync", asked)
        assert isinstance(answer, SyncResult)
        if not answer.error:
            one.owned = embedded.decode_assignment(answer.assignment, self.topics)
        return answer.error

    def heart_of(self, one: ClassicMember) -> ErrorCode:
        error: ErrorCode = self.do(
            "old beat", ClassicHeartbeat("g", one.generation, one.member_id, one.instance_id)
        ).error
        return error

    def turn_of(self, one: ClassicMember) -> None:
        """Do everything that a classic member does between two heartbeats."""
        if one.generation < 0 or self.heart_of(one) == AGAIN:
            assert self.rejoin(one) == OK
            self.get(one)

    def at_rest(self, *members: ClassicMember | Consumer) -> None:
        """Send heartbeats until nothing changes any more, and assert that no partition ever has two owners."""
        for _ in range(20):
            before = [one.owned for one in members]
            for one in members:
                self.turn_of(one) if isinstance(one, ClassicMember) else self.turn(one)
                owned = [place for each in members for place in each.owned]
                assert len(set(owned)) == len(owned), "two own one partition"
            if before == [one.owned for one in members] and self.described().state == GroupState.STABLE:
                return
        raise AssertionError("they never settle down")

    def classic_group(self, *members: ClassicMember) -> None:
        """Make a classic group whose first member leads it and assigns all members equally many partitions."""
        for one in members:
            self.join(one.name, "", one.instance_id, protocols=(("range", self.said(one)),))
        for one in members[:-1]:  # the last one's Join waits for theirs
            self.join(one.name, self._id_of(one), one.instance_id, protocols=(("range", self.said(one)),))
        for one in members:
            answer = self.joined(one.name)
            one.member_id, one.generation = answer.member_id, answer.generation
        shares = {
            one.member_id: encode_versioned(
                ConsumerProtocolAssignment(
                    [ConsumerProtocolAssignmentTopicPartition("a", list(range(at, 4, len(members))))]
                ),
                1,
            )
            for at, one in enumerate(members)
        }
        leader = self.machine.groups["g"].leader
        for one in sorted(members, key=lambda each: each.member_id != leader):
            given = tuple(shares.items()) if one.member_id == leader else ()
            answer = self.do(
                one.name, SyncGroup("g", one.generation, one.member_id, one.instance_id, assignments=given)
            )
            one.owned = embedded.decode_assignment(answer.assignment, self.topics)

    def _id_of(self, one: ClassicMember) -> str:
        return next(m.member_id for m in self.machine.groups["g"].members.values() if m.client_id == one.name)


@pytest.fixture
def harness() -> MixedHarness:
    return MixedHarness()


@pytest.mark.parametrize("cooperative", [True, False])
def test_a_classic_member_shares_with_a_consumer_and_gets_nothing_before_it_is_given_up(
    harness: MixedHarness, cooperative: bool
) -> None:
    new, old = Consumer("m1"), ClassicMember("old", cooperative=cooperative)
    harness.together(new)
    assert harness.rejoin(old) == OK
    assert harness.get(old) == OK
    assert old.owned == (), "the other one has everything still"
    assert harness.heart_of(old) == OK, "there is no next step for it yet"
    harness.at_rest(new, old)
    assert (len(new.owned), len(old.owned)) == (2, 2)
    assert [member.subscription.classic is None for member in harness.described().members] == [True, False]


@pytest.mark.parametrize("cooperative", [True, False])
def test_a_classic_member_gives_up_before_a_consumer_gets(harness: MixedHarness, cooperative: bool) -> None:
    old, one, two = ClassicMember("old", cooperative=cooperative), Consumer("m1"), Consumer("m2")
    harness.together(one)
    harness.at_rest(one, old)
    harness.enter(two)
    assert harness.heart_of(old) == AGAIN
    harness.at_rest(one, two, old)
    assert sorted(map(len, (one.owned, two.owned, old.owned))) == [1, 1, 2]


def test_a_classic_group_is_taken_over_under_its_members_and_each_keeps_its_own(harness: MixedHarness) -> None:
    first, second, new = ClassicMember("first"), ClassicMember("second"), Consumer("m1")
    harness.classic_group(first, second)
    assert (first.owned, second.owned) == (places(A, 0, 2), places(A, 1, 3))
    before = first.generation
    assert harness.enter(new).error == OK
    assert new.owned == ()
    assert harness.consumers.epoch == before + 1
    assert {one: current.assigned.keys() for one, current in harness.consumers.current.items() if one != "m1"} == {
        first.member_id: set(first.owned), second.member_id: set(second.owned),
    }  # fmt: skip
    assert (
        harness.do("c", CommitOffsets("g", before, first.member_id, None, ((("a", 0), OffsetAndMetadata(3)),), 8)).error
        == OK
    )
    harness.at_rest(first, second, new)
    assert new.owned
    assert "g" not in harness.machine.groups
    assert "g" not in harness.replayed().groups


def test_what_a_cooperative_member_may_still_read_waits_for_it_when_its_group_is_taken_over(
    harness: MixedHarness,
) -> None:
    old, new = ClassicMember("old"), Consumer("m1")
    harness.classic_group(old)
    given = harness.machine.groups["g"].members[old.member_id]
    # Its leader has taken two partitions from it in this generation, and it has yet to ask for its assignment.
    given.update(_rejoined(harness, old))
    given.assignment = embedded.encode_assignment(places(A, 0, 1), harness.said(old), harness.topics)
    harness.enter(new)
    assert new.owned == (), "nobody has said that they are free"
    harness.turn(new)
    assert new.owned == ()
    assert harness.heart_of(old) == AGAIN
    harness.at_rest(old, new)
    assert (len(old.owned), len(new.owned)) == (2, 2)


def _rejoined(harness: MixedHarness, old: ClassicMember):  # type: ignore[no-untyped-def]
    from squall.broker.coordinators.groups.values import JoinGroup

    said = (("range", harness.said(old)),)
    return JoinGroup("g", old.member_id, None, old.name, "/h", SESSION_MS, REBALANCE_MS, "consumer", said, "")


def test_a_rebalance_that_is_under_way_is_waited_for(harness: MixedHarness) -> None:
    harness.join("old", protocols=(("range", harness.said(ClassicMember("old"))),))
    assert harness.enter(Consumer("m1")).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("goes", ["leaves", "is silent"])
def test_the_last_consumer_leaves_a_classic_group_behind(harness: MixedHarness, goes: str) -> None:
    old, new = ClassicMember("old"), Consumer("m1")
    harness.together(new)
    harness.at_rest(new, old)
    if goes == "leaves":
        harness.ask("m1", LEAVES)
    else:
        for _ in range(10):
            harness.wait(SESSION_MS // 2)
            harness.heart_of(old)
    group = harness.machine.groups["g"]
    assert group.state == GroupState.PREPARING
    assert "g" not in harness.machine.ledger.consumers
    assert group.generation == old.generation
    assert harness.heart_of(old) == AGAIN
    answer = harness.join("old", old.member_id, protocols=(("range", harness.said(old)),))
    assert answer is not None and answer.generation == old.generation + 1
    assert answer.leader == old.member_id, "its own assignor is at work again"
    assert harness.replayed().groups["g"].leader is None
    assert all(records.decode(*records.encode(each)) == each for each, _ in harness.log)


def test_the_next_coordinator_goes_on_with_a_group_that_has_just_come_down(harness: MixedHarness) -> None:
    old, new = ClassicMember("old"), Consumer("m1")
    harness.together(new)
    harness.at_rest(new, old)
    harness.ask("m1", LEAVES)
    harness.fail_over()
    assert harness.heart_of(old) == AGAIN, "what the consumer had is nobody's: somebody has to assign it"


def test_a_static_classic_member_takes_the_place_of_the_last_consumer(harness: MixedHarness) -> None:
    new, other, back = Consumer("m1", "i1"), ClassicMember("other"), ClassicMember("back", "i1")
    harness.together(new)
    harness.at_rest(new, other)
    harness.join("back", "", "i1", protocols=(("range", harness.said(back)),))
    assert "g" not in harness.machine.ledger.consumers
    assert harness.machine.groups["g"].static.keys() == {"i1"}
    assert harness.alive(new).error == ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.heart_of(other) == AGAIN


def test_members_that_are_gone_or_late_or_of_another_generation_are_told_so(harness: MixedHarness) -> None:
    new, old, fixed = Consumer("m1"), ClassicMember("old"), ClassicMember("fixed", "i1")
    harness.together(new)
    harness.at_rest(new, old, fixed)
    old.generation += 1
    assert harness.heart_of(old) == harness.get(old) == ErrorCode.ILLEGAL_GENERATION
    old.generation -= 1
    stranger = ClassicMember("stranger", member_id="nobody", generation=1)
    assert harness.heart_of(stranger) == harness.get(stranger) == ErrorCode.UNKNOWN_MEMBER_ID
    second = ClassicMember("second", "i1")
    assert harness.rejoin(second) == OK
    assert harness.heart_of(fixed) == harness.get(fixed) == ErrorCode.FENCED_INSTANCE_ID
    assert harness.do(
        "c", CommitOffsets("g", 0, old.member_id, None, ((("a", 3), OffsetAndMetadata(3)),), 8)
    ).error == (ErrorCode.ILLEGAL_GENERATION)
    left = harness.do("leave", LeaveGroup("g", ((old.member_id, None), ("nobody", None))))
    assert [error for _, _, error in left.members] == [OK, ErrorCode.UNKNOWN_MEMBER_ID]
    assert old.member_id not in harness.consumers.members


def test_an_admin_removes_the_last_consumer_by_its_member_id_and_a_classic_group_is_left(harness: MixedHarness) -> None:
    new, old = Consumer("m1"), ClassicMember("old")
    harness.together(new)
    harness.at_rest(new, old)
    left = harness.do("leave", LeaveGroup("g", (("m1", None), ("m1", None))))
    assert [error for _, _, error in left.members] == [OK, OK]
    assert harness.alive(new).error == ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.heart_of(old) == AGAIN


def test_a_classic_member_that_does_not_join_again_is_given_up_although_its_heart_beats(harness: MixedHarness) -> None:
    new, old = Consumer("m1"), ClassicMember("old")
    harness.together(new)
    harness.at_rest(new, old)
    harness.enter(Consumer("m2"))
    for _ in range(REBALANCE_MS // 5000):
        assert old.member_id in harness.consumers.members
        harness.heart_of(old)
        harness.wait(5000)
    assert old.member_id not in harness.consumers.members
    assert harness.heart_of(old) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_has_the_session_that_it_asked_for_also_with_the_next_coordinator(
    harness: MixedHarness,
) -> None:
    new, old = Consumer("m1"), ClassicMember("old")
    harness.together(new)
    harness.at_rest(new, old)
    harness.fail_over()
    harness.wait(SESSION_MS + 1)
    assert old.member_id not in harness.consumers.members
    assert "m1" in harness.consumers.members, "its session is longer"


def test_who_embeds_something_else_or_nothing_cannot_join(harness: MixedHarness) -> None:
    harness.together(Consumer("m1"))
    assert harness.rejoin(ClassicMember("old")) == OK
    for wrong in (
        {"protocol_type": "connect"},
        {"protocols": (("other", b"\0\0"),)},
        {"protocols": (("range", b"?"),)},
    ):
        answer = harness.join("wrong", **wrong)
        assert answer is not None and answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("policy", "up", "down"), [("upgrade", True, False), ("downgrade", False, True)])
def test_the_policy_says_which_way_a_group_may_go(policy: str, up: bool, down: bool) -> None:
    harness = MixedHarness(GroupCoordinatorSettings(initial_delay_ms=0, consumer_migration=policy))
    harness.classic_group(ClassicMember("old"))
    assert (harness.enter(Consumer("m1")).error == OK) is up
    other, new, old = (
        MixedHarness(GroupCoordinatorSettings(initial_delay_ms=0, consumer_migration=policy)),
        Consumer("m1"),
        ClassicMember("old"),
    )
    other.together(new)
    other.at_rest(new, old)
    other.ask("m1", LEAVES)
    assert ("g" in other.machine.groups) is down
    assert other.heart_of(old) == AGAIN, "either way it gets what the other one had"
    if not down:
        other.at_rest(old)
        assert len(old.owned) == 4


def test_where_no_group_may_go_over_it_stays_of_one_protocol() -> None:
    settings = GroupCoordinatorSettings(initial_delay_ms=0, consumer_migration="disabled")
    classic, consumers = MixedHarness(settings), MixedHarness(settings)
    classic.classic_group(ClassicMember("old"))
    assert classic.enter(Consumer("m1")).error != OK
    consumers.together(Consumer("m1"))
    for old in (ClassicMember("old"), ClassicMember("static", "i")):
        assert consumers.rejoin(old) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "KAFKA-20640"


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_classic_members_left_to_themselves_go_down_once_the_policy_allows_it(instance_id: str | None) -> None:
    harness, new = (
        MixedHarness(GroupCoordinatorSettings(initial_delay_ms=0, consumer_migration="upgrade")),
        Consumer("m1"),
    )
    one, two = ClassicMember("one", instance_id), ClassicMember("two")
    harness.together(new)
    harness.at_rest(new, one, two)
    harness.ask("m1", LEAVES)
    harness.at_rest(one, two)
    harness.machine.settings = GroupCoordinatorSettings(initial_delay_ms=0, consumer_migration="bidirectional")
    harness.fail_over()
    assert harness.heart_of(one) == OK, "until one of them joins"
    harness.join(one.name, one.member_id, one.instance_id, protocols=(("range", harness.said(one)),))
    harness.join(two.name, two.member_id, protocols=(("range", harness.said(two)),))
    assert {harness.joined(each.name).member_id for each in (one, two)} == {one.member_id, two.member_id}
    assert "g" in harness.machine.groups and "g" not in harness.machine.ledger.consumers
