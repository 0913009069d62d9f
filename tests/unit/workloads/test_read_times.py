"""Checks what a reader knows of the times of the records that it got."""

from __future__ import annotations

from squall.workloads.payload import NOT_KNOWN
from squall.workloads.read_times import KEPT, RecordTimestamps


def test_the_first_record_that_is_late_enough_counts() -> None:
    times = RecordTimestamps()
    times.got(0, 3, [(5, 100), (6, 90)])
    times.got(0, 3, [(7, 110), (8, NOT_KNOWN)])
    assert [times.since(0, 3, at) for at in (80, 100, 101, 111)] == [5, 5, 7, -1]


def test_only_records_of_the_leader_epoch_that_answers_count() -> None:
    times = RecordTimestamps()
    assert times.since(0, 3, 0) == -1
    times.got(0, 3, [(5, 100)])
    assert times.since(0, 4, 100) == times.since(1, 3, 100) == -1
    times.got(0, 4, [(6, 110)])
    assert (times.since(0, 3, 100), times.since(0, 4, 100)) == (-1, 6)
    times.got(1, -1, [(0, 100)])
    assert times.since(1, -1, 100) == -1, "nobody knows whether it is the same one"


def test_a_reader_that_goes_elsewhere_begins_anew_and_old_records_are_dropped() -> None:
    times = RecordTimestamps()
    times.got(0, 3, [(5, 100)])
    times.forget(0)
    assert times.since(0, 3, 100) == -1
    times.got(0, 3, ((offset, offset) for offset in range(KEPT + 10)))
    assert times.since(0, 3, 0) == 10
