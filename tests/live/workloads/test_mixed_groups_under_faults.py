"""A group with members of both group protocols on real brokers: one member crashes, another one gets a second process
with its instance id.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import trio

from squall.chaos.interrupts import stoppable
from squall.chaos.plans.plan import Plan, make_plan, write_plan
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.progress import Progress
from squall.chaos.runs.real import runtime_maker
from squall.chaos.runs.run import Run
from squall.chaos.runs.run_store import DirectoryRunStore
from squall.checkers.in_memory import RunJudgement, judge_bytes
from squall.workloads.groups import GroupsLoad
from tests.support.patience import scaled, scaled_ms

pytestmark = pytest.mark.night("a foreign library through long failovers; the gate has one")

LOAD = {
    "name": "groups", "group_protocol": "mixed", "static_members": True, "members": 4, "partitions": 8, "rate": 40,
    "churn": 0, "session_timeout_ms": scaled_ms(1500), "max_poll_interval_ms": scaled_ms(3000),
}  # fmt: skip
"""Members 0 and 2 begin with the classic protocol, 1 and 3 with the consumer protocol, and each replacement draws one.
The faults leave one member of each protocol alone, so the group has both whenever it is stable.
"""
FAULTS = [
    {"at_s": scaled(1), "duration_s": scaled(4), "action": "member_crash", "target": "member:1"},
    {"at_s": scaled(5.5), "duration_s": scaled(1), "action": "member_twin", "target": "member:2"},
]


def played(plan: Plan, root: Path) -> RunDirectory:
    """Run the plan up to the end of its final reads."""
    directory = RunDirectory.create(root, plan.seed)
    progress = Progress("test")
    make_runtime, _ = runtime_maker(plan, progress.say)
    papers = DirectoryRunStore(directory)
    papers.plan(write_plan(plan))
    trio.run(stoppable, Run(plan, papers, make_runtime(directory.path), progress, "").go, progress.say)
    return directory


def judged(directory: RunDirectory) -> RunJudgement:
    """Judge the run by the reference engine, without Spark."""
    files = {name: (directory.path / name).read_bytes() for name in ("history.jsonl", "nemesis.jsonl", "run.json")}
    plan = tomllib.loads((directory.path / "plan.toml").read_text())
    info = json.loads(files["run.json"])
    return judge_bytes(directory.run_id, files["history.jsonl"], files["nemesis.jsonl"], plan, info=info)


def test_a_group_of_both_protocols_keeps_its_promises_while_members_crash_and_have_twins(tmp_path: Path) -> None:
    settings = {**GroupsLoad.BROKERS, **GroupsLoad.suited_brokers(LOAD)}
    cluster = {"nodes": 3, "settings": settings}
    lasts = {"warmup_s": scaled(1), "time_s": scaled(8)}
    plan = make_plan({"seed": 6, **lasts, "cluster": cluster, "workload": LOAD, "faults": FAULTS})
    judgement = judged(played(plan, tmp_path))
    assert judgement.verdict.verdict == "valid", judgement.verdict.reasons
    crash, twin = judgement.faults
    assert crash.evidence is not None and crash.evidence["given_up_s"] > crash.evidence["listed_until_s"] > 0
    assert twin.evidence is not None and twin.evidence["fenced"]
    history = judgement.history
    spoken = {each.proc: each.settings.get("group_protocol") for each in history.processes}
    generations: dict[int, set[object]] = {}
    for grant in history.grants.rows():
        generations.setdefault(grant.gen, set()).add(spoken[grant.proc])
    assert {"classic", "consumer"} in generations.values(), "in one generation"
    assert {"dual-ownership", "lost-position", "stuck-group"}.isdisjoint(judgement.verdict.not_run)
