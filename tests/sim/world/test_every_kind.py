"""Every kind of fault, from its random draw to the run's page. A new kind is tested without a change here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from squall.chaos.faults.audit import audit
from squall.chaos.faults.kind import FaultKind, FaultTrait
from squall.chaos.faults.kinds import KINDS
from squall.chaos.plans.plan import Plan, make_plan, read_plan, write_plan
from squall.chaos.plans.schedule import make_schedule
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.checkers import fault_traits
from squall.checkers.fault_classes import class_of, classes_of, not_landed
from squall.checkers.nemesis_log import SCHEMA, parse_faults
from squall.reports.fault_words import fault_rows
from squall.reports.page import render
from squall.reports.problems import StorySubject
from squall.reports.run_files import read_run
from squall.reports.story_facts import facts_of
from squall.workloads.registry import SCENARIOS

pytestmark = pytest.mark.gate

SECONDS = 10.0
SIMULATED = [kind for kind in KINDS.values() if "sim" in kind.worlds]
LOAD = {"rate": 20, "zones": 2, "topics": 1, "partitions": 2, "min_bytes": 2000, "max_bytes": 3500}
TRANSACTIONS = {"name": "transactions", "rate": 5, "zones": 2, "producers": 2, "partitions": 2}
MEMBERS = {
    "name": "groups", "rate": 5, "zones": 2, "partitions": 2, "members": 2, "static_members": True, "churn": 0,
    "session_timeout_ms": 1500, "max_poll_interval_ms": 2000, "poll_pause_ms": 200,
}  # fmt: skip
OFTEN = {"flush.messages": "1", "segment.bytes": "16384"}
"""Settings with frequent fsyncs and small segments, so that disk faults find some."""


def drawn(kind: FaultKind, seed: int) -> dict[str, Any]:
    """Return one fault of a kind as a random plan of this seed has it, in the form of a plan's file."""
    length_s = max(20.0, kind.draw.lasts_s[1] + 12)
    fault = make_schedule(seed, [kind.name], length_s)[0]
    params = dict(kind.draw.likely(seed, fault, 5))
    length_s = fault.duration_s
    return {"at_s": 5.0, "duration_s": length_s, "action": kind.name, "target": fault.target, "params": params}


def plan_of(kind: FaultKind, seed: int, runtime: str = "sim") -> Plan:
    """Return a plan with one such fault."""
    fault = drawn(kind, seed)
    more: dict[str, Any] = {"upgrade_to": "another"} if FaultTrait.NEEDS_SECOND_VERSION in kind.traits else {}
    load = TRANSACTIONS if FaultTrait.NEEDS_TRANSACTIONS in kind.traits else LOAD
    load = {**TRANSACTIONS, "name": "load"} if FaultTrait.NEEDS_LOADS in kind.traits else load
    if FaultTrait.NEEDS_MEMBERS in kind.traits:
        load, more = MEMBERS, {**more, "cluster": {"nodes": 3, "settings": SCENARIOS["groups"].BROKERS}}
    workload = {**load, "topic_settings": OFTEN}
    values = {"seed": seed, "runtime": runtime, "time_s": fault["duration_s"] + SECONDS, "workload": workload}
    return make_plan({**values, **more, "faults": [fault]})


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_drawn_fault_comes_back_from_its_plans_file(kind: FaultKind, tmp_path: Path) -> None:
    for seed in range(5):
        plan = plan_of(kind, seed, sorted(kind.worlds - {"external"})[0])
        (tmp_path / "plan.toml").write_text(write_plan(plan))
        assert read_plan(tmp_path / "plan.toml") == plan


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_broke_off_can_be_said_as_well(kind: FaultKind) -> None:
    assert isinstance(kind.describe_evidence({}), str)
    params = kind.draw.params(Random(1))
    assert kind.describe_effect({**kind.defaults, **params}, 1, []).strip()


@pytest.mark.parametrize("kind", SIMULATED, ids=[kind.name for kind in SIMULATED])
def test_each_kind_is_played_proven_judged_and_told(kind: FaultKind, tmp_path: Path) -> None:
    for seed in range(8):
        plan = plan_of(kind, seed)
        result = simulate(plan, stop_at_first=False)
        assert result.judgement is not None
        (fault,) = result.judgement.faults
        if not_landed(fault) is None:
            break
    assert not_landed(fault) is None, "one of a few seeds lands"

    directory = save(result, tmp_path, "again")
    lines = (directory.path / "nemesis.jsonl").read_bytes().splitlines(keepends=True)
    line = json.loads(lines[-1])
    assert line["schema"] == SCHEMA
    assert line["fault_class"] == kind.fault_class
    assert line["traits"] == sorted((kind.traits | kind.more_traits(line["params"])) & fault_traits.ALL)
    (again,), problem = parse_faults(lines)
    assert problem is None
    assert audit(lines) == [], "its kind finds in it what it wrote"
    assert class_of(again.action, again.fault_class) in classes_of([again])

    files = read_run(directory.path)
    (row,) = fault_rows(files)
    assert (row.state, row.evidence) == ("landed", line["words"]["evidence"])
    assert row.what.startswith(kind.name)
    assert row.evidence.endswith(".") and "{" not in row.evidence and "None" not in row.evidence
    assert "kernel" not in row.evidence and "engine" not in row.evidence, "a simulation has neither"
    assert FaultTrait.OF_CLIENTS in kind.traits or not re.search(r"(?<!imulated )[Pp]rocess \d", row.evidence)
    page = render(directory.path).read_text()
    assert kind.name in page
    bars = facts_of(files, StorySubject("lost-write", "", "orders-0", 0)).faults
    assert {bar.words for bar in bars} == set(line["words"]["nodes"].values())
