"""The operations of the workload `transactions`, and what its plans need."""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.chaos.commands.run import plan_of
from squall.chaos.draws import rng_for
from squall.chaos.plans.operations import concrete
from squall.chaos.plans.plan import PlanError, make_plan, read_plan, write_plan
from squall.chaos.plans.swarm import swarm_plan
from squall.checkers.plan_facts import facts_of
from squall.workloads.group_brokers import FACTOR as OFFSETS_FACTOR
from squall.workloads.transactions import TransactionsLoad
from squall.workloads.transactions.brokers import FACTOR
from squall.workloads.transactions.operations import MicroOp, PlannedTransaction, steps_of, text_of

LOAD = {"name": "transactions", "rate": 6, "producers": 2, "aborts": 0.3}


@given(
    st.lists(
        st.sampled_from([MicroOp("poll"), MicroOp("send", 0), MicroOp("send", 12), MicroOp("pause", 250)]), min_size=1
    )
)
def test_steps_are_what_their_text_says(steps: list[MicroOp]) -> None:
    assert list(steps_of(text_of(steps))) == steps


def test_every_drawn_transaction_is_an_operation_and_all_there_is_to_do_is_drawn() -> None:
    load = TransactionsLoad.model_validate({**LOAD, "rate": 50})
    drawn = load.drawn(partial(rng_for, 3), 0, 60)
    assert not any(map(load.wrong, drawn))
    steps = [[step.do for step in steps_of(each.steps)] for each in drawn]
    assert {len([do for do in each if do != "pause"]) for each in steps if len(each) < 5} == {1, 2, 3, 4}
    assert {do for each in steps for do in each} == {"send", "poll", "pause"}
    assert max(len(set(each.partitions)) for each in drawn) == 3
    assert {each.end for each in drawn} == {"commit", "abort", "leave"}
    longest = [max((step.number for step in steps_of(each.steps) if step.do == "pause"), default=0) for each in drawn]
    outliving = [each for each, pause in zip(drawn, longest, strict=True) if pause > load.transaction_timeout_ms]
    assert 0 < len(outliving) < len(drawn) / 50
    assert all(each.end == "commit" and len(each.steps.split("pause")[1].split(",")) > 1 for each in outliving)


def test_a_transaction_becomes_smaller_by_one_step_at_a_time() -> None:
    whole = [1.0, 0, "send 0, poll, pause 5", 100, "commit"]
    less = [each[2] for each in TransactionsLoad.simplifications(whole)]
    assert less == ["poll, pause 5", "send 0, pause 5", "send 0, poll"]
    assert not list(TransactionsLoad.simplifications([1.0, 0, "poll", 100, "commit"]))


def test_its_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    plan = concrete(make_plan({"workload": LOAD, "runtime": "sim"}))
    assert isinstance(plan.workload, TransactionsLoad)
    path = tmp_path / "plan.toml"
    path.write_text(write_plan(plan))
    assert read_plan(path) == plan
    assert {each.end for each in plan.operations or ()} == {"commit", "abort", "leave"}


@pytest.mark.parametrize(
    ("operation", "wrong"),
    [
        ([1, 2, "send 0", 100, "commit"], "producer 2"),
        ([1, 0, "", 100, "commit"], "'' is no step"),
        ([1, 0, "send 0, send", 100, "commit"], "'send' is no step"),
        ([1, 0, "send 0,, poll", 100, "commit"], "'' is no step"),
        ([1, 0, "poll 1", 100, "commit"], "'poll 1' is no step"),
        ([1, 0, "send -1", 100, "commit"], "'send -1' is no step"),
        ([1, 0, "send 3", 100, "commit"], "send 3: there are partitions 0 to 2"),
        ([1, 0, ", ".join(["poll"] * 17), 100, "commit"], "17 steps"),
        ([1, 0, "pause 60001", 100, "commit"], "pause 60001"),
        ([1, 0, "send 0", 3, "commit"], "bytes 3"),
        ([1, 0, "send 0", 100, "perhaps"], "end 'perhaps'"),
        ([1, 0, 2, 0, 100, 0, "commit"], r"is no operation of .* which is \[at_s, producer, steps, bytes, end\]"),
    ],
)
def test_what_is_no_operation_of_it_is_refused(operation: list[object], wrong: str) -> None:
    with pytest.raises(PlanError, match=wrong):
        make_plan({"workload": LOAD, "operations": [operation]})


@pytest.mark.parametrize(
    ("isolation", "levels"),
    [("both", {0, 1}), ("read_committed", {1}), ("read_uncommitted", {0})],
)
def test_its_readers_have_the_isolation_that_is_asked_for(isolation: str, levels: set[int]) -> None:
    load = TransactionsLoad.model_validate({**LOAD, "isolation": isolation})
    assert {load.level(number) for number in range(load.readers)} == levels


def test_another_isolation_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(PlanError, match="isolation: .*'read_committed', 'read_uncommitted' or 'both'.*serializable"):
        make_plan({"workload": {**LOAD, "isolation": "serializable"}})


@pytest.mark.parametrize("target", ["squall", "kafka"])
@pytest.mark.parametrize(
    ("name", "factor", "why"),
    [
        ("transactions", FACTOR, "no producer gets a transactional id"),
        ("pipeline", FACTOR, "no producer gets a transactional id"),
        ("pipeline", OFFSETS_FACTOR, "no group finds its coordinator"),
        ("groups", OFFSETS_FACTOR, "no group finds its coordinator"),
    ],
)
def test_a_plan_whose_coordinators_log_wants_more_brokers_is_refused(
    name: str, factor: str, why: str, target: str
) -> None:
    workload = {"name": name, "replication_factor": 1, "min_isr": 1}
    values = {"target": target, "workload": workload, "cluster": {"nodes": 2}}
    make_plan(values)
    with pytest.raises(PlanError, match=f"workload {name}: {factor} is 3, and .* 2 brokers, so {why}: set {factor}=2"):
        make_plan({**values, "cluster": {"nodes": 2, "settings": {factor: "3"}}})
    other = FACTOR if name == "groups" else "default.replication.factor"
    make_plan({**values, "cluster": {"nodes": 2, "settings": {other: "3"}}})


def test_what_is_set_by_hand_stays_so() -> None:
    given = {"transaction.state.log.min.isr": "1"}
    flags = {"workload": "transactions", "nodes": 3, "seed": 1, "broker_settings": given, "topic_settings": {}}
    assert plan_of(None, flags, "sim").cluster.settings.items() >= given.items()
    with pytest.raises(PlanError, match="is 3, and the cluster has 1 broker, so no producer gets a transactional id"):
        plan_of(None, flags | {"nodes": 1, "broker_settings": {FACTOR: "3"}}, "sim")


def test_the_plan_of_a_client_library_says_that_it_speaks_the_first_generation() -> None:
    plan = make_plan({"workload": {**LOAD, "client": "confluent"}})
    assert isinstance(plan.workload, TransactionsLoad)
    assert plan.workload.generation == 1
    assert facts_of(tomllib.loads(write_plan(plan))).configuration.transaction_version == 1
    own = make_plan({"workload": LOAD})
    assert facts_of(tomllib.loads(write_plan(own))).configuration.transaction_version == 2
    with pytest.raises(PlanError, match="client confluent speaks generation 1 of transactions only"):
        make_plan({"workload": {**LOAD, "client": "confluent", "generation": 2}})


def test_swarms_of_it_are_plans_and_a_swarm_without_a_name_has_some_of_them() -> None:
    plans = [swarm_plan(seed, workload="transactions") for seed in range(60)]
    assert {plan.workload.name for plan in plans} == {"transactions"}
    assert len({plan.workload.model_dump_json() for plan in plans}) > 10
    assert {swarm_plan(seed).workload.name for seed in range(60)} == {"appends"}
    of_any = [swarm_plan(seed, workload=None).workload for seed in range(100)]
    assert 10 <= sum(load.name == "transactions" for load in of_any) <= 30
    assert {load.name for load in of_any} == {"appends", "transactions", "groups", "pipeline", "semantics"}
    assert any(getattr(load, "plain_rate", 0) for load in of_any)


@pytest.mark.parametrize(
    ("operation", "rate", "why"),
    [
        ((1.0, -1, "send 0", 100, "plain"), 0, "there is no plain producer"),
        ((1.0, 0, "send 0", 100, "plain"), 3, "producer -1 and the one step"),
        ((1.0, -1, "send 0, poll", 100, "plain"), 3, "producer -1 and the one step"),
        ((1.0, -1, "jump", 100, "plain"), 3, "is no step"),
    ],
)
def test_what_is_no_record_of_the_plain_producer_is_refused(operation: tuple[object, ...], rate: int, why: str) -> None:
    load = TransactionsLoad.model_validate({**LOAD, "plain_rate": rate})
    assert why in load.wrong(PlannedTransaction(*operation))  # type: ignore[arg-type]
    assert not rate or not load.wrong(PlannedTransaction(1.0, -1, "send 0", 100, "plain"))


@pytest.mark.parametrize(
    ("topic", "size"), [({}, 16_384), ({"segment.bytes": "65536"}, 16_384), ({"segment.bytes": "2048"}, 1_792)]
)
def test_a_batch_is_as_large_as_ever_unless_a_segment_is_smaller(topic: dict[str, str], size: int) -> None:
    load = TransactionsLoad.model_validate({**LOAD, "topic_settings": topic})
    assert load.producer_settings().batch_size == size
