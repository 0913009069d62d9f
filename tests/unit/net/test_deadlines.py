"""Deadlines of parked requests."""

from __future__ import annotations

from squall.broker.net.deadlines import TICK_MS, ParkedRequestTimers


class Parked:
    """Notes when it expires."""

    def __init__(self, name: str, expired: list[str]) -> None:
        self.name, self._expired = name, expired
        self.bucket = -1

    def expire(self) -> None:
        self._expired.append(self.name)


def test_nothing_expires_before_its_deadline_and_everything_within_two_ticks_after() -> None:
    timers, expired = ParkedRequestTimers(), []  # type: ParkedRequestTimers, list[str]
    timers.add(Parked("a", expired), 1000)
    timers.expire(1000)
    assert expired == []
    timers.expire(1000 + TICK_MS)
    assert expired == ["a"]
    assert len(timers) == 0


def test_what_is_due_expires_oldest_first_whatever_the_order_of_adding() -> None:
    timers, expired = ParkedRequestTimers(), []  # type: ParkedRequestTimers, list[str]
    for name, deadline in (("late", 3000), ("early", 1000), ("middle", 2000), ("not yet", 9000)):
        timers.add(Parked(name, expired), deadline)
    timers.expire(5000)
    assert expired == ["early", "middle", "late"]
    assert len(timers) == 1


def test_what_was_removed_does_not_expire_and_leaves_nothing_behind() -> None:
    timers, expired = ParkedRequestTimers(), []  # type: ParkedRequestTimers, list[str]
    parked = Parked("a", expired)
    timers.add(parked, 1000)
    timers.remove(parked)
    timers.remove(parked)
    timers.expire(9000)
    assert expired == []
    assert not timers._buckets


def test_a_deadline_in_the_past_is_due_at_the_next_look() -> None:
    timers, expired = ParkedRequestTimers(), []  # type: ParkedRequestTimers, list[str]
    timers.add(Parked("a", expired), -5)
    timers.expire(1000)
    assert expired == ["a"]
