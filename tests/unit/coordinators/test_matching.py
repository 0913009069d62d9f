"""Regular expressions of subscriptions that cost much: matched in turns, known at a later heartbeat."""

from __future__ import annotations

import random

import pytest

from squall.broker.coordinators import patterns
from squall.broker.coordinators.groups.consumer import coordination, matching
from squall.broker.coordinators.groups.consumer.matching import RegexMatchCache
from squall.broker.coordinators.groups.consumer.topics import TopicTable
from squall.broker.coordinators.patterns import RegexPattern
from tests.support.effort import stride
from tests.unit.coordinators.consumer_harness import A, Consumer, ConsumerHarness, places

COSTLY = ".*a.{100}.{100}.*"


def long_names(count: int) -> list[str]:
    rng = random.Random(1)
    return ["".join(rng.choice("ab") for _ in range(249)) for _ in range(count)]


def topics_of(names: list[str]) -> TopicTable:
    return TopicTable({name: (bytes([n // 256, n % 256]) * 8, 1) for n, name in enumerate(names)})


def add(topics: TopicTable, name: str, topic_id: bytes = bytes(16)) -> None:
    topics.table[name] = (topic_id, 1)
    topics.changes += 1


def test_an_expression_that_costs_little_is_matched_at_once() -> None:
    known = topics_of([f"orders-{n:04}-events" for n in range(2500)])
    found = RegexMatchCache(known).topics_of("orders-1...-events")
    assert found is not None
    assert len(found) == 1000


def test_an_expression_that_costs_much_is_matched_in_short_turns() -> None:
    """2,500 names took 8.8 s at once."""
    names = long_names(25)
    looked, one_name = RegexMatchCache(topics_of(names)), RegexPattern(COSTLY).steps(names[0])
    turns = 0
    while looked.topics_of(COSTLY) is None:
        before = sum(waiting.search.spent for waiting in looked.waiting.values())
        looked.advance()
        spent = sum(waiting.search.spent for waiting in looked.waiting.values()) - before
        assert spent < matching.STEPS_IN_A_TURN + one_name
        turns += 1
    assert turns > 10
    assert looked.topics_of(COSTLY) == tuple(sorted(RegexPattern(COSTLY).matching(names)))


def test_a_new_topic_costs_one_name_and_a_topic_that_goes_costs_none() -> None:
    names = long_names(10)
    known = topics_of(names)
    looked = RegexMatchCache(known)
    while looked.topics_of(COSTLY) is None:
        looked.advance()
    other = "a" * 249
    add(known, other)
    del known.table[names[0]]
    assert looked.topics_of(COSTLY) == tuple(sorted(RegexPattern(COSTLY).matching([*names[1:], other])))


def test_a_change_of_the_cluster_that_is_none_of_its_topics_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = topics_of(["a", "b"])
    looked = RegexMatchCache(known)
    assert looked.topics_of("a") == ("a",)
    known.changes += 1
    monkeypatch.setattr(RegexPattern, "search", None)
    assert looked.topics_of("a") == ("a",)


def test_topics_that_come_while_an_expression_is_matched_are_found_too() -> None:
    known = topics_of(long_names(20))
    looked = RegexMatchCache(known)
    assert looked.topics_of(COSTLY) is None
    add(known, "a" * 249)
    while looked.waiting:
        looked.advance()
    found = looked.topics_of(COSTLY)
    assert found is not None
    assert "a" * 249 in found


def test_so_many_expressions_are_matched_in_turns_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "STEPS_AT_ONCE", 0)
    looked = RegexMatchCache(topics_of(["a"]))
    for n in range(matching.MAX_PENDING + 5):
        assert looked.topics_of(f"a{n}") is None
    assert len(looked.waiting) == matching.MAX_PENDING


def test_a_member_gets_its_topics_at_the_heartbeat_after_the_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "STEPS_AT_ONCE", 0)
    harness = ConsumerHarness()
    one = Consumer("m1", topics=())
    assert harness.enter(one, regex="a|c").assigned == ()
    assert harness.turn(one).assigned is None
    shared = harness.machine.consumers._matching
    while shared.waiting:
        shared.advance()
    harness.settle_down(one)
    assert one.owned == places(A, 0, 1, 2, 3)
    add(harness.topics, "c")
    harness.turn(one)
    assert one.owned == places(A, 0, 1, 2, 3), "what was matched before holds until the new topics are"
    while shared.waiting:
        shared.advance()
    harness.settle_down(one)
    assert one.owned == (*places(bytes(16), 0), *places(A, 0, 1, 2, 3))
    assert harness.machine.ledger.inspect_consumers() == harness.replayed().inspect_consumers()


class Counting(RegexMatchCache):
    """Counts what is spent within heartbeats."""

    spent = 0

    def _look(self, regex: str, steps: int) -> tuple[tuple[str, ...] | None, int]:
        topics, cost = super()._look(regex, steps)
        self.spent += cost
        return topics, cost


def test_hundreds_of_expressions_of_a_group_cost_a_heartbeat_little_more_than_one() -> None:
    """Three hundred of them took a second in each heartbeat of each member: no more than a hundred were kept."""
    names = long_names(5)
    looked = Counting(topics_of(names))
    regexes = [f".*a.{{{n}}}{end}" for end in ("b.*", "a.*", "ab.*") for n in range(1, 40, stride(3))]
    most_of_one_name = 249 * patterns.MOST_INSTRUCTIONS // patterns.PRODUCTS_IN_A_STEP
    for _ in range(1000):
        looked.spent = 0
        found = dict(looked.of_each(regexes))
        assert list(found) == regexes
        assert looked.spent <= matching.STEPS_AT_ONCE + matching.STEPS_TO_COMPILE + most_of_one_name
        if None not in found.values():
            break
        for _ in range(20):
            if looked.waiting:
                looked.advance()
    assert found == {regex: tuple(sorted(RegexPattern(regex).matching(names))) for regex in regexes}
    looked.spent = 0
    assert dict(looked.of_each(regexes)) == found
    assert looked.spent == 0


def test_so_much_of_what_was_found_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "MOST_NAMES_FOUND", 10)
    looked = RegexMatchCache(topics_of(["a", "b", "c"]))
    for n in range(20):
        assert looked.topics_of(f"[abc]|x{n}") == ("a", "b", "c")
    assert list(looked._found) == ["[abc]|x17", "[abc]|x18", "[abc]|x19"]
    assert looked._kept_names == 9
    monkeypatch.setattr(matching, "MOST_FOUND", 2)
    looked.topics_of("d")
    assert list(looked._found) == ["[abc]|x19", "d"]


def test_expressions_of_a_log_that_are_not_understood_are_not_read_again_and_again() -> None:
    looked = Counting(topics_of(["a"]))
    regexes = [f"(?={n})" for n in range(matching.STEPS_AT_ONCE // matching.STEPS_TO_COMPILE + 5)]
    for _ in range(2):
        found = dict(looked.of_each([*regexes, "a"]))
    assert found == {**dict.fromkeys(regexes, ()), "a": ("a",)}
    looked.spent = 0
    assert dict(looked.of_each([*regexes, "a"])) == found
    assert looked.spent == 0


def test_a_heartbeat_writes_no_more_names_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred expressions that match 1,200 long names were written in one batch: it was too large each time, and no
    member of the group got an answer.
    """
    monkeypatch.setattr(matching, "STEPS_AT_ONCE", 0)
    monkeypatch.setattr(coordination, "MOST_CHARACTERS_MATCHED", 2)
    harness = ConsumerHarness()
    members = [Consumer(f"m{n}", topics=()) for n in range(4)]
    for n, member in enumerate(members):
        harness.enter(member, regex=f"a|x{n}")
    shared = harness.machine.consumers._matching
    while shared.waiting:
        shared.advance()
        for regex in ("a|x0", "a|x1", "a|x2", "a|x3"):
            shared.topics_of(regex)
    known = []
    for _ in range(3):
        harness.turn(members[0])
        known.append(len(harness.machine.ledger.consumers["g"].regexes))
    assert known == [2, 4, 4]
    assert harness.machine.ledger.inspect_consumers() == harness.replayed().inspect_consumers()
