"""Rebalances by fault, time without an owner, and how evenly generations share partitions."""

from __future__ import annotations

from dataclasses import replace

from checkers.history.tables import PlayedFault
from checkers.measured_groups import measure_groups
from tests.support.histories.builder import MS, HistoryBuilder
from tests.support.histories.group_history import GroupHistory


def fault(number: int, began: int) -> PlayedFault:
    return PlayedFault(number, "kill", "P", (), "node:1", (1,), {}, 0, began, began + MS, {}, "")


def test_a_history_without_groups_has_no_figures() -> None:
    assert measure_groups(HistoryBuilder().history(), []) == {}


def test_a_rebalance_belongs_to_the_fault_that_began_last() -> None:
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.joined(one, [0, 1], 1)
    first = fault(1, h.tick())
    h.joined(one, [0], 2)
    h.joined(two, [1], 2)
    h.joined(one, [0, 1], 3)
    second = fault(2, h.tick())
    never = replace(fault(3, 0), began=-1)
    found = measure_groups(h.history(), [second, first, never])["g"]
    assert found["generations"] == 3
    assert found["rebalances"] == [
        {"fault": None, "count": 1},
        {"fault": 1, "action": "kill", "count": 2},
        {"fault": 2, "action": "kill", "count": 0},
    ]


def test_time_without_an_owner_lies_between_two_owners() -> None:
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0, 1: 0})
    h.revoked(one, [0])
    h.now = 10 * MS
    h.lost(one, [1])
    h.now = 14 * MS
    h.assigned(two, {0: 0}, 2)
    h.assigned(two, {1: 0}, 2)
    found = measure_groups(h.history(), [])["g"]["unowned"]
    assert found == {"longest_s": 0.013, "partition": "t-0", "from_s": 0.002, "total_s": 0.018}


def test_where_no_partition_changed_its_owner_none_was_without() -> None:
    h = GroupHistory()
    h.assigned(h.member(), {0: 0})
    assert measure_groups(h.history(), [])["g"]["unowned"] is None


def test_a_generation_that_gives_one_member_two_more_than_another_is_unfair() -> None:
    h = GroupHistory(4)
    one, two = h.member(), h.member()
    h.joined(one, [0, 1, 2], 1)
    h.joined(two, [3], 1)
    h.joined(one, [0, 1], 2)
    h.joined(two, [2, 3], 2)
    h.joined(one, [0, 1, 2, 3], 3)
    assert measure_groups(h.history(), [])["g"]["unfair"] == {"most": 2, "generations": 1}
