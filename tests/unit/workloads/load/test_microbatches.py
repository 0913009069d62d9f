"""Each batch comes into the sink once, in whatever moment a driver dies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from squall.workloads.load.microbatches import MicroBatchLog, PlannedBatch, PlannedRange
from squall.workloads.load.ranges import OffsetRange

PLACES = (("orders", 0), ("orders", 1))
STAGES = ("planned", "read", "in sink", "committed")


def planned(place: tuple[str, int], start: int, end: int) -> PlannedRange:
    return PlannedRange(OffsetRange(*place, start, end), place[1], end)


def test_a_plan_begins_where_the_last_one_ended_and_has_the_same_tasks_each_time() -> None:
    log = MicroBatchLog()
    log.begin_at({PLACES[0]: 3, PLACES[1]: 0})
    batch = log.plan([planned(PLACES[0], 3, 10)], 7)
    assert log.uncommitted is batch
    assert [(each.span.start, each.span.end) for each in batch.tasks(4)] == [(3, 6), (6, 10)]
    assert list(batch.tasks(4)) == list(batch.tasks(4))
    assert log.positions == {PLACES[0]: 10, PLACES[1]: 0}


def test_the_sink_ignores_a_batch_that_it_has() -> None:
    log = MicroBatchLog()
    log.begin_at({PLACES[0]: 0})
    batch = log.plan([planned(PLACES[0], 0, 1)], 0)
    assert [log.add_to_sink(batch), log.add_to_sink(batch)] == [True, False]
    log.commit(batch)
    assert log.uncommitted is None


def test_a_partition_that_is_known_keeps_its_position() -> None:
    log = MicroBatchLog()
    log.begin_at({PLACES[0]: 5})
    log.begin_at({PLACES[0]: 0, PLACES[1]: 2})
    assert log.positions == {PLACES[0]: 5, PLACES[1]: 2}


def carry_out(log: MicroBatchLog, batch: PlannedBatch, until: str, rows: list[tuple[int, int]]) -> None:
    """Do what a driver does with a planned batch, up to the stage at which it dies."""
    if until == "planned":
        return
    read = [(each.part, offset) for each in batch.tasks(3) for offset in range(each.span.start, each.span.end)]
    if until == "read":
        return
    if log.add_to_sink(batch):
        rows += read
    if until != "in sink":
        log.commit(batch)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from(STAGES)), max_size=12))
def test_each_offset_is_in_the_sink_once_and_in_order(drivers: list[tuple[int, int, str]]) -> None:
    log, rows = MicroBatchLog(), list[tuple[int, int]]()
    log.begin_at(dict.fromkeys(PLACES, 0))
    ends = dict.fromkeys(PLACES, 0)
    for *growth, until in [*drivers, (0, 0, "committed")]:
        ends = {place: ends[place] + more for place, more in zip(PLACES, growth, strict=True)}
        if (batch := log.uncommitted) is not None:
            carry_out(log, batch, until, rows)
        elif new := [planned(place, log.positions[place], end) for place, end in ends.items()]:
            new = [each for each in new if each.span.start < each.span.end]
            carry_out(log, log.plan(new, 0), until, rows)
    for place in PLACES:
        assert [offset for part, offset in rows if part == place[1]] == [*range(log.positions[place])]
