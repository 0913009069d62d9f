"""Groups whose records are as large as a batch may be: nobody is kept from progress by what others have said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.coordinators.groups import records
from broker.coordinators.groups.consumer.facts import LEAVES, Targeted
from broker.coordinators.groups.values import Append, Leave, Settings
from broker.protocol.errors import ErrorCode
from broker.replicas.coordinators.coordinator_log import OF_A_BATCH, OF_A_RECORD, batches
from tests.unit.coordinators.consumer_room import SESSION_MS, A, Consumer, ConsumerRoom, places
from tests.unit.coordinators.group_room import subscription
from tests.unit.coordinators.test_mixed_groups import MixedRoom, Old

MOST = 4000


class SmallLog(MixedRoom):
    """A shard whose log takes batches of so many bytes."""

    def __init__(self) -> None:
        super().__init__(Settings(initial_delay_ms=0, most_bytes=lambda: MOST))

    def _append(self, effect: Append) -> None:
        encoded = [records.encode(written) for written in effect.records]
        for batch in batches(encoded, len(encoded) if effect.whole is None else effect.whole, MOST):
            if OF_A_BATCH + sum(OF_A_RECORD + len(key) + len(value or b"") for key, value in batch) > MOST:
                error = ErrorCode.UNKNOWN_SERVER_ERROR
                self._carry_out(self.machine.settle(effect.settles, error, self.now))
                return
        super()._append(effect)


@pytest.fixture
def room() -> SmallLog:
    return SmallLog()


def test_a_log_that_ends_among_the_targets_is_gone_on_from() -> None:
    """They may be written in several batches, of which the next coordinator has the first ones."""
    room = ConsumerRoom()
    one, other = Consumer("m1"), Consumer("m2")
    room.together(one)
    room.enter(other)
    targets = [at for at, (written, _) in enumerate(room.log) if isinstance(written, Targeted)]
    del room.log[targets[-2] + 1 :]
    room.fail_over()
    assert room.consumers.epoch > room.consumers.target_epoch
    room.enter(other)  # it has had no answer
    room.settle_down(one, other)
    assert sorted(one.owned + other.owned) == sorted(places(A, 0, 1, 2, 3))


def test_many_members_that_are_silent_at_once_are_written_off_one_after_the_other(room: SmallLog) -> None:
    """Twelve ids of 32 KB were more than one batch has room for: they kept their partitions for ever."""
    lives, silent = Consumer("m"), [Consumer(f"{n:02}" + "i" * 300) for n in range(12)]
    room.together(lives, *silent)
    for _ in range(20):
        room.wait(SESSION_MS // 10)
        assert not room.turn(lives).error
    assert list(room.consumers.members) == ["m"]
    assert lives.owned == places(A, 0, 1, 2, 3)
    assert room.machine.ledger.inspect_consumers() == room.replayed().inspect_consumers()


@pytest.mark.parametrize("goes", ["leaves", "silent"])
def test_a_group_that_is_too_large_for_a_classic_groups_record_stays_a_consumer_group(
    room: SmallLog, goes: str
) -> None:
    """Its last member of the consumer protocol could not be written off, and kept its partitions."""
    new, olds = Consumer("m1"), [Old(f"{n}" + "c" * 200) for n in range(4)]
    room.together(new)
    room.at_rest(new, *olds)
    if goes == "leaves":
        assert room.ask("m1", LEAVES).error == ErrorCode.NONE
    else:
        for _ in range(10):
            room.wait(SESSION_MS // 9)
            for old in olds:
                room.turn_of(old)
    room.at_rest(*olds)
    assert len(room.consumers.members) == len(olds)
    assert sorted(place for old in olds for place in old.owned) == sorted(places(A, 0, 1, 2, 3))


def test_an_expression_that_matches_more_than_the_log_takes_keeps_nobody_from_an_answer(room: SmallLog) -> None:
    one, wide, late = Consumer("m1"), Consumer("m2", topics=()), Consumer("m3", topics=())
    room.enter(one)
    room.enter(wide, regex=".*")
    room.settle_down(one, wide)
    before = room.consumers.regexes[".*"].topics
    for n in range(20):
        room.topics.table[f"{n:02}" + "n" * 200] = (bytes([n]) * 16, 1)
    room.topics.changes += 1
    room.settle_down(one, wide)
    assert room.consumers.regexes[".*"].topics == before
    assert room.enter(late, regex="..*").error == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert list(room.consumers.members) == ["m1", "m2"]
    for n in range(19):
        del room.topics.table[f"{n:02}" + "n" * 200]
    room.topics.changes += 1
    room.settle_down(one, wide)
    assert len(one.owned + wide.owned) == 7
    assert room.enter(late, regex="..*").error == ErrorCode.NONE


def test_many_expressions_are_written_down_in_several_heartbeats(
    room: SmallLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new topic that each of a thousand long expressions matched was too much for one batch."""
    monkeypatch.setattr("broker.coordinators.groups.consumer.coordination.MOST_CHARACTERS_OF_KEYS", 1000)
    one, others = Consumer("m1"), [Consumer(f"n{n}", topics=()) for n in range(25)]
    room.enter(one)
    for n, other in enumerate(others):
        room.enter(other, regex=f"{n}{'x' * 230}|new")
    room.settle_down(one, *others)
    room.topics.table["new"] = (bytes(16), 20)
    room.topics.changes += 1
    room.settle_down(one, *others)
    assert sum(len(other.owned) for other in [one, *others]) == 24
    del room.topics.table["new"]  # what matches nothing any more is written down as well
    room.topics.changes += 1
    room.settle_down(one, *others)
    assert sum(len(other.owned) for other in [one, *others]) == 4
    assert not any(found.topics for found in room.consumers.regexes.values())


def test_a_member_that_is_too_large_for_its_groups_record_is_out_and_the_others_go_on(room: SmallLog) -> None:
    """Each generation failed for everybody, with an error on which Kafka's consumers end."""
    room.join("large", protocols=(("range", subscription("t" * MOST)),))
    for name in ("one", "two"):
        room.join(name)
    for name in ("large", "one"):
        room.join(name, room._id_of(Old(name)), protocols=room.group.members[room._id_of(Old(name))].protocols)
    room.sync("one")
    room.sync("two")
    synced = room.sync("large", one=b"1", two=b"2", large=b"3")
    assert synced is not None
    assert synced.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {room.answers["one-sync"].error, room.answers["two-sync"].error} == {ErrorCode.REBALANCE_IN_PROGRESS}
    for name in ("one", "two"):
        room.join(name, room.joined(name).member_id)
    room.assign("one", "two")
    assert [room.answers[f"{name}-sync"].assignment for name in ("one", "two")] == [b"one", b"two"]


def test_of_members_that_are_all_alike_the_newest_are_out(room: SmallLog) -> None:
    names, large = [f"m{n:02}" for n in range(20)], ("range", subscription("t" * 300))
    for n, name in enumerate(names):
        room.join(name, protocols=(large,))
        for earlier in names[:n]:
            room.join(earlier, room.joined(earlier).member_id, protocols=(large,))
    room.assign(*names)
    kept = list(room.group.members)
    assert len(kept) > 5
    assert kept == [room.joined(name).member_id for name in names[: len(kept)]]


def test_an_administrator_may_have_many_classic_members_leave_at_once(room: SmallLog) -> None:
    new, olds = Consumer("m1"), [Old(f"{n:02}" + "c" * 300) for n in range(6)]
    room.together(new)
    room.at_rest(new, *olds)
    before, then = len(room.log), replace(new)
    answer = room.do("leave", Leave("g", tuple((old.member_id, None) for old in olds)))
    assert [error for _, _, error in answer.members] == [ErrorCode.NONE] * len(olds)
    room.settle_down(new)
    assert (list(room.consumers.members), new.owned) == (["m1"], places(A, 0, 1, 2, 3))
    del room.log[before + 3 :]  # the next coordinator has a part of it: one member has lost its target, and is there
    room.fail_over()
    for _ in range(20):
        room.wait(SESSION_MS // 20)
        assert not room.turn(then).error
    assert (list(room.consumers.members), then.owned) == (["m1"], places(A, 0, 1, 2, 3))
