"""The operations of the workload `pipeline`, and what a seed draws of them."""

from __future__ import annotations

from typing import Any

import pytest

from squall.chaos.plans.operations import concrete
from squall.chaos.plans.plan import PlanError, make_plan
from squall.workloads.pipeline.steps import CRASHES, OF_INSTANCES, PAUSE, SEND, InstanceAction

LOAD = {
    "name": "pipeline", "rate": 4, "instances": 2, "partitions": 2, "poll_pause_ms": 200, "session_timeout_ms": 1500,
    "max_poll_interval_ms": 2000, "transaction_timeout_ms": 1500,
}  # fmt: skip


def test_what_a_seed_draws_is_a_load() -> None:
    table = {"seed": 7, "runtime": "sim", "time_s": 60, "workload": {**LOAD, "churn": 200}}
    plan = concrete(make_plan(table))
    done = [InstanceAction(*each) for each in plan.operations or ()]
    assert {step.do for step in done} == {SEND, *OF_INSTANCES}
    assert not any(plan.workload.wrong(step) for step in done)


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ([1, 0, "jump", 1, 0], "jump"),
        ([1, 1, SEND, 0, 200], "who 1 of send"),
        ([1, 0, SEND, 2, 200], "number 2 of send"),
        ([1, 2, CRASHES[0], 100, 0], "who 2 of crash polled"),
        ([1, 1, PAUSE, 60_001, 0], "number 60001 of pause"),
    ],
)
def test_a_step_that_cannot_be_is_refused(step: list[Any], why: str) -> None:
    with pytest.raises(PlanError, match=why):
        make_plan({"workload": LOAD, "operations": [step], "runtime": "sim"})
