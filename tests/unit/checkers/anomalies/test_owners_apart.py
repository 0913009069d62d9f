"""A heartbeat proves no ownership while a fault separates brokers: a coordinator that is cut off may have accepted it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from squall.checkers import nemesis_log
from squall.checkers.anomalies.registry import find_all
from squall.checkers.history import conversion
from squall.checkers.history.parser import parse
from squall.checkers.in_memory import judge_bytes
from tests.support.histories.builder import MS
from tests.support.histories.group_history import GroupHistory
from tests.support.histories.nemesis_lines import fault_line
from tests.support.histories.two_owners import two_owners, two_that_commit

SPLIT = "partition"
HEARS_AFTER_MS = nemesis_log.HEARS_AFTER_NS // MS
Build = Callable[[], GroupHistory]


def found(h: GroupHistory, *faults: bytes) -> bool:
    """Return whether two owners are found in this history under these faults."""
    lines = h.lines()
    told, trouble = nemesis_log.parse_faults(faults)
    assert trouble is None
    witnesses = find_all(parse(lines, nemesis_log.apart(told)))
    assert {each.anomaly for each in witnesses} <= {"dual-ownership"}
    return bool(witnesses)


def one_commits() -> GroupHistory:
    """The first owner commits at 3 ms; the second one's heartbeat was sent at 5 ms."""
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    h.commit(one, {0: 1})
    h.revoked(two, [0], h.tick(), 2)
    return h


def other_commits() -> GroupHistory:
    """The second owner commits at 3 ms; the first one's heartbeat was sent at 5 ms."""
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    h.commit(two, {0: 1}, gen=2)
    h.revoked(one, [0], h.tick())
    return h


def beats_after(ms: int) -> GroupHistory:
    """Both members know their assignments at 2 ms, send a heartbeat `ms` later, and commit nothing."""
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    beat = h.tick(ms * MS)
    h.revoked(one, [0], beat)
    h.revoked(two, [0], beat, 2)
    return h


@pytest.mark.parametrize("build", [two_owners, one_commits, other_commits])
def test_a_heartbeat_while_brokers_are_apart_proves_nothing(build: Build) -> None:
    """That holds for both members: it is not known which coordinator was cut off."""
    assert found(build())
    assert not found(build(), fault_line(action=SPLIT, began_ms=1, ended_ms=100))
    assert not found(build(), fault_line(action=SPLIT, began_ms=1, ended_ms=None)), "it never ended"


def test_a_commit_while_brokers_are_apart_proves_membership() -> None:
    assert found(two_that_commit(), fault_line(action=SPLIT, began_ms=1, ended_ms=100))


def test_a_heartbeat_after_a_commit_takes_nothing_from_it() -> None:
    h = two_that_commit()
    for proc, gen in ((0, 1), (1, 2)):
        h.revoked(proc, [0], h.tick(), gen)
    assert found(h, fault_line(action=SPLIT, began_ms=6, ended_ms=100))


def test_a_heartbeat_before_brokers_are_apart_counts() -> None:
    """Both heartbeats were sent at 6 ms."""
    assert not found(beats_after(4), fault_line(action=SPLIT, began_ms=6, ended_ms=20))
    assert found(beats_after(4), fault_line(action=SPLIT, began_ms=7, ended_ms=20))


def test_a_heartbeat_counts_again_when_a_broker_must_have_heard_of_the_others() -> None:
    fault = fault_line(action=SPLIT, began_ms=1, ended_ms=2)
    assert not found(beats_after(1), fault)
    assert not found(beats_after(HEARS_AFTER_MS), fault)
    assert found(beats_after(HEARS_AFTER_MS + 1), fault)


def test_a_second_fault_keeps_brokers_apart_after_the_first() -> None:
    faults = [fault_line(number, SPLIT, began_ms, began_ms + 1) for number, began_ms in enumerate((1, HEARS_AFTER_MS))]
    assert not found(beats_after(HEARS_AFTER_MS + 1), *faults)


def test_a_fault_that_never_began_keeps_nobody_apart() -> None:
    assert found(two_owners(), fault_line(action=SPLIT, began=None, ended=None, evidence=None))


@pytest.mark.parametrize("action", ["kill", "stop", "power_loss", "damage", "clock", "client", "leadership"])
def test_heartbeats_count_under_faults_that_leave_no_broker_alone(action: str) -> None:
    assert found(two_owners(), fault_line(action=action, began_ms=1, ended_ms=100))


@pytest.mark.parametrize("action", ["pause", "slow", "disk", "latency", "reset", "flapping", "packet_loss"])
def test_heartbeats_do_not_count_under_others(action: str) -> None:
    assert not found(two_owners(), fault_line(action=action, began_ms=1, ended_ms=100))


def test_a_run_is_judged_by_its_faults(tmp_path: Path) -> None:
    """In memory, and by its tables."""
    lines = b"".join(two_owners().lines())
    plan = {"workload": {"acks": -1, "min_isr": 2, "replication_factor": 3}, "faults": [{"action": SPLIT}]}
    for action, expected in ((SPLIT, set[str]()), ("kill", {"dual-ownership"})):
        nemesis = fault_line(action=action, began_ms=1, ended_ms=100)
        judged = judge_bytes("r", lines, nemesis, plan)
        assert {each.anomaly for each in judged.findings if each.anomaly == "dual-ownership"} == expected
        (tmp_path / "history.jsonl").write_bytes(lines)
        (tmp_path / "nemesis.jsonl").write_bytes(nemesis)
        conversion.convert(tmp_path)
        assert {each.anomaly for each in find_all(conversion.load(tmp_path)[0])} == expected
