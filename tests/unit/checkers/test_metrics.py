"""What is measured: by hand on short histories, and how it is told."""

from __future__ import annotations

from typing import Any

import pytest

from checkers.history.values import AFTER_HEALING
from checkers.measures import measure
from checkers.metrics import (
    READER_GAP,
    Context,
    Measure,
    context_of,
    series,
    shape,
)
from checkers.nemesis_log import parse_faults
from tests.support.histories.builder import HistoryBuilder
from tests.support.histories.nemesis_lines import MS, fault_line


def measured(h: HistoryBuilder, *nemesis: bytes) -> tuple[list[Measure], Context]:
    kept = h.history()
    faults, _ = parse_faults(nemesis)
    context = context_of(kept, faults)
    return measure(kept, context), context


def metrics(h: HistoryBuilder, *nemesis: bytes) -> dict[str, Any]:
    return shape(*measured(h, *nemesis))


def send_at(h: HistoryBuilder, proc: int, begin_ms: int, end_ms: int | None, off: int = 0, part: int = 0) -> None:
    """A send handed over and acknowledged at these times; never acknowledged where the second is None."""
    h.now = (begin_ms - 1) * MS
    send = h.send(proc, part)
    if end_ms is not None:
        h.now = (end_ms - 1) * MS
        h.ok(send, off)


def test_latency_is_from_hand_over_to_acknowledgement_with_and_without_faults() -> None:
    h = HistoryBuilder()
    p = h.producer()
    for number, (begin, end) in enumerate([(10, 12), (20, 24), (30, 39), (50, 53)]):
        send_at(h, p, begin, end, number)
    told = metrics(h, fault_line(began_ms=35, ended_ms=50))["latency_ms"]
    assert told["all"] == {"count": 4, "p50": 3.5, "p99": 8.85, "p99.9": 8.985, "max": 9.0}
    assert (told["without_faults"]["count"], told["without_faults"]["max"]) == (2, 4.0)
    assert (told["with_faults"]["count"], told["with_faults"]["max"]) == (2, 9.0)


def test_nothing_acknowledged_has_no_latency() -> None:
    h = HistoryBuilder()
    h.send(h.producer())
    assert metrics(h)["latency_ms"] == {"all": None, "without_faults": None, "with_faults": None}


def test_the_longest_gap_is_between_acknowledgements_and_from_the_first_hand_over_to_the_last() -> None:
    h = HistoryBuilder(2)
    p = h.producer()
    send_at(h, p, 100, 200)
    send_at(h, p, 210, 250, 1)
    send_at(h, p, 260, 262, 0, part=1)
    send_at(h, p, 700, None, part=1)
    told = metrics(h)["unavailable"]
    assert told["partitions"] == {"t-0": {"s": 0.1, "from_s": 0.1}, "t-1": {"s": 0.438, "from_s": 0.262}}
    assert told["overall"] == {"s": 0.438, "from_s": 0.262}


def test_recovery_is_from_a_faults_begin_to_the_first_acknowledgement_of_what_was_handed_over_since() -> None:
    h = HistoryBuilder(2)
    p = h.producer()
    send_at(h, p, 290, 310, 0)
    send_at(h, p, 320, 400, 1)
    send_at(h, p, 330, 350, 0, part=1)
    (told,) = metrics(h, fault_line(began_ms=300, ended_ms=500))["faults"]
    assert (told["recovery_s"], told["slowest_partition"]) == (0.1, "t-0")
    # The last record's invocation ends a gap as well: from there on it is that record that is waited for.
    assert (told["longest_gap_s"], told["longest_gap_partition"]) == (0.08, "t-0")
    assert (told["began_s"], told["ended_s"]) == (0.3, 0.5)


def test_what_was_handed_over_before_the_last_link_was_cut_says_nothing_of_the_recovery() -> None:
    h = HistoryBuilder()
    p = h.producer()
    # The fault begins, and its links are cut one after another.
    send_at(h, p, 305, 310, 0)
    send_at(h, p, 345, 6400, 1)
    fault = fault_line(action="partition", began_ms=300, ended_ms=7000, on=340_000_000)
    assert metrics(h, fault)["faults"][0]["recovery_s"] == 6.1


def test_a_partition_that_did_not_come_back_has_no_recovery() -> None:
    h = HistoryBuilder(2)
    p = h.producer()
    send_at(h, p, 320, 330, 0)
    send_at(h, p, 340, None, part=1)
    (told,) = metrics(h, fault_line(began_ms=300, ended_ms=500))["faults"]
    assert (told["recovery_s"], told["slowest_partition"]) == (None, "t-1")


def test_a_fault_that_never_began_is_not_measured() -> None:
    h = HistoryBuilder()
    send_at(h, h.producer(), 10, 12)
    assert metrics(h, fault_line(began=None, ended=None))["faults"] == []


def test_after_healing_the_clock_starts_anew() -> None:
    h = HistoryBuilder()
    p = h.producer()
    send_at(h, p, 100, 110)
    send_at(h, p, 120, 900, 1)
    send_at(h, p, 905, 910, 2)
    told = metrics(h, fault_line(began_ms=200, ended_ms=600))
    assert told["unavailable"]["overall"] == {"s": 0.79, "from_s": 0.11}
    assert told["after_healing"]["healed_s"] == 0.6
    assert told["after_healing"]["producers"] == {"partition": "t-0", "s": 0.3, "from_s": 0.6}


def reader_gap(h: HistoryBuilder, *nemesis: bytes) -> list[tuple[float, ...]]:
    return [each.numbers for each in measured(h, *nemesis)[0] if each.name == READER_GAP]


def poll_at(h: HistoryBuilder, reader: int, ms: int, position: int, hw: int) -> None:
    h.now = (ms - 2) * MS
    h.poll(reader, [], at=position, position=position, hw=hw)


def test_a_reader_that_is_behind_and_gets_nothing_is_stuck() -> None:
    h = HistoryBuilder()
    reader = h.reader()
    for ms in (100, 200, 300, 400):
        poll_at(h, reader, ms, 3, 9)
    assert reader_gap(h, fault_line(began_ms=50, ended_ms=150)) == [(250 * MS, 150 * MS)]


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


def test_final_readers_and_runs_without_faults_are_not_measured() -> None:
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 0))])
    poll_at(h, h.reader(), 100, 3, 9)
    assert reader_gap(h) == []
    assert len(reader_gap(h, fault_line(began_ms=1, ended_ms=2))) == 1


def test_a_poll_is_as_old_as_what_somebody_knew_to_stand_behind_it_when_it_began() -> None:
    h = HistoryBuilder()
    reader, other = h.reader(), h.reader()
    poll_at(h, other, 100, 3, 9)
    told_ns = h.polls[-1].t1
    poll_at(h, reader, 150, 5, 5)
    poll_at(h, reader, 160, 9, 9)
    reading = metrics(h)["reading"]
    assert reading["stale_ms"]["count"] == 3
    old = (h.polls[1].t0 - told_ns) / MS
    assert reading["stale_ms"]["max"] == pytest.approx(old, abs=0.01)
    assert reading["readers"][0] == {"proc": reader, "partition": "t-0", "stale_ms": reading["stale_ms"]["max"]}
    assert reading["readers"][1]["stale_ms"] == 0, "nobody knew more when the other reader polled"


def test_a_readers_lag_is_the_latest_offset_less_its_position() -> None:
    h = HistoryBuilder()
    reader = h.reader()
    h.list_offsets(reader, 7)
    poll_at(h, reader, 100, 3, 9)
    h.list_offsets(reader, 9)
    poll_at(h, reader, 200, 9, 9)
    h.list_offsets(reader, 9)
    reading = metrics(h)["reading"]
    assert (reading["lag"]["count"], reading["lag"]["p50"], reading["lag"]["max"]) == (2, 3, 6)
    assert reading["readers"][0]["lag"] == 6


def test_without_readers_nothing_is_known_of_reading() -> None:
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 0))])
    assert metrics(h)["reading"] == {"stale_ms": None, "lag": None, "readers": []}


def test_partitions_tell_what_was_acknowledged_and_read_finally() -> None:
    h = HistoryBuilder(2)
    p = h.producer()
    value = h.sent(p, 0)
    h.final([(0, value)])
    h.final([(0, value)], round_=2)
    told = metrics(h)["partitions"]
    assert told["t-0"] == {
        "part": 0,
        "acked": 1,
        "acked_after_healing": 0,
        "complete_final_reads": 2,
        "final_read_from": 0,
        "final_read_to": 1,
    }
    assert (told["t-1"]["acked"], told["t-1"]["complete_final_reads"]) == (0, 0)


def test_writes_after_healing_are_acknowledged_and_no_load() -> None:
    h = HistoryBuilder(2)
    h.sent(h.producer(), 0)
    after = h.producer(**{AFTER_HEALING: True})
    h.sent(after, 1)
    h.sent(after, 0, part=1)
    told = metrics(h)
    assert {name: (each["acked"], each["acked_after_healing"]) for name, each in told["partitions"].items()} == {
        "t-0": (1, 1),
        "t-1": (0, 1),
    }
    assert told["outcomes"]["send"]["ok"] == 3
    assert told["latency_ms"]["all"]["count"] == 1


def test_the_series_has_a_place_for_every_second() -> None:
    h = HistoryBuilder()
    p = h.producer()
    send_at(h, p, 1000, 1500, 0)
    send_at(h, p, 3000, 3500, 1)
    send_at(h, p, 3100, None)
    h.poll(h.reader(), [(0, 0), (1, 1)])
    told = series(*measured(h, fault_line(began_ms=1200, ended_ms=None)))
    assert told["second"] == [1, 2, 3]
    assert told["acked"] == [1, 0, 1]
    assert told["read"] == [0, 0, 2]
    assert told["p50_ms"] == [500.0, None, 500.0]
    assert told["faults"] == [{"id": 0, "action": "kill", "target": "leader", "began_s": 1.2, "ended_s": None}]


def test_an_empty_history_has_an_empty_series() -> None:
    assert series([], Context(0, [], [], [], {}))["second"] == []
