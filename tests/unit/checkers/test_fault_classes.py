"""Checks which class a run's faults are of, and when a fault counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from squall.checkers.fault_classes import UnknownFault, class_of, classes_of, logs_with_holes, not_landed
from squall.checkers.fault_traits import FORGETS_SYNCS
from squall.checkers.guarantees import FaultClass
from squall.checkers.history.tables import RecordedFault
from squall.checkers.nemesis_log import FOREVER, parse_faults, windows
from tests.support.histories.nemesis_lines import MS, fault_line


def faults(*lines: bytes) -> list[RecordedFault]:
    found, problem = parse_faults(lines)
    assert problem is None
    return found


def fault(**more: Any) -> RecordedFault:
    return faults(fault_line(**more))[0]


def test_the_class_is_what_the_nemesis_says_else_what_the_action_does() -> None:
    assert class_of("kill") is FaultClass.P
    assert class_of("partition") is FaultClass.N
    assert class_of("something new", "D") is FaultClass.D


def test_a_fault_of_no_known_class_is_an_error() -> None:
    with pytest.raises(UnknownFault, match="meteor"):
        class_of("meteor")
    with pytest.raises(UnknownFault, match="W9"):
        class_of("kill", "W9")


def test_a_fault_counts_from_its_begin_even_without_evidence() -> None:
    assert classes_of([fault(action="kill", evidence=None, error="gone")]) == (FaultClass.P,)
    assert classes_of([fault(action="kill", began=None, ended=None)]) == ()


def test_a_log_has_a_hole_where_a_segment_was_lost_and_any_may_where_nobody_tells() -> None:
    def damage(evidence: dict[str, Any] | None, **more: Any) -> RecordedFault:
        return fault(action="damage", fault_class="D", params={"how": "file"}, evidence=evidence, **more)

    lost = damage({"damaged": {"path": "1/data/orders-12/00000000000000000042.log"}})
    assert logs_with_holes([fault(), lost]) == {"orders-12"}
    assert logs_with_holes([lost, damage({"damaged": {"path": "1/data/u-0/00000000000000000000.index"}})]) == {
        "orders-12"
    }
    assert logs_with_holes([damage({"damaged": {"path": None}})]) == frozenset(), "there was nothing to lose"
    assert logs_with_holes([damage(None, error="gone")]) is None
    assert logs_with_holes([damage(None, began=None, ended=None)]) == frozenset()
    failed = replace(fault(began=10, resolved=[1]), traits=(FORGETS_SYNCS,))
    assert logs_with_holes([failed]) == frozenset(), "nobody lost power"
    assert logs_with_holes([failed, fault(action="power_loss", began=30, ended=40, resolved=[2])]) == frozenset()
    assert logs_with_holes([failed, fault(action="power_loss", began=30, ended=40, resolved=[1])]) is None


def test_power_losses_one_after_the_other_are_of_one_node_at_a_time() -> None:
    found = faults(
        fault_line(0, "power_loss", 10, 20, resolved=[1]),
        fault_line(1, "power_loss", 30, 40, resolved=[2]),
    )
    assert classes_of(found) == (FaultClass.W1,)


@pytest.mark.parametrize(
    "lines",
    [
        [fault_line(0, "power_loss", 10, 20, resolved=[1, 2])],
        [fault_line(0, "power_loss", 10, 20, resolved=[1]), fault_line(1, "power_loss", 15, 25, resolved=[2])],
        [fault_line(0, "power_loss", 10, None, resolved=[1]), fault_line(1, "power_loss", 90, 95, resolved=[2])],
        [
            fault_line(0, "power_loss", 10, 20, resolved=[1], evidence={"caught_up_ns": 50 * MS}),
            fault_line(1, "power_loss", 30, 40, resolved=[2]),
        ],
    ],
    ids=["two at once", "overlapping", "never back", "not caught up"],
)
def test_power_losses_of_several_before_they_caught_up_are_worse(lines: list[bytes]) -> None:
    assert classes_of(faults(*lines)) == (FaultClass.W1, FaultClass.WM)


def loss(*isr: int) -> bytes:
    """Return a power loss of node 1 from 30 to 50 ms, when this was the ISR."""
    return fault_line(0, "power_loss", 30, 40, resolved=[1], evidence={"caught_up_ns": 50 * MS, "isr": {"t-0": isr}})


@pytest.mark.parametrize(
    "lines",
    [
        [loss(1)],
        [loss()],
        [loss(1, 2), fault_line(1, "kill", 45, 60, resolved=[2])],
        [loss(1, 2), fault_line(1, "pause", 20, 31, resolved=[2])],
        [loss(1, 2), fault_line(1, "kill", 20, None, resolved=[2])],
        [loss(1, 2, 3), fault_line(1, "latency", 20, 35, resolved=[2], evidence={"links": ["2->3", "3->2"]})],
        [loss(1, 2, 3), fault_line(1, "kill", 20, 35), fault_line(2, "disk", 20, 35, resolved=[3])],
    ],
    ids=[
        *("alone in sync", "none in sync", "died before", "paused before", "never back"),
        *("slow links between the others", "one by one"),
    ],
)
def test_a_power_loss_of_the_last_replica_in_sync_is_as_bad_as_of_all(lines: list[bytes]) -> None:
    assert FaultClass.WM in classes_of(faults(*lines))


@pytest.mark.parametrize(
    "lines",
    [
        [loss(1, 2)],
        [loss(2, 3), fault_line(1, "kill", 20, 35), fault_line(2, "kill", 20, 35, resolved=[3])],
        [loss(1, 2), fault_line(1, "kill", 10, 20)],
        [loss(1, 2), fault_line(1, "kill", 55, 60)],
        [loss(1, 2), fault_line(1, "clock", 20, 60)],
        [loss(1, 2), fault_line(1, "leadership", 20, 60)],
        [loss(1, 2, 3), fault_line(1, "partition", 20, 35, params={"shape": "isolate"}, evidence={"links": ["2->3"]})],
    ],
    ids=["another in sync", "was out itself", "over before", "after", "clock", "leadership", "isolated alone"],
)
def test_a_power_loss_while_another_one_is_in_sync_is_of_one_node(lines: list[bytes]) -> None:
    assert FaultClass.WM not in classes_of(faults(*lines))


def damage(*isr: int) -> bytes:
    """Return a fault in which node 1's disk loses data from 30 to 50 ms, when this was the ISR."""
    return fault_line(0, "damage", 30, 40, resolved=[1], evidence={"caught_up_ns": 50 * MS, "isr": {"t-0": isr}})


@pytest.mark.parametrize(
    ("lines", "alone"),
    [
        ([damage(1, 2), fault_line(1, "kill", 29, 60, resolved=[2])], True),
        ([damage(1, 2), fault_line(1, "kill", 45, 60, resolved=[2])], True),
        ([damage(1, 2)], False),
        ([damage(1, 2, 3), fault_line(1, "kill", 29, 60, resolved=[2])], False),
        ([damage(1, 2), fault_line(1, "kill", 55, 60, resolved=[2])], False),
        ([fault_line(0, "bit_rot", 30, 40, resolved=[1]), fault_line(1, "kill", 29, 60, resolved=[2])], False),
    ],
    ids=["nobody knew yet that it died", "died before it was back", "alone", "a third one", "after", "bit rot"],
)
def test_damage_of_the_last_replica_in_sync_loses_what_nobody_else_has(lines: list[bytes], alone: bool) -> None:
    classes = classes_of(faults(*lines))
    assert FaultClass.D in classes
    assert (FaultClass.DM in classes) is alone


def failing(how: str = "EIO", op: str = "fsync", node: int = 1) -> bytes:
    return fault_line(0, "disk", 10, 20, resolved=[node], params={"how": how, "op": op})


def test_what_a_failed_fsync_left_unwritten_is_gone_with_the_power_as_from_a_damaged_disk() -> None:
    """fsyncgate: the batch is found in the page cache by the recovery, and acknowledged."""
    found = faults(failing(), fault_line(1, "power_loss", 30, 40, resolved=[1]))
    assert classes_of(found) == (FaultClass.P, FaultClass.W1, FaultClass.D)


@pytest.mark.parametrize(
    "lines",
    [
        [failing()],
        [failing(), fault_line(1, "power_loss", 30, 40, resolved=[2])],
        [failing("slow"), fault_line(1, "power_loss", 30, 40, resolved=[1])],
        [failing(op="write"), fault_line(1, "power_loss", 30, 40, resolved=[1])],
        [fault_line(1, "power_loss", 2, 5, resolved=[1]), failing()],
    ],
    ids=["power stays", "another node's", "slow", "a write", "before it"],
)
def test_a_failed_fsync_alone_damages_nothing(lines: list[bytes]) -> None:
    assert FaultClass.D not in classes_of(faults(*lines))


def test_the_same_node_twice_is_one_node_at_a_time() -> None:
    found = faults(
        fault_line(0, "power_loss", 10, 30, resolved=[1]),
        fault_line(1, "power_loss", 20, 40, resolved=[1]),
    )
    assert classes_of(found) == (FaultClass.W1,)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, None),
        ({"error": "no answer"}, "fault 0 (kill leader): no answer"),
        ({"began": None, "ended": None, "evidence": None}, "fault 0 (kill leader) never began"),
        ({"ended_ms": None}, "fault 0 (kill leader) began and was never ended"),
        ({"evidence": None}, "fault 0 (kill leader) left no evidence that it landed"),
    ],
)
def test_a_fault_lands_with_begin_end_and_evidence(more: dict[str, Any], why: str | None) -> None:
    assert not_landed(fault(**more)) == why


def test_the_last_line_of_a_fault_wins() -> None:
    (found,) = faults(fault_line(3, ended_ms=None, evidence=None), fault_line(3, ended_ms=70))
    assert (found.ended, not_landed(found)) == (70 * MS, None)


def test_an_unfinished_last_line_is_left_out() -> None:
    found, problem = parse_faults([fault_line(0), fault_line(1)[:-20]])
    assert [each.id for each in found] == [0]
    assert problem is None


@pytest.mark.parametrize("line", [b"nonsense\n", b"{}\n", b"[1]\n", b'{"id":"x","action":"kill"}\n', b"\xff\xfe\n"])
def test_a_line_that_does_not_parse_is_a_problem_with_its_number(line: bytes) -> None:
    found, problem = parse_faults([fault_line(0), line, fault_line(1)])
    assert [each.id for each in found] == [0]
    assert problem is not None
    assert str(problem).startswith("nemesis.jsonl: line 2: ")


def test_windows_join_faults_that_overlap_and_last_for_ever_where_one_never_ended() -> None:
    found = faults(
        fault_line(0, began_ms=30, ended_ms=50),
        fault_line(1, began_ms=40, ended_ms=60),
        fault_line(2, began_ms=80, ended_ms=None),
        fault_line(3, began=None, ended=None),
    )
    assert windows(found) == [(30 * MS, 60 * MS), (80 * MS, FOREVER)]
