"""Without idempotence a record may stand twice, or late, where its producer sent it again, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from squall.checkers import leaderships, signs
from squall.checkers.anomalies.registry import find_all
from squall.checkers.history.tables import OK
from squall.checkers.in_memory import judge_bytes
from squall.checkers.mechanisms import MechanismSign
from squall.checkers.verdict import INVALID, VALID, Verdict
from tests.support.histories.builder import MS, HistoryBuilder
from tests.support.histories.nemesis_lines import fault_line
from tests.unit.checkers.test_signs import Events, led

SETTINGS = {"acks": 1, "idempotence": False, "max_in_flight": 5}
PLAN: dict[str, Any] = {
    "workload": {"min_isr": 1, "replication_factor": 3, **SETTINGS},
    "limits": {"stuck_s": 15},
}
ALONE: Events = {"1": [led(1, 0, 0, 1)]}
"""A trace in which one broker leads all the time."""
KILLED = fault_line(began_ms=0, ended_ms=99)
"""A fault that is on all the time."""


def doubled(tries: int, *, unanswered: bool = False, after: tuple[int, bool] | None = None) -> HistoryBuilder:
    """A record is at two offsets; another one of its producer was sent once.

    after: (seconds, answered) since a send of its producer that failed, or had no answer.
    """
    h = HistoryBuilder()
    p = h.producer(**SETTINGS)
    if after:
        doubtful = h.send(p)
        if after[1]:
            h.info(doubtful)
        h.tick(after[0] * 1000 * MS)
    send = h.send(p)
    if not unanswered:
        h.ok(send, 0, tries)
    other = h.ok(h.send(p), 2, 1)
    h.final([(0, send.val), (1, send.val), (2, other.val)])
    return h


def overtaken(tries: int, tries_of_later: int = 1) -> HistoryBuilder:
    """A record is behind one that was sent later."""
    h = HistoryBuilder()
    p = h.producer(**SETTINGS)
    first, later = h.send(p), h.send(p)
    h.ok(later, 0, tries_of_later)
    h.ok(first, 1, tries)
    h.final([(0, later.val), (1, first.val)])
    return h


def judged(h: HistoryBuilder, nemesis: bytes = KILLED, events: Events = ALONE) -> Verdict:
    plan = {**PLAN, "faults": [{"action": json.loads(line)["action"]} for line in nemesis.splitlines()]}
    return judge_bytes("r", b"".join(h.lines()), nemesis, plan, traces=events).verdict


@pytest.mark.parametrize("history", [doubled, overtaken])
@pytest.mark.parametrize(("tries", "verdict"), [(1, INVALID), (2, VALID), (-1, VALID)])
def test_a_fault_that_is_on_explains_it_only_of_a_client_that_does_not_tell_how_often_it_sent(
    history: Any, tries: int, verdict: str
) -> None:
    found = judged(history(tries))
    assert found.verdict == verdict, found.reasons
    assert {each.permitted for each in found.anomalies} == {verdict == VALID}


def test_a_send_without_an_answer_may_have_been_sent_again() -> None:
    assert judged(doubled(-1, unanswered=True), b"").verdict == VALID


@pytest.mark.parametrize(
    ("seconds", "answered", "verdict"), [(29, True, VALID), (31, True, INVALID), (31, False, VALID)]
)
def test_a_failed_send_speaks_for_what_its_producer_sent_soon_after(seconds: int, answered: bool, verdict: str) -> None:
    assert judged(doubled(-1, after=(seconds, answered)), b"").verdict == verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(4, VALID), (6, INVALID)])
def test_and_for_what_may_still_have_been_on_its_way_when_it_was_handed_over(seconds: int, verdict: str) -> None:
    h = doubled(-1)
    h.tick(seconds * 1000 * MS)
    h.info(h.send(0))
    assert judged(h, b"").verdict == verdict


def test_where_nothing_happened_a_client_that_does_not_tell_sent_nothing_again() -> None:
    assert judged(doubled(-1), b"").verdict == INVALID


def test_a_record_is_not_late_because_a_later_one_was_sent_again() -> None:
    assert judged(overtaken(1, tries_of_later=2)).verdict == INVALID


def test_a_record_does_not_stand_twice_because_another_one_had_no_answer() -> None:
    h = doubled(1)
    unanswered = h.send(0)
    assert unanswered.st != OK and judged(h).verdict == INVALID


def test_a_record_that_was_lost_stands_behind_later_ones_by_its_acknowledgement_alone() -> None:
    """Check that what follows from a loss is permitted even if a retry does not explain anything."""
    h = HistoryBuilder()
    p = h.producer(**SETTINGS)
    first, second, third = (h.ok(h.send(p), off, 1) for off in range(3))
    later = h.ok(h.send(p), 1, 1)
    h.final([(0, first.val), (1, later.val)])
    found = judged(h, events={**ALONE, "2": [led(2, 1, 1, 2)]})
    assert "send-reorder" in {each.name for each in found.anomalies} and found.verdict == VALID
    assert judged(h).verdict == INVALID


def half_lost(tries: int = 2) -> HistoryBuilder:
    """A record was acknowledged at offset 2 and is at 0 only; another one is between them."""
    h = HistoryBuilder()
    p = h.producer(**SETTINGS)
    first, second = h.send(p), h.send(p)
    h.ok(second, 1, 1)
    h.ok(first, 2, tries)
    h.final([(0, first.val), (1, second.val)])
    return h


@pytest.mark.parametrize(("start", "tries", "permitted"), [(2, 2, True), (3, 2, False), (2, 1, False)])
def test_of_two_copies_the_acknowledged_one_may_be_lost_where_a_later_epoch_took_it(
    start: int, tries: int, permitted: bool
) -> None:
    found = judged(half_lost(tries), events={**ALONE, "2": [led(2, 1, start, 2)]})
    assert {each.permitted for each in found.anomalies if each.name == "wrong-offset"} == {permitted}


def test_whoever_acknowledges_each_record_one_place_too_high_is_not_excused_by_a_later_epoch() -> None:
    """A fault is on all the time, the client does not tell how often it sent, and what follows the third is lost."""
    h = HistoryBuilder()
    p = h.producer(**SETTINGS)
    vals = [h.ok(h.send(p), off + 1).val for off in range(5)]
    h.final(list(enumerate(vals[:3])), end=3)
    found = judged(h, events={**ALONE, "2": [led(2, 1, 3, h.now)]})
    told = {(each.name, each.permitted): {one.off for one in each.witnesses} for each in found.anomalies}
    assert told["wrong-offset", False] == {1, 2} and told["wrong-offset", True] == {3}
    assert told["inconsistent-offset", False] == {1, 2} and told["unseen", True] == {4, 5}


def used_again(h: HistoryBuilder) -> None:
    """Somebody else's record is acknowledged at offset 1 after one at offset 2 was."""
    p, other = h.producer(**SETTINGS), h.producer(**SETTINGS)
    first, second, third = (h.ok(h.send(p), off, 1) for off in range(3))
    again = h.ok(h.send(other), 1, 1)
    h.final([(0, first.val), (1, again.val)], end=2)
    assert second.t0 < third.t0 < again.t0


@pytest.mark.parametrize(("start", "permitted"), [(1, True), (2, False)])
def test_a_place_may_be_acknowledged_again_where_a_later_epoch_begins_at_or_below_it(
    start: int, permitted: bool
) -> None:
    """The first leader hears of the second one before that acknowledges the last record."""
    h = HistoryBuilder()
    used_again(h)
    at = h.sends[-1].t0
    events = {"1": [led(1, 0, 0, 1), {**led(1, 1, 0, at - 1), "e": "became_follower", "leader": 2}]}
    found = judged(h, events={**events, "2": [led(2, 1, start, at - 1)]})
    names = ("stale-ack", "inconsistent-offset")
    assert {(each.name, each.permitted) for each in found.anomalies if each.name in names} == {
        (name, permitted) for name in names
    }


def read_at_both(h: HistoryBuilder) -> None:
    """Add a record that readers got at offsets 0 and 1 and that was acknowledged at 1. Then another one is acknowledged
    at 0, and the log begins above it.
    """
    p, other, reader = h.producer(**SETTINGS), h.producer(**SETTINGS), h.reader()
    first = h.send(p)
    h.poll(reader, [(0, first.val), (1, first.val)])
    h.ok(first, 1, 2)
    h.ok(h.send(other), 0, 1)
    h.final([], at=2, end=2)


@pytest.mark.parametrize(("start", "permitted"), [(0, True), (1, False)])
def test_the_copy_of_a_record_that_was_read_below_its_acknowledged_offset_may_be_the_lost_one(
    start: int, permitted: bool
) -> None:
    read_at_both(h := HistoryBuilder())
    at = h.sends[-1].t0 - 1
    events = {"1": [led(1, 0, 0, 1), {**led(1, 1, 0, at), "e": "became_follower", "leader": 2}]}
    found = judged(h, events={**events, "2": [led(2, 1, start, at)]})
    assert {each.permitted for each in found.anomalies if each.name == "inconsistent-offset"} == {permitted}


def test_a_leader_that_uses_its_own_places_again_is_not_excused_by_the_epochs_before_it() -> None:
    h = HistoryBuilder()
    used_again(h)
    at = h.sends[0].t0
    events = {"1": [led(1, 0, 0, 1), {**led(1, 1, 0, at - 1), "e": "became_follower", "leader": 2}]}
    found = judged(h, events={**events, "2": [led(2, 1, 0, at - 1)]})
    told = {each.name: each.permitted for each in found.anomalies}
    assert (told["stale-ack"], told["inconsistent-offset"]) == (False, False)


def test_of_two_acknowledged_records_either_may_be_the_one_that_was_lost() -> None:
    """No reader got as far: it is not known which of them is stored."""
    h = HistoryBuilder()
    lower, higher = h.producer(**SETTINGS), h.producer(**SETTINGS)
    h.ok(h.send(higher), 0, 1)
    at = h.now
    h.ok(h.send(lower), 0, 1)
    history = h.history()
    events = {"1": [led(1, 0, 0, 1), {**led(1, 1, 0, at), "e": "became_follower", "leader": 2}]}
    led_by = leaderships.of_events({**events, "2": [led(2, 1, 0, at)]}, history.partitions)
    found = signs.signed(history, signs.circumstances_of(led_by, [], history.partitions), list(find_all(history)))
    (one,) = (each for each in found if each.anomaly == "inconsistent-offset")
    assert one.proc == lower and one.signs & MechanismSign.LATER_EPOCH


@pytest.mark.parametrize(("at_ms", "verdict"), [(3, VALID), (5, INVALID)])
def test_requests_to_two_leaders_have_no_order(at_ms: int, verdict: str) -> None:
    events = {"1": [led(1, 0, 0, 1), {**led(1, 1, 0, at_ms * MS), "e": "became_follower", "leader": 2}]}
    events["2"] = [led(2, 1, 2, at_ms * MS)]
    assert judged(overtaken(1), events=events).verdict == verdict
    assert judged(doubled(1), events=events).verdict == INVALID


@pytest.mark.parametrize(
    ("api", "act", "began_ms", "verdict"),
    [
        ("Produce", "duplicate", 0, VALID),
        ("Produce", "reorder", 0, VALID),
        ("Produce", "drop", 0, INVALID),
        ("Fetch", "duplicate", 0, INVALID),
        ("Produce", "duplicate", 4, INVALID),
    ],
)
def test_a_link_that_sends_requests_again_explains_what_was_on_its_way_meanwhile(
    api: str, act: str, began_ms: int, verdict: str
) -> None:
    nemesis = fault_line(action="protocol", began_ms=began_ms, ended_ms=9, params={"api": api, "act": act})
    assert judged(doubled(1), nemesis).verdict == verdict
