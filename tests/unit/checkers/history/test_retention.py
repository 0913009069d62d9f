"""Up to which offset retention can have deleted a log, from clocks, settings and records."""

from __future__ import annotations

import pytest

from squall.checkers.history.parser import parse
from squall.checkers.history.partition import ANY, ObservedPartition
from squall.checkers.history.retention import RetentionTracker
from squall.checkers.nemesis_log import FOREVER, parse_faults, skew_ms
from squall.checkers.plan_facts import facts_of
from tests.support.histories.builder import MS, HistoryBuilder
from tests.support.histories.nemesis_lines import fault_line
from tests.unit.checkers.anomalies.test_loss import KAFKAS, LASTS_MS, retired


def partition(h: HistoryBuilder, skew: int = 0) -> ObservedPartition:
    (found,) = parse(h.lines(), skew_ms=skew).partitions
    return found


def clock(offset_ms: float, rate: float = 1.0, **more: object) -> bytes:
    params = {"offset_ms": offset_ms, "rate": rate}
    return fault_line(1, action="clock", fault_class="C", params=params, **more)


@pytest.mark.parametrize(
    ("offset_ms", "rate", "skew"),
    [(5_000, 1.0, 5_000), (-5_000, 1.0, 5_000), (0, 2.0, 4_000), (1_000, 0.5, 1_000), (-1_000, 0.5, 3_000)],
)
def test_clocks_are_apart_by_what_a_fault_moved_them_and_their_rate_added(
    offset_ms: float, rate: float, skew: int
) -> None:
    faults, _ = parse_faults([clock(offset_ms, rate, began=0, ended=4_000 * MS)])
    assert skew_ms(faults, {}) == skew


def test_a_clock_that_runs_at_another_rate_for_ever_may_be_anywhere() -> None:
    faults, _ = parse_faults([clock(0, 2.0, began=0, ended=None)])
    assert skew_ms(faults, {}) == FOREVER


def test_a_clock_fault_that_never_began_moves_no_clock() -> None:
    faults, _ = parse_faults([clock(5_000, began=None, ended=None)])
    assert skew_ms(faults, {}) == 0


def test_a_machine_that_was_suspended_or_set_moves_all_of_its_clocks() -> None:
    faults, _ = parse_faults([clock(5_000, began=0, ended=4_000 * MS)])
    assert [skew_ms(faults, {"wall_drift_ms": drift}) for drift in (600_000, -600_000)] == [605_000, 605_000]
    assert skew_ms([], {"wall_drift_ms": "soon"}) == 0


def test_a_broker_whose_clock_was_ahead_removes_earlier_by_that_much() -> None:
    early = {"later_ms": 50_000, "retention_ms": 60_000}
    assert partition(retired(**early)).judged_from == 0
    assert partition(retired(**early), skew=8_000).judged_from == 0
    assert partition(retired(**early), skew=9_000).judged_from == 2
    assert partition(retired(**early), skew=FOREVER).judged_from == 2


def test_what_is_removable_ends_before_the_first_record_that_is_too_young() -> None:
    h = HistoryBuilder(retention_ms=60_000)
    p = h.producer()
    values = [h.sent(p, 0), h.sent(p, 1)]
    h.tick(40_000 * MS)
    values += [h.sent(p, 2), h.sent(p, 3)]
    h.tick(30_000 * MS)
    h.final([(3, values[3])], at=3, log_start=3)
    assert (partition(h).log_start, partition(h).judged_from) == (3, 2)


def test_records_acknowledged_after_the_log_start_was_seen_count_too() -> None:
    h = HistoryBuilder(retention_ms=60_000)
    p = h.producer()
    late = h.send(p)
    h.poll(h.reader(), [], at=1, log_start=1)
    h.ok(late, 0)
    assert partition(h).judged_from == 0


def test_without_offsets_of_acknowledgements_nothing_of_a_short_run_is_too_old() -> None:
    h = HistoryBuilder(retention_ms=60_000)
    p = h.producer(acks=0)
    values = [h.sent(p, -1) for _ in range(3)]
    h.final([(2, values[2])], at=2, log_start=2)
    assert partition(h).judged_from == 0
    h.tick(70_000 * MS)
    h.final([(2, values[2])], at=3, log_start=3)
    assert partition(h).judged_from == 3


@pytest.mark.parametrize(("keep", "to"), [(3_769, 0), (3_768, 0), (2_513, 0), (2_512, 1), (1_257, 1), (1_256, 2)])
def test_what_size_can_have_removed_leaves_retention_bytes_at_the_records_largest(keep: int, to: int) -> None:
    """Three records take at most 1,256 bytes each."""
    assert partition(retired(0, retention_bytes=keep)).judged_from == to
    by_time = retired(LASTS_MS, retention_ms=LASTS_MS, retention_bytes=keep)
    assert partition(by_time).judged_from == 2, "time may remove what size keeps"


def test_what_a_producer_may_append_twice_counts_as_any_number_of_bytes() -> None:
    h = retired(0, retention_bytes=3_768)
    h.send(h.producer(idempotence=False))
    assert partition(h).judged_from == 2


def test_a_replica_may_lack_what_retention_can_remove_until_brokers_are_stopped() -> None:
    assert partition(retired(0, retention_ms=30_000)).expirable_to == ANY
    assert partition(retired(0, retention_ms=60_000)).expirable_to == 0
    assert partition(retired(0)).expirable_to == 0, "Kafka's default is a week"


@pytest.mark.parametrize(
    "odd",
    [{"retention.ms": "soon"}, {"retention.bytes": None}, {"min.insync.replicas": "9" * 30}, {"retention.ms": []}],
)
def test_settings_that_are_none_are_damage(odd: dict[str, object]) -> None:
    h = HistoryBuilder()
    h.event("topic_settings", topic="t", settings=KAFKAS | odd)
    assert parse(h.lines()).problem is not None


def test_settings_in_force_decide_what_is_promised_whoever_set_them() -> None:
    plan = facts_of({"workload": {"min_isr": 2, "replication_factor": 3}})
    h = HistoryBuilder()
    assert plan.in_force([partition(h)]) == plan, "a history of an earlier version"
    h.event("topic_settings", topic="t", settings=KAFKAS | {"min.insync.replicas": "2"})
    assert plan.in_force([partition(h)]) == plan
    h.event("topic_settings", topic="t", settings=KAFKAS | {"unclean.leader.election.enable": "true"})
    found = plan.in_force([partition(h)]).configuration
    assert (found.min_isr, found.unclean) == (1, True)


def test_a_shorter_retention_counts_for_a_partition_that_is_added_later() -> None:
    tracker = RetentionTracker(0)
    old = tracker.declared(ObservedPartition(0, "t", 0, "delete", -1), {"e": "t", "part": 0, "topic": "t", "index": 0})
    tracker.configured({"topic": "t", "settings": KAFKAS})
    tracker.administered(0, {"what": "retention", "retention_ms": 1_000}, 5)
    new = tracker.declared(ObservedPartition(1, "t", 1, "delete", -1), {"e": "t", "part": 1, "topic": "t", "index": 1})
    line = {"e": "t", "part": 2, "topic": "u", "index": 0}
    other = tracker.declared(ObservedPartition(2, "u", 0, "delete", -1), line)
    assert [each.retention_ms for each in (old, new, other)] == [1_000, 1_000, -1]
