"""The workload `steady`: for how long nothing succeeded, measured, judged and shown."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from squall.chaos.plans.operations import concrete
from squall.chaos.plans.plan import PlanError, make_plan, read_plan, write_plan
from squall.chaos.plans.swarm import swarm_plan
from squall.checkers.history.tables import EMPTY_POLL, OK, POLL, SEND, History, RecordedFault
from squall.workloads.steady import SteadyLoad
from squall.workloads.steady.availability import AvailabilityGap, gaps, measure
from squall.workloads.steady.section import section_of as made
from tests.support.clusters.driven import DrivenCluster

S = 1_000_000_000


def fault(began_s: float, ended_s: float, number: int = 0) -> RecordedFault:
    began, ended = int(began_s * S), int(ended_s * S)
    return RecordedFault(number, "kill", "P", (), "node:1", (1,), {}, began, began, ended, {"done": True}, "")


def played(run: DrivenCluster, seconds: float, meanwhile: Any = None) -> History:
    """Return the history of a load on a scripted cluster."""
    trio.run(partial(run.play, seconds, meanwhile, finals=False), clock=MockClock(autojump_threshold=0))
    return run.history()


# ------------------------------------------------------------------------------------------------------ how it runs


def test_one_producer_and_one_reader_at_a_fixed_rate(tmp_path: Path) -> None:
    history = played(DrivenCluster(tmp_path / "history.jsonl", SteadyLoad()), 10)
    sends = [record for record in history.records.rows() if record.kind == SEND]
    assert len(sends) == pytest.approx(100, abs=2)
    assert {record.st for record in sends} == {OK}
    assert {record.part for record in sends} == {0} and len({record.proc for record in sends}) == 1
    apart = [(b.t0 - a.t0) / S for a, b in zip(sends, sends[1:], strict=False)]
    assert min(apart) > 0.09 and max(apart) < 0.11
    readers = {record.proc for record in history.records.rows() if record.kind in (POLL, EMPTY_POLL)}
    assert len(readers) == 1


def test_its_plan_has_its_own_settings_and_nothing_of_another_workload(tmp_path: Path) -> None:
    plan = make_plan({"workload": {"name": "steady", "rate": 5}, "runtime": "sim"})
    assert isinstance(plan.workload, SteadyLoad)
    path = tmp_path / "plan.toml"
    path.write_text(write_plan(concrete(plan)))
    assert read_plan(path) == concrete(plan)
    with pytest.raises(PlanError, match=r"workload\.producers: there is no such setting"):
        make_plan({"workload": {"name": "steady", "producers": 2}})
    with pytest.raises(PlanError, match="did you mean 'steady'"):
        make_plan({"workload": {"name": "stedy"}})
    with pytest.raises(PlanError, match="operation 0: 3 bytes"):
        make_plan({"workload": {"name": "steady"}, "operations": [[1, 3]]})


def test_its_drawn_operations_are_a_fixed_time_apart() -> None:
    plan = concrete(make_plan({"seed": 3, "workload": {"name": "steady"}, "runtime": "sim", "time_s": 10}))
    times = [each.at_s for each in plan.operations or ()]
    assert len(times) == 120 and times[0] >= -2 and times[-1] < 10
    assert {round(b - a, 3) for a, b in zip(times, times[1:], strict=False)} == {0.1}


def test_swarms_of_it_are_plans() -> None:
    plans = [swarm_plan(seed, workload="steady") for seed in range(60)]
    assert {plan.workload.name for plan in plans} == {"steady"}
    assert len({plan.workload.model_dump_json() for plan in plans}) > 10


# ------------------------------------------------------------------------------------------- what it measures


def test_gaps_lie_between_successes_and_are_cut_at_the_ends_of_the_load() -> None:
    assert gaps([30, 5, 12, 30, 99], 10, 40) == [
        AvailabilityGap(10, 12),
        AvailabilityGap(12, 30),
        AvailabilityGap(30, 40),
    ]
    assert gaps([], 10, 40) == [AvailabilityGap(10, 40)]
    assert gaps([], 10, 10) == []


def test_an_outage_is_measured_where_it_was_and_given_to_the_fault_that_was_on(tmp_path: Path) -> None:
    run = DrivenCluster(tmp_path / "history.jsonl", SteadyLoad())

    async def outage() -> None:
        await trio.sleep(5)
        for node in run.cluster.node_ids:
            run.cluster.stop(node)
        await trio.sleep(4)
        for node in run.cluster.node_ids:
            run.cluster.start(node)

    history = played(run, 20, outage)
    began_s = history.mono_ns / S
    said = measure(history, [fault(began_s + 1, began_s + 2), fault(began_s + 6, began_s + 7, 1)], 10)
    for name in ("writes", "reads"):
        (standstill,) = said[name]["standstills"]
        assert standstill["from_s"] == pytest.approx(5, abs=0.7)
        assert 4 <= said[name]["longest_s"] < 6.5
        assert said[name]["without_s"] == said[name]["longest_s"]
        calm, hurt = (each[name] for each in said["faults"])
        assert calm["longest_s"] < 1 and calm["without_s"] == 0
        assert hurt == {"longest_s": said[name]["longest_s"], "without_s": said[name]["longest_s"]}
        assert said[name]["available"] == pytest.approx(1 - said[name]["without_s"] / 20, abs=0.02)


def test_a_quiet_load_has_no_standstill_at_any_rate(tmp_path: Path) -> None:
    for rate in (1, 20):
        scenario = SteadyLoad(rate=rate)
        history = played(DrivenCluster(tmp_path / f"{rate}.jsonl", scenario), 12)
        said = scenario.measured(lambda history=history: history, [])  # type: ignore[misc]
        assert (said["writes"]["without_s"], said["reads"]["without_s"]) == (0, 0), rate
        assert said["writes"]["available"] == 1


def test_a_history_without_a_send_says_nothing() -> None:
    assert measure(History(), [], 10) == {}


def test_a_strip_is_whole_and_its_standstills_are_where_they_were() -> None:
    times = {"longest_s": 2.0, "without_s": 2.0}
    line = {**times, "available": 0.8, "standstills": [{"from_s": 4.0, "to_s": 6.0}]}
    on = {"id": 0, "action": "pause", "hit": ["2"], "began_s": 4.0, "ended_s": None, "writes": times, "reads": times}
    figures = {"from_s": 0.0, "to_s": 10.0, "standstill_s": 1.0, "writes": line, "reads": line, "faults": [on]}
    section = made(figures)
    assert "nothing was acknowledged for 2.0 s" in section.sentence
    assert section.strip is not None
    writes, _, under = section.strip.lanes
    assert [(span.begin_s, span.end_s, span.tone) for span in writes.spans] == [
        (0, 4, "good"), (4, 6, "bad"), (6, 10, "good"),
    ]  # fmt: skip
    assert [(span.begin_s, span.end_s) for span in under.spans] == [(4, 10)]
    assert section.tables[0].rows[0][2] == "to the end"
