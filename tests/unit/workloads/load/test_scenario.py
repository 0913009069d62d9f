"""The settings, kills and figures of the workload `load`."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import Any

import pytest

from squall.chaos.plans.operations import concrete
from squall.chaos.plans.plan import PlanError, make_plan
from squall.workloads.load import BatchLoad, kills
from squall.workloads.load.section import section_of
from squall.workloads.transactions.operations import PlannedTransaction

LOAD: dict[str, Any] = {"name": "load"}


def test_the_loads_are_the_last_readers() -> None:
    assert BatchLoad.model_validate(LOAD).traffic().readers == 2
    assert BatchLoad.model_validate({**LOAD, "isolation": "both", "readers": 3}).traffic().readers == 5


def test_a_plan_has_kills_of_each_moment_among_its_operations() -> None:
    plan = concrete(make_plan({"seed": 3, "workload": {**LOAD, "kills": 120}, "runtime": "sim", "time_s": 30}))
    found = [each for each in plan.operations or () if each.end == kills.KILL]
    assert {each.steps for each in found} == {*kills.MOMENTS}
    assert {each.producer for each in found} == {kills.LOAD}
    assert 40 < len(found) < 80
    assert not any(plan.workload.wrong(each) for each in plan.operations or ())


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ([1.0, -2, "driver asleep", 0, "kill"], "driver planned, driver read"),
        ([1.0, 0, "driver read", 0, "kill"], "producer -2 and 0 bytes"),
        ([1.0, -2, "send 0", 100, "commit"], "producer -2"),
    ],
)
def test_a_kill_that_is_none_is_refused(operation: list[Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        make_plan({"workload": LOAD, "runtime": "sim", "operations": [operation]})


def test_no_kills_are_drawn_if_none_are_wanted() -> None:
    assert not list(kills.always(Random(1), 0))
    assert len(list(islice(kills.always(Random(1), 30), 50))) == 50


def test_shrinking_leaves_kills_as_they_are() -> None:
    kill = list(PlannedTransaction(1.0, kills.LOAD, kills.READ, 0, kills.KILL))
    assert not list(BatchLoad.simplifications(kill))
    for renumber in BatchLoad.RENUMBERINGS:
        moved = renumber({**LOAD, "partitions": 3, "producers": 2}, [[0.5, 1, "send 2", 100, "commit"], kill])
        assert moved is not None
        assert moved.operations == [[0.5, *moved.operations[0][1:]], kill]


def test_the_section_has_a_row_for_each_isolation_level() -> None:
    counts = {"loads": 1, "batches": 4, "rows": 1200, "drivers": 2, "executors": 5, "read": 1300, "read_again": 100}
    section = section_of({"loads": {"read_committed": counts}})
    assert section is not None
    assert "1,200 rows in 4 batches; 100 were read again" in section.sentence
    assert section.tables[0].rows == [["read_committed", "4", "1,200", "2", "5", "1,300", "100"]]
    assert section_of({}) is None
