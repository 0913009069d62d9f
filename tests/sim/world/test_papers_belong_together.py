"""A history names the plan, nemesis.jsonl and run.json of its own run: files of another run prove nothing."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.simulation import simulate
from squall.checkers.in_memory import judge_bytes
from squall.checkers.verdict import UNKNOWN, VALID, Verdict

Info = dict[str, Any]
KILL = {"at_s": 3.0, "duration_s": 2.0, "action": "kill", "target": "node:1"}


@cache
def files(seed: int = 3) -> Mapping[str, bytes]:
    """Return the run directory of a short valid run."""
    workload = {"rate": 20, "topics": 1, "partitions": 2}
    values = {"seed": seed, "runtime": "sim", "time_s": 10.0, "warmup_s": 1.0, "workload": workload}
    return simulate(make_plan({**values, "faults": [KILL]})).files


def judged(*, plan: str = "", nemesis: bytes | None = None, info: Info | None = None) -> Verdict:
    papers = files()
    text = plan or papers["plan.toml"].decode()
    told = json.loads(papers["run.json"]) if info is None else info
    lines = papers["nemesis.jsonl"] if nemesis is None else nemesis
    return judge_bytes("r", papers["history.jsonl"], lines, tomllib.loads(text), info=told).verdict


def is_unknown(verdict: Verdict, why: str) -> bool:
    return verdict.verdict == UNKNOWN and any(each.startswith(why) for each in verdict.reasons)


def test_the_papers_of_one_run_belong_together_and_comments_in_a_plan_change_nothing() -> None:
    assert judged().verdict == VALID, judged().reasons
    assert judged(plan="# as it was\n" + files()["plan.toml"].decode()).verdict == VALID


OTHERS = (
    ("acks = -1", "acks = 1"),
    ("min_isr = 2", "min_isr = 1"),
    ("rate = 20", "rate = 21"),
    ("stuck_s = ", "stuck_s = 9"),
)


@pytest.mark.parametrize(("here", "there"), OTHERS)
def test_a_plan_of_another_configuration_with_the_same_seed_is_unknown(here: str, there: str) -> None:
    text = files()["plan.toml"].decode()
    assert here in text
    assert is_unknown(judged(plan=text.replace(here, there, 1)), "plan.toml is not the plan")


def test_under_a_plan_that_was_changed_nothing_is_held_against_the_cluster() -> None:
    """The run had acks=1, which permits losses. They are no findings under a plan with acks=all that replaced the
    run's.
    """
    first = b'"v":'
    lines = files()["history.jsonl"].splitlines(keepends=True)
    sends = [number for number, line in enumerate(lines) if first in line and b'"f":"send"' in line]
    text = files()["plan.toml"].decode().replace("acks = -1", "acks = 1", 1)
    lost = [line for number, line in enumerate(lines) if number not in sends[:1]]
    verdict = judge_bytes("r", b"".join(lost), files()["nemesis.jsonl"], tomllib.loads(text)).verdict
    assert verdict.verdict == UNKNOWN


def test_a_nemesis_that_says_something_else_is_unknown() -> None:
    lines = files()["nemesis.jsonl"].splitlines(keepends=True)
    for number, line in enumerate(lines):
        changed = [*lines[:number], line.replace(b'"pid":', b'"pid":1'), *lines[number + 1 :]]
        if changed != lines:
            assert is_unknown(judged(nemesis=b"".join(changed)), "nemesis.jsonl is not as it was"), number
        assert is_unknown(
            judged(nemesis=b"".join(lines[:number] + lines[number + 1 :])), "nemesis.jsonl is not as it was"
        )
    assert is_unknown(judged(nemesis=b""), "nemesis.jsonl is not as it was")


def test_a_last_line_that_no_longer_names_the_other_files_is_unknown() -> None:
    *lines, last = files()["history.jsonl"].splitlines(keepends=True)
    end = json.loads(last)
    del end["seals"]
    history = b"".join([*lines, json.dumps(end).encode() + b"\n"])
    papers = files()
    verdict = judge_bytes("r", history, papers["nemesis.jsonl"], tomllib.loads(papers["plan.toml"].decode())).verdict
    assert is_unknown(verdict, f"history.jsonl: line {len(lines) + 1}: the header names the run's plan")


PHASES = {"converge": "converged", "writes after healing": "writes_after_healing", "final reads": "final_reads"}
CHANGES: dict[str, Callable[[Info], object]] = {
    **{
        f"{phase} and its phase are gone": lambda info, phase=phase, key=key: (  # type: ignore[misc]
            info.pop(key),
            info.update(phases=[each for each in info["phases"] if each["name"] != phase]),
        )
        for phase, key in PHASES.items()
    },
    "no limit any more": lambda info: info["writes_after_healing"].update(limit_s=1),
    "fewer faults": lambda info: info.update(faults={"planned": 0, "landed": 0}),
    "another run": lambda info: info.update(run="sim-seed4"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_run_json_that_says_something_else_is_unknown(what: str) -> None:
    info = json.loads(files()["run.json"])
    CHANGES[what](info)
    assert is_unknown(judged(info=info), "run.json ")


def test_what_a_changed_run_json_shows_is_not_the_clusters_fault() -> None:
    info = json.loads(files()["run.json"])
    info["writes_after_healing"].update(ok=False, lacking={"appends-0-0": "no answer"})
    info["converged"].update(ok=False, lacking={"appends-0-1": "no leader"})
    verdict = judged(info=info)
    assert is_unknown(verdict, "run.json was changed")
    assert verdict.anomalies
    assert all(each.permitted is None for each in verdict.anomalies)


def test_nothing_of_another_run_of_the_same_plan_but_for_its_seed_fits() -> None:
    other = files(4)
    assert is_unknown(judged(nemesis=other["nemesis.jsonl"]), "nemesis.jsonl is not as it was")
    assert is_unknown(judged(info=json.loads(other["run.json"])), "run.json is about the run")
    assert is_unknown(judged(plan=other["plan.toml"].decode()), "plan.toml is not the plan")
