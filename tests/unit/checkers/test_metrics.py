"""Checks the measures by hand on short histories, and how they are reported."""

from __future__ import annotations

from typing import Any

import pytest

from squall.checkers.anomalies.stuck import liveness
from squall.checkers.history.tables import FAIL, INFO, OK
from squall.checkers.history.values import AFTER_HEALING
from squall.checkers.metrics import (
    CALM_GAP,
    FRESH_GAP,
    HEALED_GAP,
    OVERALL,
    MeasurementContext,
    StuckLimits,
    TxnOutcome,
    series,
    shape,
)
from tests.support.histories.builder import HistoryBuilder, transacted
from tests.support.histories.nemesis_lines import MS, fault_line
from tests.support.histories.timed import measured, poll_at, send_at
from tests.support.histories.waiting_writes import Write, add_writes


def metrics(h: HistoryBuilder, *nemesis: bytes) -> dict[str, Any]:
    return shape(*measured(h, *nemesis))


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


def test_the_longest_gap_is_of_writes_that_wait_and_ends_with_an_acknowledgement() -> None:
    h = HistoryBuilder(2)
    p = h.producer()
    send_at(h, p, 100, 200)
    send_at(h, p, 210, 250, 1)
    send_at(h, p, 260, 262, 0, part=1)
    send_at(h, p, 700, None, part=1)
    told = metrics(h)["unavailable"]
    assert told["partitions"] == {"t-0": {"s": 0.1, "from_s": 0.1}, "t-1": {"s": 0.002, "from_s": 0.26}}
    assert told["overall"] == {"s": 0.1, "from_s": 0.1}


@pytest.mark.parametrize(
    ("writes", "gap"),
    [
        ([(100, 110, OK), (9000, 9020, OK)], (0.02, 9.0)),
        ([(100, 110, OK), (200, 300, FAIL), (9000, 9020, OK)], (0.1, 0.2)),
        ([(100, 110, OK), (200, 300, INFO), (400, 500, INFO), (9000, 9020, OK)], (0.3, 0.2)),
        ([(100, 110, OK), (200, 300, FAIL), (250, 900, OK)], (0.7, 0.2)),
        ([(100, 110, OK), (200, 300, FAIL), (300, 900, OK)], (0.7, 0.2)),
        ([(100, 900, INFO), (200, 300, OK), (850, 990, OK)], (0.69, 0.3)),
        ([(100, 110, OK), (200, None, INFO), (9000, 9020, OK)], (0.02, 9.0)),
        ([(100, 110, OK), (200, None, INFO), (800, None, INFO)], (0.6, 0.2)),
        ([(100, 110, OK), (200, None, INFO)], (0.01, 0.1)),
        ([(100, 400, FAIL)], (0.3, 0.1)),
    ],
    ids=[
        "nothing was due in between",
        "after a failure nobody tried for long",
        "between two failures nothing shows that the partition was back",
        "a failure and the next acknowledgement overlap",
        "a failure is tried again at once",
        "one waits while others are acknowledged",
        "a client that is gone waits no longer",
        "clients that are never answered",
        "one that is never answered",
        "one that fails",
    ],
)
def test_only_what_somebody_tried_to_write_makes_a_partition_unavailable(
    writes: list[Write], gap: tuple[float, float]
) -> None:
    h = HistoryBuilder()
    add_writes(h, writes)
    told = metrics(h)["unavailable"]["partitions"]["t-0"]
    assert (told["s"], told["from_s"]) == gap


def test_a_partition_into_which_nothing_was_due_after_healing_is_not_stuck() -> None:
    h = HistoryBuilder()
    p = h.producer()
    send_at(h, p, 100, 110)
    send_at(h, p, 30_000, 30_010, 1)
    found, _ = measured(h, fault_line(began_ms=200, ended_ms=600))
    assert not liveness(found, StuckLimits(stuck_producer_s=15))
    send_at(h, p, 31_000, 50_000, 2)
    found, _ = measured(h, fault_line(began_ms=200, ended_ms=600))
    assert [each.anomaly for each in liveness(found, StuckLimits(stuck_producer_s=15))] == ["stuck-producer"]


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
    assert told["unavailable"]["overall"] == {"s": 0.78, "from_s": 0.12}
    assert told["after_healing"]["healed_s"] == 0.6
    assert told["after_healing"]["producers"] == {"partition": "t-0", "s": 0.3, "from_s": 0.6}


def calm_gaps(h: HistoryBuilder, *nemesis: bytes) -> list[tuple[float, ...]]:
    return [each.numbers for each in measured(h, *nemesis)[0] if each.name == CALM_GAP and each.a == 0]


def test_without_a_fault_and_between_two_a_gap_counts_too() -> None:
    h = HistoryBuilder()
    p = h.producer()
    send_at(h, p, 100, 110)
    send_at(h, p, 1_000, 31_000, 1)
    send_at(h, p, 32_000, 32_010, 2)
    assert calm_gaps(h) == [(30_000 * MS, 1_000 * MS)]
    two = fault_line(began_ms=500, ended_ms=2_000), fault_line(1, began_ms=20_000, ended_ms=40_000)
    assert calm_gaps(h, *two) == [(18_000 * MS, 2_000 * MS)]
    for limit_s, found in ((17, ["stuck-producer"]), (19, [])):
        assert [each.anomaly for each in liveness(measured(h, *two)[0], StuckLimits(limit_s))] == found
    # From the first one on a fault is always on: then only what lies before it counts.
    touching = fault_line(began_ms=500, ended_ms=20_000), fault_line(1, began_ms=20_000, ended_ms=40_000)
    assert calm_gaps(h, *touching) == [(10 * MS, 100 * MS)]


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
        "acked_without_offset": 0,
        "complete_final_reads": 2,
        "final_read_records": {"read_uncommitted": 2, "read_committed": 0},
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
    assert series([], MeasurementContext(0, [], [], [], {}))["second"] == []


def test_without_transactions_nothing_is_measured_of_them() -> None:
    h = HistoryBuilder()
    h.sent(h.producer(), 0)
    assert metrics(h)["transactions"] is None


def _transactions() -> HistoryBuilder:
    """One of each end. Offsets count up by ten from the committed one's, in the order of `metrics.TxnOutcome`."""
    h = HistoryBuilder()
    ends = (("commit", OK), ("abort", OK), ("commit", FAIL), ("commit", FAIL), ("", INFO), ("commit", INFO))
    for number, (how, st) in enumerate(ends):
        p = h.producer()
        txn = h.begin(p, f"id-{p}", timeout_ms=100)
        for each in range(2):
            h.ok(h.send(p, txn=txn), 10 * number + each)
        if number == TxnOutcome.TIMED_OUT:
            h.tick(100 * MS)
        if how:
            h.end(txn, how, st)
    return h


def test_transactions_are_counted_by_how_they_ended_as_their_clients_saw_it() -> None:
    found = metrics(_transactions())["transactions"]
    assert found["ended"] == {end.name.lower(): 1 for end in TxnOutcome}


def test_a_commit_takes_from_being_asked_for_to_its_acknowledgement() -> None:
    h = HistoryBuilder()
    for took_ms in (3, 9):
        txn = h.begin(h.producer())
        h.tick(50 * MS)
        h.ask_end(txn, "commit")
        h.tick((took_ms - 1) * MS)
        txn.t1, txn.completion = h.tick(), {"st": OK, "how": "commit", "pid": 1, "pe": 0}
    h.end(h.begin(h.producer()), "abort")
    found = metrics(h)["transactions"]["commit_ms"]
    assert (found["count"], found["p50"], found["max"]) == (2, 6.0, 9.0)


def test_what_read_uncommitted_readers_got_of_transactions_that_did_not_commit_is_counted() -> None:
    h = _transactions()
    pairs = [(send.off, send.val) for send in h.sends]
    for isolation in (0, 0, 1):
        h.poll(h.reader(isolation=isolation), pairs)
    h.final(pairs, isolation=0)
    found = metrics(h)["transactions"]["read_uncommitted"]
    nothing = {"transactions": 0, "offsets": 0, "reads": 0}
    # Aborted, timed out and failed; and left. Two readers under load, one final read.
    assert found["under_load"]["aborted"] == {"transactions": 3, "offsets": 6, "reads": 12}
    assert found["under_load"]["never_ended"] == {"transactions": 1, "offsets": 2, "reads": 4}
    assert found["under_load"]["before_commit"] == nothing
    assert found["final_reads"]["aborted"] == {"transactions": 3, "offsets": 6, "reads": 6}
    assert found["final_reads"]["never_ended"] == {"transactions": 1, "offsets": 2, "reads": 2}


def test_what_was_read_before_the_commit_was_asked_for_is_counted_and_what_was_read_later_is_not() -> None:
    h = HistoryBuilder()
    p, reader = h.producer(), h.reader()
    txn = h.begin(p)
    one = h.ok(h.send(p, txn=txn), 0).val
    h.poll(reader, [(0, one)])
    h.end(txn, "commit")
    h.poll(h.reader(), [(0, one)])
    found = metrics(h)["transactions"]["read_uncommitted"]["under_load"]
    assert found["before_commit"] == {"transactions": 1, "offsets": 1, "reads": 1}


def test_what_read_committed_readers_got_counts_for_nothing_there() -> None:
    h, (val,) = transacted(end="abort")
    h.poll(h.reader(isolation=1), [(0, val)])
    found = metrics(h)["transactions"]["read_uncommitted"]
    assert {amount["reads"] for when in found.values() for amount in when.values()} == {0}


def test_a_gap_counts_anew_from_the_first_write_in_it_that_a_fresh_client_was_acknowledged() -> None:
    h = HistoryBuilder()
    load, fresh = h.producer(), h.producer(**{AFTER_HEALING: True})
    send_at(h, load, 100, 200)
    send_at(h, fresh, 210, 220, 1)
    stands_still = h.send(load)
    send_at(h, fresh, 300, 310, 2)
    send_at(h, fresh, 400, 410, 3)
    h.now = 899 * MS
    h.info(stands_still)
    send_at(h, fresh, 950, 960, 4)
    found = {
        each.name: each.numbers for each in measured(h, fault_line(began_ms=20, ended_ms=150))[0] if each.a != OVERALL
    }
    assert found[HEALED_GAP] == (679 * MS, 221 * MS)
    assert found[FRESH_GAP] == (590 * MS, 310 * MS)
