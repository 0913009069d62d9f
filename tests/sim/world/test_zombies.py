"""Zombies of transactional producers: our broker refuses them all, and a broker that accepts one is found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from squall.broker.log.producer_rules import ProducerRules, ProducerStateEntry
from squall.broker.protocol.records import BatchHeader
from squall.chaos.plans.plan import PlanError, make_plan, with_schedule
from squall.chaos.plans.schedule import DEFAULT_KINDS
from squall.chaos.plans.swarm import swarm_plan
from squall.chaos.runs.result import SimResult
from squall.chaos.runs.simulation import simulate
from squall.checkers.history.tables import FAIL
from squall.workloads.registry import SCENARIOS

LOAD = {"name": "transactions", "rate": 4, "producers": 2, "partitions": 2, "aborts": 0.0}


def haunted(generation: int, *targets: str) -> SimResult:
    """Simulate a run in which each of these producers becomes a zombie, one after the other."""
    faults = [
        {"at_s": 1.0 + 4.0 * number, "duration_s": 1.5, "action": "zombie", "target": target}
        for number, target in enumerate(targets)
    ]
    workload = {**LOAD, "generation": generation}
    values = {"runtime": "sim", "seed": 3, "time_s": 4.0 + 4.0 * len(targets), "workload": workload}
    return simulate(make_plan({**values, "faults": faults}), stop_at_first=False)


def evidence(result: SimResult) -> list[dict[str, Any]]:
    last = {line["id"]: line for line in map(json.loads, result.run_files()["nemesis.jsonl"].splitlines())}
    return [line["evidence"] for line in last.values()]


def processes(result: SimResult) -> dict[int, dict[str, Any]]:
    """Return the settings of each process in the history."""
    lines = map(json.loads, result.run_files()["history.jsonl"].splitlines())
    return {line["p"]: line["settings"] for line in lines if line["e"] == "p"}


@pytest.mark.parametrize("generation", [1, 2])
def test_a_zombie_writes_nothing_on_our_broker(generation: int) -> None:
    result = haunted(generation, "producer:0", "producer:1", "producer:0")
    assert result.verdict == "valid", result.reasons
    for seen in evidence(result):
        assert seen["sends"] == seen["ends"] == 1
        assert seen["told"][0] == "send fail"
        assert seen["told"][-1] in ("end PRODUCER_FENCED", "end INVALID_PRODUCER_EPOCH")
    known = processes(result)
    zombies = [each["zombie"] for each in evidence(result)]
    assert [process for process, settings in known.items() if settings.get("zombie")] == zombies
    assert all(known[each["followed_by"]]["transactional_id"] == known[each["zombie"]]["transactional_id"]
               for each in evidence(result))  # fmt: skip


def test_a_zombie_that_a_broker_lets_in_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker here checks neither producer epochs nor sequence numbers."""
    came: list[int] = [0]

    def unknown(rules: Any, entry: ProducerStateEntry, header: BatchHeader) -> None:
        came[0] = header.base_sequence

    monkeypatch.setattr(ProducerRules, "known_batch", unknown)
    monkeypatch.setattr(ProducerRules, "expected_sequence", lambda rules, entry, epoch: came[0])
    monkeypatch.setattr(ProducerRules, "is_fenced", lambda rules, entry, epoch: False)
    monkeypatch.setattr(ProducerRules, "is_verified", lambda rules, asked, epoch: True)
    result = haunted(1, "producer:0")
    assert evidence(result)[0]["told"][0] == "send ok"
    assert result.judgement is not None
    assert "zombie-write" in {finding.anomaly for finding in result.judgement.findings}


def test_a_plain_producer_beside_the_others_is_no_zombie() -> None:
    fault = {"at_s": 1.0, "duration_s": 1.0, "action": "zombie", "target": "producer:2"}
    workload = {**LOAD, "plain_rate": 2}
    with pytest.raises(
        PlanError, match="no producer:2: the workload has producer:0 to producer:1 with a transactional id"
    ):
        make_plan({"runtime": "sim", "workload": workload, "faults": [fault]})
    make_plan({"runtime": "sim", "workload": workload, "faults": [{**fault, "action": "client"}]})
    for seed in range(4):
        named = make_plan({"runtime": "sim", "seed": seed, "time_s": 5.0, "workload": workload,
                           "faults": [{**fault, "target": "producer"}]})  # fmt: skip
        assert evidence(simulate(named))[0]["client"] != "producer 2"


def test_a_workload_without_transactional_ids_has_no_zombies() -> None:
    fault = {"at_s": 1, "duration_s": 1, "action": "zombie", "target": "producer"}
    with pytest.raises(PlanError, match="the workload has no transactional producers"):
        make_plan({"runtime": "sim", "faults": [fault]})
    with pytest.raises(PlanError, match="of producers only"):
        make_plan({"runtime": "sim", "workload": LOAD, "faults": [{**fault, "target": "reader:0"}]})


def test_seeds_draw_zombies_for_transactional_producers_and_nobody_else() -> None:
    assert "zombie" not in DEFAULT_KINDS
    drawn = with_schedule({"seed": 1, "time_s": 60.0, "workload": LOAD}, None)
    assert "zombie" in {fault.action for fault in drawn.faults}
    assert "zombie" not in {fault.action for fault in with_schedule({"seed": 1, "time_s": 60.0}, None).faults}
    swarm = [{fault.action for fault in swarm_plan(seed, workload="transactions").faults} for seed in range(20)]
    assert 3 <= sum("zombie" in actions for actions in swarm) <= 15
    assert not any(
        "zombie" in {fault.action for fault in swarm_plan(seed, workload="appends").faults} for seed in range(40)
    )


PIPELINE = {"name": "pipeline", "rate": 4, "partitions": 2, "poll_pause_ms": 200, "churn": 0}


def haunted_pipeline(generation: int, protocol: str, *targets: str) -> SimResult:
    """Simulate a run of a pipeline in which each of these instances becomes a zombie, one after the other."""
    faults = [
        {"at_s": 1.0 + 9.0 * number, "duration_s": 1.5, "action": "zombie", "target": target}
        for number, target in enumerate(targets)
    ]
    workload = {**PIPELINE, "generation": generation, "group_protocol": protocol}
    scenario = SCENARIOS["pipeline"]
    cluster = {"nodes": 3, "settings": {**scenario.BROKERS, **scenario.suited_brokers(workload)}}
    values = {"runtime": "sim", "seed": 3, "time_s": 2.0 + 9.0 * len(targets), "cluster": cluster}
    return simulate(make_plan({**values, "workload": workload, "faults": faults}), stop_at_first=False)


@pytest.mark.parametrize(("generation", "protocol"), [(1, "classic"), (2, "classic"), (2, "consumer")])
def test_a_zombie_of_a_pipeline_writes_nothing_and_commits_nothing_and_its_group_does_not_know_it(
    generation: int, protocol: str
) -> None:
    result = haunted_pipeline(generation, protocol, "producer:1", "producer:2")
    assert result.verdict == "valid", result.reasons
    assert len(evidence(result)) == 2
    for seen in evidence(result):
        assert seen["sends"] == seen["ends"] == 1
        assert seen["told"][:2] == ["send fail", "offsets INVALID_PRODUCER_EPOCH"]
        assert seen["told"][2] in ("end PRODUCER_FENCED", "end INVALID_PRODUCER_EPOCH")
    lines = [json.loads(line) for line in result.run_files()["history.jsonl"].splitlines()]
    for seen in evidence(result):
        own = [line for line in lines if line.get("p") == seen["zombie"]]
        (commit,) = (line["op"] for line in own if line["e"] == "i" and line["f"] == "commit")
        assert [line["st"] for line in lines if line["e"] == "c" and line["op"] == commit] == [FAIL]
        # It says goodbye to a group that has given it up.
        assert [line["err"] for line in own if line["e"] == "x" and line["kind"] == "left"] == ["UNKNOWN_MEMBER_ID"]


def test_a_zombie_of_a_pipeline_that_brokers_let_in_makes_an_output_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers check neither producer epochs nor sequence numbers. The successor's commit then makes the zombie's
    output visible beside the successor's own output of the same input.
    """
    came: list[int] = [0]

    def unknown(rules: Any, entry: ProducerStateEntry, header: BatchHeader) -> None:
        came[0] = header.base_sequence

    monkeypatch.setattr(ProducerRules, "known_batch", unknown)
    monkeypatch.setattr(ProducerRules, "expected_sequence", lambda rules, entry, epoch: came[0])
    monkeypatch.setattr(ProducerRules, "is_fenced", lambda rules, entry, epoch: False)
    monkeypatch.setattr(ProducerRules, "is_verified", lambda rules, asked, epoch: True)
    result = haunted_pipeline(1, "classic", "producer:1")
    assert evidence(result)[0]["told"][0] == "send ok"
    assert result.judgement is not None
    assert {"zombie-write", "eos-duplicate"} <= {finding.anomaly for finding in result.judgement.findings}


def test_an_instance_that_may_own_nothing_is_made_no_zombie() -> None:
    fault = {"at_s": 1, "duration_s": 1, "action": "zombie", "target": "producer"}
    with pytest.raises(PlanError, match="fewer partitions than instances"):
        make_plan({"runtime": "sim", "workload": {**PIPELINE, "instances": 3}, "faults": [fault]})
    with pytest.raises(PlanError, match="no producer:0: the workload has producer:1 to producer:2 with"):
        make_plan({"runtime": "sim", "workload": PIPELINE, "faults": [{**fault, "target": "producer:0"}]})
    plans = [swarm_plan(seed, workload="pipeline") for seed in range(60)]
    assert 4 <= sum("zombie" in {fault.action for fault in plan.faults} for plan in plans) <= 30
