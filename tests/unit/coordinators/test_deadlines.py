"""Checks when groups have something to do: a moment costs what is due in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.broker.coordinators.groups.classic import ClassicGroup
from squall.broker.coordinators.groups.deadlines import OF_PLACE, OVERTAKEN_MAX, GroupDeadlines
from squall.broker.coordinators.groups.values import ClockReading, JoinGroup, LeaveGroup
from tests.unit.coordinators.group_harness import SESSION_MS, GroupHarness

IDS = st.sampled_from("abc")


@given(st.lists(st.one_of(st.tuples(IDS, st.none() | st.integers(0, 50)), st.integers(0, 10)), max_size=60))
def test_it_tells_what_a_list_of_all_would_tell(steps: list[tuple[str, int | None] | int]) -> None:
    deadlines, real, now = GroupDeadlines(), dict[str, int | None](), 0
    for step in steps:
        if isinstance(step, tuple):
            real[step[0]] = step[1]
            deadlines.put(*step)
        else:
            now += step
            due = deadlines.due(now)
            assert len(set(due)) == len(due)
            assert {one for one, at in real.items() if at is not None and at <= now} <= set(due)
            for one in due:
                if (at := real[one]) is not None and at <= now:
                    real[one] = None
                deadlines.put(one, real[one])
        assert deadlines.next_ms(real.get) == min((at for at in real.values() if at is not None), default=None)
        assert deadlines._taken == sum(OF_PLACE + len(one) for _, one in deadlines._heap)
        assert deadlines._needed == sum(OF_PLACE + len(one) for one in deadlines._known)


def test_deadlines_that_come_ever_sooner_do_not_pile_up() -> None:
    deadlines = GroupDeadlines()
    for at_ms in range(100_000, 0, -1):
        deadlines.put("g", at_ms)
    assert len(deadlines._heap) * OF_PLACE <= OVERTAKEN_MAX + 300
    assert deadlines.due(1) == ["g"]
    assert deadlines.due(100_000) == []


@pytest.mark.parametrize("name", ["g", "g" * 32_000])
def test_groups_that_come_and_go_do_not_pile_up(name: str) -> None:
    harness = GroupHarness()
    for n in range(3000):
        asked = JoinGroup(
            f"{name}{n}", "", None, "a", "/h", SESSION_MS, SESSION_MS, "consumer", (("range", b""),), "a-1"
        )
        harness.do("a", asked)
        harness.do("a", LeaveGroup(f"{name}{n}", (("a-1", None),)))
    assert harness.machine.groups == {}
    assert harness.machine.deadline_of(f"{name}0") is None
    kept = sum(OF_PLACE + len(group_id) for _, group_id in harness.machine._deadlines._heap)
    assert kept <= OVERTAKEN_MAX + 100_000


def test_groups_that_wait_cost_nothing_while_another_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    expire, deadline = ClassicGroup.expire, ClassicGroup.next_deadline_ms

    def expired(group: ClassicGroup, now: ClockReading) -> None:
        looked_at.append(group.group_id)
        expire(group, now)

    def asked_for(group: ClassicGroup) -> int | None:
        looked_at.append(group.group_id)
        return deadline(group)

    harness = GroupHarness()
    for n in range(100):
        asked = JoinGroup(
            f"g{n}", "", None, "a", "/h", SESSION_MS + n, SESSION_MS, "consumer", (("range", b""),), "a-1"
        )
        harness.do("a", asked)
    monkeypatch.setattr(ClassicGroup, "expire", expired)
    monkeypatch.setattr(ClassicGroup, "next_deadline_ms", asked_for)
    harness.wait(SESSION_MS)
    assert list(harness.machine.groups) == [f"g{n}" for n in range(1, 100)]
    assert set(looked_at) <= {"g0", "g1"}


def test_a_group_that_nobody_came_to_is_gone_at_once() -> None:
    harness = GroupHarness()
    refused = JoinGroup("g", "", None, "a", "/h", SESSION_MS, SESSION_MS, "", (), "a-1")
    assert harness.do("a", refused).error
    assert harness.machine.groups == {}
