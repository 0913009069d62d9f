"""Groups whose records are as large as a batch may be: no member is kept from progress by what others have sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from squall.broker.coordinators.groups import records
from squall.broker.coordinators.groups.consumer.members import LEAVES, TargetAssignmentRecord
from squall.broker.coordinators.groups.values import AppendRecords, GroupCoordinatorSettings, LeaveGroup
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.coordinators.coordinator_log import OF_A_BATCH, OF_A_RECORD, batches
from tests.unit.coordinators.consumer_harness import SESSION_MS, A, Consumer, ConsumerHarness, places
from tests.unit.coordinators.group_harness import subscription
from tests.unit.coordinators.test_mixed_groups import ClassicMember, MixedHarness

MOST = 4000


class SmallLog(MixedHarness):
    """A shard whose log accepts only batches up to a small size."""

    def __init__(self) -> None:
        super().__init__(GroupCoordinatorSettings(initial_delay_ms=0, most_bytes=lambda: MOST))

    def _append(self, effect: AppendRecords) -> None:
        encoded = [records.encode(written) for written in effect.records]
        for batch in batches(encoded, len(encoded) if effect.whole is None else effect.whole, MOST):
            if OF_A_BATCH + sum(OF_A_RECORD + len(key) + len(value or b"") for key, value in batch) > MOST:
                error = ErrorCode.UNKNOWN_SERVER_ERROR
                self._carry_out(self.machine.settle(effect.completion, error, self.now))
                return
        super()._append(effect)


@pytest.fixture
def harness() -> SmallLog:
    return SmallLog()


def test_a_log_that_ends_among_the_targets_is_gone_on_from() -> None:
    """They may be written in several batches, of which the next coordinator has the first ones."""
    harness = ConsumerHarness()
    one, other = Consumer("m1"), Consumer("m2")
    harness.together(one)
    harness.enter(other)
    targets = [at for at, (written, _) in enumerate(harness.log) if isinstance(written, TargetAssignmentRecord)]
    del harness.log[targets[-2] + 1 :]
    harness.fail_over()
    assert harness.consumers.epoch > harness.consumers.target_epoch
    harness.enter(other)  # it has had no answer
    harness.settle_down(one, other)
    assert sorted(one.owned + other.owned) == sorted(places(A, 0, 1, 2, 3))


def test_many_members_that_are_silent_at_once_are_written_off_one_after_the_other(harness: SmallLog) -> None:
    """Twelve ids of 32 KB were more than one batch has room for: they kept their partitions for ever."""
    lives, silent = Consumer("m"), [Consumer(f"{n:02}" + "i" * 300) for n in range(12)]
    harness.together(lives, *silent)
    for _ in range(20):
        harness.wait(SESSION_MS // 10)
        assert not harness.turn(lives).error
    assert list(harness.consumers.members) == ["m"]
    assert lives.owned == places(A, 0, 1, 2, 3)
    assert harness.machine.ledger.inspect_consumers() == harness.replayed().inspect_consumers()


@pytest.mark.parametrize("goes", ["leaves", "silent"])
def test_a_group_that_is_too_large_for_a_classic_groups_record_stays_a_consumer_group(
    harness: SmallLog, goes: str
) -> None:
    """Its last member of the consumer protocol could not be written off, and kept its partitions."""
    new, olds = Consumer("m1"), [ClassicMember(f"{n}" + "c" * 200) for n in range(4)]
    harness.together(new)
    harness.at_rest(new, *olds)
    if goes == "leaves":
        assert harness.ask("m1", LEAVES).error == ErrorCode.NONE
    else:
        for _ in range(10):
            harness.wait(SESSION_MS // 9)
            for old in olds:
                harness.turn_of(old)
    harness.at_rest(*olds)
    assert len(harness.consumers.members) == len(olds)
    assert sorted(place for old in olds for place in old.owned) == sorted(places(A, 0, 1, 2, 3))


def test_an_expression_that_matches_more_than_the_log_takes_keeps_nobody_from_an_answer(harness: SmallLog) -> None:
    one, wide, late = Consumer("m1"), Consumer("m2", topics=()), Consumer("m3", topics=())
    harness.enter(one)
    harness.enter(wide, regex=".*")
    harness.settle_down(one, wide)
    before = harness.consumers.regexes[".*"].topics
    for n in range(20):
        harness.topics.table[f"{n:02}" + "n" * 200] = (bytes([n]) * 16, 1)
    harness.topics.changes += 1
    harness.settle_down(one, wide)
    assert harness.consumers.regexes[".*"].topics == before
    assert harness.enter(late, regex="..*").error == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert list(harness.consumers.members) == ["m1", "m2"]
    for n in range(19):
        del harness.topics.table[f"{n:02}" + "n" * 200]
    harness.topics.changes += 1
    harness.settle_down(one, wide)
    assert len(one.owned + wide.owned) == 7
    assert harness.enter(late, regex="..*").error == ErrorCode.NONE


def test_many_expressions_are_written_down_in_several_heartbeats(
    harness: SmallLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new topic that each of a thousand long expressions matched was too much for one batch."""
    monkeypatch.setattr("squall.broker.coordinators.groups.consumer.coordination.MOST_CHARACTERS_OF_KEYS", 1000)
    one, others = Consumer("m1"), [Consumer(f"n{n}", topics=()) for n in range(25)]
    harness.enter(one)
    for n, other in enumerate(others):
        harness.enter(other, regex=f"{n}{'x' * 230}|new")
    harness.settle_down(one, *others)
    harness.topics.table["new"] = (bytes(16), 20)
    harness.topics.changes += 1
    harness.settle_down(one, *others)
    assert sum(len(other.owned) for other in [one, *others]) == 24
    del harness.topics.table["new"]  # what matches nothing any more is written down as well
    harness.topics.changes += 1
    harness.settle_down(one, *others)
    assert sum(len(other.owned) for other in [one, *others]) == 4
    assert not any(found.topics for found in harness.consumers.regexes.values())


def test_a_member_that_is_too_large_for_its_groups_record_is_out_and_the_others_go_on(harness: SmallLog) -> None:
    """Each generation failed for everybody, with an error on which Kafka's consumers end."""
    harness.join("large", protocols=(("range", subscription("t" * MOST)),))
    for name in ("one", "two"):
        harness.join(name)
    for name in ("large", "one"):
        harness.join(
            name,
            harness._id_of(ClassicMember(name)),
            protocols=harness.group.members[harness._id_of(ClassicMember(name))].protocols,
        )
    harness.sync("one")
    harness.sync("two")
    synced = harness.sync("large", one=b"1", two=b"2", large=b"3")
    assert synced is not None
    assert synced.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {harness.answers["one-sync"].error, harness.answers["two-sync"].error} == {ErrorCode.REBALANCE_IN_PROGRESS}
    for name in ("one", "two"):
        harness.join(name, harness.joined(name).member_id)
    harness.assign("one", "two")
    assert [harness.answers[f"{name}-sync"].assignment for name in ("one", "two")] == [b"one", b"two"]


def test_of_members_that_are_all_alike_the_newest_are_out(harness: SmallLog) -> None:
    names, large = [f"m{n:02}" for n in range(20)], ("range", subscription("t" * 300))
    for n, name in enumerate(names):
        harness.join(name, protocols=(large,))
        for earlier in names[:n]:
            harness.join(earlier, harness.joined(earlier).member_id, protocols=(large,))
    harness.assign(*names)
    kept = list(harness.group.members)
    assert len(kept) > 5
    assert kept == [harness.joined(name).member_id for name in names[: len(kept)]]


def test_an_administrator_may_have_many_classic_members_leave_at_once(harness: SmallLog) -> None:
    new, olds = Consumer("m1"), [ClassicMember(f"{n:02}" + "c" * 300) for n in range(6)]
    harness.together(new)
    harness.at_rest(new, *olds)
    before, then = len(harness.log), replace(new)
    answer = harness.do("leave", LeaveGroup("g", tuple((old.member_id, None) for old in olds)))
    assert [error for _, _, error in answer.members] == [ErrorCode.NONE] * len(olds)
    harness.settle_down(new)
    assert (list(harness.consumers.members), new.owned) == (["m1"], places(A, 0, 1, 2, 3))
    del harness.log[before + 3 :]  # the next coordinator has a part of it: one member has lost its target, and is there
    harness.fail_over()
    for _ in range(20):
        harness.wait(SESSION_MS // 20)
        assert not harness.turn(then).error
    assert (list(harness.consumers.members), then.owned) == (["m1"], places(A, 0, 1, 2, 3))
