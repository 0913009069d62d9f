"""Shrinking with a run that is made up: what the failure needs stays, everything else becomes plain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.chaos.commands.hunt import shrinker
from squall.chaos.commands.run import plan_of
from squall.chaos.plans.plan import Plan, make_plan, write_plan
from squall.chaos.runs.result import FailureSignature
from squall.chaos.shrinking.plain_numbers import plainer, plainness
from squall.chaos.shrinking.search import OutOfBudget, ShrinkSearch
from squall.chaos.shrinking.shrinker import shrink

FAULTS = [
    {"at_s": 1.234, "duration_s": 2.345, "action": "kill", "target": "random", "params": {}},
    {"at_s": 4.1, "duration_s": 1.0, "action": "pause", "target": "controller", "params": {}},
    {"at_s": 7.77, "duration_s": 3.21, "action": "partition", "target": "leader", "params": {"manner": "hold"}},
    {"at_s": 15.0, "duration_s": 2.0, "action": "latency", "target": "node:2", "params": {"latency_ms": 77.0}},
]
LARGE = {
    "seed": 77,
    "time_s": 25.0,
    "cluster": {"nodes": 5, "settings": {"log.segment.bytes": "65536", "num.io.threads": "3"}},
    "workload": {"topics": 4, "partitions": 6, "replication_factor": 4, "acks": 1, "idempotence": False, "rate": 700},
    "faults": FAULTS,
}


class Clock:
    """A clock that a run moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shrunk(values: dict[str, Any], fails: Any, budget_s: float = 1e9) -> tuple[Plan, list[Plan]]:
    """The result, and every plan that was run."""
    clock, ran = Clock(), []

    def run(plan: Plan) -> str | None:
        clock.now += 1
        ran.append(plan)
        return "lost" if fails(plan) else None

    plan = make_plan(values)
    result = shrink(plan, "lost", run, budget_s=budget_s, clock=clock)
    assert result.tries == len(ran) == len({str(each) for each in ran}), "nothing is run twice"
    return result.plan, ran


def test_only_what_the_failure_needs_is_left_and_its_numbers_are_plain() -> None:
    def fails(plan: Plan) -> bool:
        cut = [f for f in plan.faults if f.action == "partition"]
        return plan.workload.acks == 1 and plan.cluster.nodes >= 2 and any(f.duration_s >= 1.5 for f in cut)

    plan, _ = shrunk(LARGE, fails)
    (fault,) = plan.faults
    assert (fault.action, fault.at_s, fault.duration_s, fault.target) == ("partition", 0.0, 2.0, "node:1")
    assert fault.params == {}
    assert (plan.seed, plan.warmup_s, plan.cluster.nodes, plan.workload.replication_factor) == (0, 0, 2, 1)
    assert plan.cluster.settings == make_plan({}).cluster.settings
    assert (plan.workload.acks, plan.workload.topics, plan.workload.partitions, plan.workload.rate) == (1, 1, 1, 1)
    assert plan.time_s <= 1


def test_faults_that_need_each_other_both_stay_in_their_order() -> None:
    def fails(plan: Plan) -> bool:
        actions = [f.action for f in plan.timeline()]
        return "kill" in actions and "latency" in actions and actions.index("kill") < actions.index("latency")

    plan, ran = shrunk(LARGE, fails)
    assert [f.action for f in plan.timeline()] == ["kill", "latency"]
    assert plan.faults[1].at_s < 1
    assert len(ran) < 200


def test_another_failure_does_not_count() -> None:
    plan = make_plan(LARGE)
    result = shrink(plan, "lost", lambda each: "corrupt", budget_s=1e9)
    assert result.plan == plan
    assert result.finished


def test_when_the_time_is_over_the_best_so_far_stands() -> None:
    clock = Clock()

    def run(plan: Plan) -> str | None:
        clock.now += 1
        return "lost"

    result = shrink(make_plan(LARGE), "lost", run, budget_s=3, clock=clock)
    assert not result.finished
    assert result.tries == 3
    assert len(result.plan.faults) < len(FAULTS)


def test_what_ends_after_the_budget_proves_nothing() -> None:
    clock = Clock()

    def run(plan: Plan) -> str | None:
        clock.now += 10  # a run that was ended in its middle looks like one that has a result
        return "lost"

    result = shrink(make_plan(LARGE), "lost", run, budget_s=3, clock=clock)
    assert (result.plan, result.tries, result.finished) == (make_plan(LARGE), 1, False)


def test_an_interruption_keeps_the_smallest_plan_so_far() -> None:
    ran = []

    def run(plan: Plan) -> str | None:
        ran.append(plan)
        if len(ran) == 4:
            raise KeyboardInterrupt
        return "lost"

    result = shrink(make_plan(LARGE), "lost", run, budget_s=1e9)
    assert (result.plan, result.interrupted, result.finished) == (ran[2], True, False)


def test_an_interruption_of_a_hunt_ends_the_hunt() -> None:
    def run(plan: Plan) -> FailureSignature | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shrinker(60)(make_plan(LARGE), FailureSignature("anomaly", "lost-write"), run)


def test_what_cannot_be_a_plan_is_not_run() -> None:
    def run(plan: Plan) -> str | None:
        raise AssertionError("it was run")

    search = ShrinkSearch(make_plan(LARGE), "lost", run, budget_s=10, clock=Clock())
    assert not search.attempt({**search.values(), "cluster": {"nodes": 1}})
    assert not search.attempt(search.values()), "the best plan is no step forward"


def test_no_budget_no_run() -> None:
    search = ShrinkSearch(make_plan(LARGE), "lost", lambda plan: "lost", budget_s=0, clock=Clock())
    with pytest.raises(OutOfBudget):
        search.attempt({**search.values(), "seed": 1})


OPERATIONS = [[round(0.01 * n + 0.003, 3), n % 4, f"appends-{n % 3}", n % 5, 100 + n] for n in range(400)]


def test_of_many_operations_those_that_are_needed_stay_renumbered_and_plain() -> None:
    def fails(plan: Plan) -> bool:
        listed = plan.operations or ()
        by_place: dict[tuple[str, int], list[float]] = {}
        for op in listed:
            by_place.setdefault((op.topic, op.partition), []).append(op.at_s)
        return any(
            f.action == "kill" and sum(at < f.at_s for at in times) >= 1 and sum(at > f.at_s for at in times) >= 2
            for f in plan.faults
            for times in by_place.values()
        )

    plan, ran = shrunk({**LARGE, "operations": OPERATIONS}, fails)
    assert plan.operations is not None
    assert len(plan.operations) == 3 and len(plan.faults) == 1
    assert {(op.producer, op.topic, op.partition, op.bytes) for op in plan.operations} == {(0, "appends-0", 0, 100)}
    assert (plan.workload.topics, plan.workload.partitions, plan.workload.producers) == (1, 1, 1)
    assert plan.faults[0].at_s <= 0.5
    assert len(ran) < 400


def test_a_transaction_keeps_only_the_steps_that_are_needed() -> None:
    def fails(plan: Plan) -> bool:
        texts = [each.steps.split(", ") for each in plan.operations or ()]
        return any("poll" in each and "send 2" in each[each.index("poll") :] for each in texts)

    steps = ("send 0, poll", "pause 7, send 1, poll, send 0, send 2, poll", "send 2")
    operations = [[1.0 + number, 0, each, 200, "commit"] for number, each in enumerate(steps)]
    load = {"name": "transactions", "partitions": 3}
    plan, _ = shrunk({"seed": 3, "runtime": "sim", "workload": load, "operations": operations}, fails)
    assert [each.steps for each in plan.operations or ()] == ["poll, send 2"]
    assert plan.cluster.nodes == 1, "a smaller cluster gets the settings that the workload needs there"


def test_transactions_move_to_the_first_partitions_and_to_one_producer_if_the_failure_allows_it() -> None:
    def fails(plan: Plan) -> bool:
        sends = [set(each.partitions) for each in plan.operations or ()]
        cut = [fault.target for fault in plan.faults]
        return any(len(each) == 2 and cut == [f"leader:transactions-0-{max(each)}"] for each in sends)

    operations = [[1.0, 0, "send 4", 200, "abort"], [2.0, 1, "send 1, send 3, poll", 200, "commit"]]
    fault = {"at_s": 1.0, "duration_s": 1.0, "action": "partition", "target": "leader:transactions-0-3"}
    load = {"name": "transactions", "partitions": 5, "producers": 2}
    plan, _ = shrunk(
        {"seed": 3, "runtime": "sim", "workload": load, "operations": operations, "faults": [fault]}, fails
    )
    assert [(each.producer, each.steps) for each in plan.operations or ()] == [(0, "send 0, send 1")]
    assert (plan.workload.partitions, plan.workload.producers) == (2, 1)


def test_a_large_load_is_thinned_before_anything_else_is_tried() -> None:
    topics, clients = 2, 4
    listed = [[n / 2000, n % clients, f"appends-{n % topics}", n % 3, 100] for n in range(40_000)]

    def fails(plan: Plan) -> bool:
        return any(op.topic == "appends-1" and op.partition == 2 for op in plan.operations or ())

    workload = {"topics": topics, "partitions": 3, "producers": clients}
    values = {**LARGE, "runtime": "sim", "time_s": 20, "workload": workload, "operations": listed}
    plan, ran = shrunk(values, fails)
    assert len(plan.operations or ()) == 1
    assert all(len(each.operations or ()) < 200 for each in ran)


def test_a_failure_that_takes_luck_is_kept_in_a_thinner_load_by_another_seed() -> None:
    """Under one seed it takes all of the operations, under the seed after the next any of them."""
    listed = [[round(0.01 * n, 2), 0, "appends-0", 0, 100] for n in range(200)]

    def fails(plan: Plan) -> bool:
        here = len(plan.operations or ())
        return here == len(listed) or (plan.seed % 10 == 9 and here > 0)

    workload = {"topics": 1, "partitions": 1, "producers": 1}
    plan, ran = shrunk({"seed": 77, "time_s": 5.0, "workload": workload, "operations": listed}, fails)
    assert len(plan.operations or ()) == 1
    assert plan.seed == 79
    assert len(ran) < 60


def test_a_seed_that_the_failure_needs_stays() -> None:
    def fails(plan: Plan) -> bool:
        return any(op.at_s == 0.34 for op in plan.operations or ()) and plan.seed == 77

    workload = {"topics": 1, "partitions": 1, "producers": 1}
    listed = [[round(0.01 * n, 2), 0, "appends-0", 0, 100] for n in range(200)]
    plan, _ = shrunk({"seed": 77, "time_s": 5.0, "workload": workload, "operations": listed}, fails)
    assert len(plan.operations or ()) == 1
    assert plan.seed == 77


def test_what_came_before_the_load_is_kept_as_a_part_of_it() -> None:
    def fails(plan: Plan) -> bool:
        return len(plan.operations or ()) >= 1 and any(
            1.5 <= f.at_s - op.at_s <= 3 for f in plan.faults for op in plan.operations or ()
        )

    early = {"time_s": 5.0, "faults": FAULTS[:1], "operations": [[-0.7, 0, "appends-0", 0, 100]]}
    plan, _ = shrunk(early, fails)
    assert plan.warmup_s == 0
    assert [op.at_s for op in plan.operations or ()] == [0.0]
    assert plan.faults[0].at_s in (1.5, 2.0)


def test_operations_that_are_needed_for_their_time_only_are_traded_for_a_slower_link() -> None:
    slow = {"at_s": 0.5, "duration_s": 2.0, "action": "latency", "target": "node:2", "params": {"latency_ms": 30.0}}

    def fails(plan: Plan) -> bool:
        waits = [float(f.params.get("latency_ms", 100)) for f in plan.faults if f.action == "latency"]
        return 1 <= len(plan.operations or ()) * max(waits, default=0) / 300

    listed = [[round(0.1 * n, 3), 0, "appends-0", 0, 100] for n in range(10)]
    plan, _ = shrunk({"time_s": 5.0, "faults": [slow], "operations": listed}, fails)
    assert len(plan.operations or ()) <= 3


def test_no_operation_is_traded_where_as_many_are_needed() -> None:
    def fails(plan: Plan) -> bool:
        return len(plan.operations or ()) >= 5 and any(f.action == "latency" for f in plan.faults)

    plan, _ = shrunk({**LARGE, "operations": OPERATIONS}, fails)
    assert len(plan.operations or ()) == 5
    assert plan.faults[0].params == {}


@pytest.mark.parametrize("value", [0.0, 1.0, 0.013, 3.2, 17.77, 100.0])
def test_a_plainer_number_is_plainer_so_that_the_search_ends(value: float) -> None:
    assert all(plainness(each) < plainness(value) for each in plainer(value))
    assert 0.0 in plainer(value) or value == 0.0


def test_whoever_runs_the_shrunk_plan_again_runs_it_with_the_settings_that_it_failed_with(tmp_path: Path) -> None:
    """The command adds what brokers need for groups where a plan does not say it: so the shrunk plan says it."""
    group = {"name": "groups", "members": 3, "group_protocol": "mixed", "session_timeout_ms": 1500}
    settings = {"offsets.topic.num.partitions": "1"}
    cluster = {"nodes": 3, "settings": settings}
    values = {"seed": 3, "runtime": "sim", "cluster": cluster, "workload": group, "time_s": 9}
    plan, ran = shrunk(values, lambda each: each.workload.members >= 1)
    (tmp_path / "plan.toml").write_text(write_plan(plan))
    again = plan_of(tmp_path / "plan.toml", {"broker_settings": {}, "topic_settings": {}}, "sim")
    assert again.cluster.settings == plan.cluster.settings
    assert plan.cluster.settings["offsets.topic.num.partitions"] == "5"
    assert len(ran) > 1
