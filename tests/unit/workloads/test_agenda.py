"""Checks what a producer hands over next, and when."""

from __future__ import annotations

import math
from typing import Any

from squall.workloads.agenda import FixedRecordSchedule, PlannedRecord, RandomRecordSchedule


class Clock:
    """Enough of an Env."""

    def __init__(self) -> None:
        import random

        self.rng, self.now = random.Random(1), 100.0

    def mono(self) -> float:
        return self.now


def test_given_records_come_in_order_of_time_and_only_ones_own() -> None:
    operations = [PlannedRecord(2, 0, "t", 1, 70), PlannedRecord(0.5, 1, "t", 0, 80), PlannedRecord(1, 0, "u", 0, 90)]
    agenda = FixedRecordSchedule(operations, 0, began=100)
    assert agenda.due_at == 101
    assert agenda.take() == ("u", 0, 90)
    assert agenda.due_at == 102
    assert agenda.skip(500) == 0
    assert agenda.take() == ("t", 1, 70)
    assert agenda.due_at == math.inf


def test_drawn_records_are_an_interval_apart_and_too_late_ones_are_given_up() -> None:
    clock: Any = Clock()
    agenda = RandomRecordSchedule(clock, [("t", 0), ("t", 1)], (64, 64), 0.1, 0.005)
    assert 100 <= agenda.due_at <= 100.005
    first = agenda.due_at
    topic, partition, size = agenda.take()
    assert (topic, size) == ("t", 64)
    assert partition in (0, 1)
    assert agenda.due_at == first + 0.1
    assert agenda.skip(100.9) == 0
    assert agenda.skip(105.0) > 30
    assert 103.9 < agenda.due_at < 104.2
