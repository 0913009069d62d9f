"""Checks how long readers waited without progress, after healing and while no fault was on."""

from __future__ import annotations

import pytest

from squall.checkers.anomalies.stuck import liveness
from squall.checkers.metrics import CALM_READER_GAP, READER_GAP, StuckLimits
from tests.support.histories.builder import HistoryBuilder
from tests.support.histories.group_history import GroupHistory
from tests.support.histories.nemesis_lines import MS, fault_line
from tests.support.histories.timed import measured, poll_at, send_at


def test_without_a_fault_a_reader_that_gets_nothing_is_stuck() -> None:
    h = HistoryBuilder()
    reader = h.reader()
    send_at(h, h.producer(), 100, 110)
    poll_at(h, reader, 120, 0, 1)
    poll_at(h, reader, 30_000, 0, 1)
    [(length, _)] = reader_gap(h, name=CALM_READER_GAP)
    assert length > 29_000 * MS
    assert not reader_gap(h)


def test_between_two_faults_a_reader_that_gets_nothing_is_stuck() -> None:
    h = HistoryBuilder()
    reader = h.reader()
    for ms in range(100, 40_000, 100):
        poll_at(h, reader, ms, 0, 1)
    two = fault_line(began_ms=500, ended_ms=2_000), fault_line(1, began_ms=20_000, ended_ms=39_000)
    assert reader_gap(h, *two, name=CALM_READER_GAP) == [(18_000 * MS, 2_000 * MS)]
    for limit_s, found in ((17, ["stuck-consumer"]), (19, [])):
        assert [each.anomaly for each in liveness(measured(h, *two)[0], StuckLimits(None, limit_s))] == found
    # A fault is on all the time: what lies before the first one counts.
    touching = fault_line(began_ms=500, ended_ms=20_000), fault_line(1, began_ms=20_000, ended_ms=39_000)
    [(length, _)] = reader_gap(h, *touching, name=CALM_READER_GAP)
    assert length < 500 * MS


def reader_gap(h: HistoryBuilder, *nemesis: bytes, name: str = READER_GAP) -> list[tuple[float, ...]]:
    return [each.numbers for each in measured(h, *nemesis)[0] if each.name == name]


def test_a_reader_that_is_behind_and_gets_nothing_is_stuck() -> None:
    h = HistoryBuilder()
    reader = h.reader()
    for ms in (100, 200, 300, 400):
        poll_at(h, reader, ms, 3, 9)
    assert reader_gap(h, fault_line(began_ms=50, ended_ms=150)) == [(250 * MS, 150 * MS)]


@pytest.mark.parametrize(("until_ms", "longest_ms"), [(250, 100), (390, 240)])
def test_a_member_waits_only_for_what_it_owns(until_ms: int, longest_ms: int) -> None:
    h = GroupHistory()
    member = h.member()
    h.now = 99 * MS
    h.assigned(member, {0: 3})
    for ms in range(110, until_ms, 20):
        poll_at(h, member, ms, 3, 9)
    h.now = until_ms * MS - 1 * MS
    h.revoked(member, [0], h.now)
    h.now = 1998 * MS
    h.assigned(member, {0: 3})
    poll_at(h, member, 2010, 3, 9)
    poll_at(h, member, 2090, 9, 9)
    assert reader_gap(h, fault_line(began_ms=50, ended_ms=150))[0][0] == longest_ms * MS


def test_a_producer_that_polls_in_its_transactions_is_no_reader_that_could_be_stuck() -> None:
    h = HistoryBuilder()
    producer = h.producer()
    for ms in (100, 200, 300, 400):
        poll_at(h, producer, ms, 3, 9)
    assert not reader_gap(h, fault_line(began_ms=50, ended_ms=150))


def test_a_reader_at_the_end_is_not_stuck() -> None:
    h = HistoryBuilder()
    reader = h.reader()
    for ms in (100, 200, 300, 400):
        poll_at(h, reader, ms, 9, 9)
    assert reader_gap(h, fault_line(began_ms=50, ended_ms=150)) == [(100 * MS, 200 * MS)]


def test_a_reader_that_is_told_of_an_end_that_others_know_to_be_passed_is_stuck() -> None:
    h = HistoryBuilder()
    reader, other = h.reader(), h.reader()
    poll_at(h, reader, 160, 3, 3)
    poll_at(h, other, 190, 9, 9)
    for ms in (200, 300, 400):
        poll_at(h, reader, ms, 3, 3)
    assert reader_gap(h, fault_line(began_ms=50, ended_ms=150))[0] == (240 * MS, 160 * MS)


@pytest.mark.parametrize("isolation", [0, 1])
def test_another_leader_epoch_may_have_lost_what_an_earlier_one_told_of(isolation: int) -> None:
    h = HistoryBuilder()
    reader, other = h.reader(isolation=isolation), h.reader()
    poll_at(h, reader, 160, 3, 3)
    poll_at(h, other, 190, 9, 9)
    for ms in (200, 300, 400):
        h.now = (ms - 2) * MS
        h.poll(reader, [], at=3, position=3, hw=3, epoch=1)
    assert reader_gap(h, fault_line(began_ms=50, ended_ms=150))[0] == (100 * MS, 200 * MS)


def test_what_is_not_stable_is_no_business_of_a_read_committed_reader() -> None:
    h = HistoryBuilder()
    reader, other = h.reader(isolation=1), h.reader()
    h.now = 158 * MS
    h.poll(other, [], at=9, position=9, hw=9, lso=3)
    for ms in (200, 300, 400):
        h.now = (ms - 2) * MS
        h.poll(reader, [], at=3, position=3, hw=9, lso=3)
    assert reader_gap(h, fault_line(began_ms=50, ended_ms=150))[0] == (100 * MS, 200 * MS)


def test_a_reader_without_answers_is_stuck_until_it_was_last_heard_of() -> None:
    h = HistoryBuilder()
    reader = h.reader()
    poll_at(h, reader, 100, 9, 9)
    h.now = 499 * MS
    h.event("poll_errors", p=reader)
    assert reader_gap(h, fault_line(began_ms=50, ended_ms=150)) == [(350 * MS, 150 * MS)]


def test_a_reader_that_began_later_is_measured_from_then() -> None:
    h = HistoryBuilder()
    reader = h.reader()
    poll_at(h, reader, 400, 9, 9)
    poll_at(h, reader, 450, 9, 9)
    assert reader_gap(h, fault_line(began_ms=50, ended_ms=150)) == [(50 * MS, 400 * MS)]


def test_final_readers_are_not_measured() -> None:
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 0))])
    assert reader_gap(h) == reader_gap(h, fault_line(began_ms=1, ended_ms=2)) == []
