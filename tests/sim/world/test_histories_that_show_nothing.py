"""Histories without the lines that their workload exists for: their verdict is unknown, not valid."""

from __future__ import annotations

import json
import tomllib
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.figures import figures_of_history
from squall.chaos.runs.result import SimResult
from squall.chaos.runs.simulation import simulate
from squall.checkers.history.groups import EVENTS
from squall.checkers.history.parser import parse
from squall.checkers.in_memory import RunJudgement, judge_bytes
from squall.checkers.verdict import INVALID, UNKNOWN, VALID
from squall.workloads.registry import SCENARIOS

Line = dict[str, Any]
NO_MEMBERS = "the history has no members of groups that owned partitions"
NO_OUTPUTS = "the history has no records that members of groups made of those that they had read"


LOADS: dict[str, dict[str, Any]] = {
    "groups": {"rate": 4, "partitions": 2, "members": 2, "churn": 0, "poll_pause_ms": 200},
    "pipeline": {"rate": 3, "partitions": 2, "instances": 2, "churn": 0, "poll_pause_ms": 200},
}


def run_of(workload: str) -> tuple[Plan, SimResult]:
    cluster = {"nodes": 3, "settings": SCENARIOS[workload].BROKERS}
    load = {"name": workload, **LOADS[workload]}
    plan = make_plan({"runtime": "sim", "seed": 4, "time_s": 6.0, "cluster": cluster, "workload": load, "faults": []})
    return plan, simulate(plan)


def resealed(history: bytes, keep: Callable[[Line], Line | None]) -> bytes:
    """Return the history with each line replaced by the result of `keep`, and with a last line that counts the rest."""
    *lines, end = map(json.loads, history.splitlines())
    kept = b"".join(json.dumps(line).encode() + b"\n" for line in map(keep, lines) if line is not None)
    sealed = {**end, "lines": kept.count(b"\n"), "crc32": zlib.crc32(kept)}
    return kept + json.dumps(sealed).encode() + b"\n"


def judged(plan: Plan, run: SimResult, keep: Callable[[Line], Line | None]) -> RunJudgement:
    history = resealed(run.files["history.jsonl"], keep)
    own = figures_of_history(plan.workload, lambda: parse(history.splitlines(keepends=True)), [], [])
    return judge_bytes(
        "r",
        history,
        run.files["nemesis.jsonl"],
        tomllib.loads(run.files["plan.toml"].decode()),
        info=json.loads(run.files["run.json"]),
        workload=own,
    )


def without_members(line: Line) -> Line | None:
    return None if line["e"] == "x" and line["kind"] in EVENTS else line


def without_inputs(line: Line) -> Line:
    return {name: value for name, value in line.items() if name != "src"}


@pytest.mark.parametrize(
    ("workload", "keep", "lacking", "names"),
    [
        ("groups", without_members, NO_MEMBERS, {"dual-ownership", "stuck-group"}),
        ("pipeline", without_inputs, NO_OUTPUTS, {"eos-duplicate", "eos-loss"}),
    ],
)
def test_checks_that_could_show_nothing_did_not_run(
    workload: str, keep: Callable[[Line], Line | None], lacking: str, names: set[str]
) -> None:
    plan, run = run_of(workload)
    whole = judged(plan, run, lambda line: line).verdict
    assert whole.verdict == VALID, whole.reasons
    assert not names & whole.not_run.keys()
    less = judged(plan, run, keep).verdict
    assert {less.not_run.get(name) for name in names} == {lacking}
    assert less.verdict == UNKNOWN
    assert [each for each in less.reasons if " could not be judged: " in each] == list(less.reasons)
    assert len(less.reasons) == 1 and less.reasons[0].endswith(lacking)


class FirstOf:
    """Keeps the first of certain lines, and empties the others."""

    def __init__(self, without: Callable[[Line], Line | None]) -> None:
        self.without = without
        self.seen = False

    def __call__(self, line: Line) -> Line | None:
        less = self.without(line)
        if less == line or not self.seen:
            self.seen = self.seen or less != line
            return line
        return less


def without_assignments(line: Line) -> Line | None:
    """Remove all assignments except that of the first partition."""
    if line["e"] != "x" or line["kind"] != "assigned":
        return line
    return {**line, "at": {part: at for part, at in line["at"].items() if part == "0"}}


@pytest.mark.parametrize(
    ("workload", "keep", "lacking", "names"),
    [
        ("groups", without_assignments, "no member of a group ever owned groups-0-1", {"stuck-group"}),
        ("pipeline", FirstOf(without_inputs), "1 outputs name their input, and ", {"eos-duplicate", "eos-loss"}),
    ],
)
def test_checks_that_saw_a_part_of_the_run_only_say_so_and_prove_nothing(
    workload: str, keep: Callable[[Line], Line | None], lacking: str, names: set[str]
) -> None:
    plan, run = run_of(workload)
    whole = judged(plan, run, lambda line: line).verdict
    assert whole.verdict == VALID and not names & whole.ran_on_little.keys()
    less = judged(plan, run, keep).verdict
    assert not names & less.not_run.keys()
    assert all(less.ran_on_little[name].startswith(lacking) for name in names)
    # Positions behind inputs without an output are a finding of their own.
    assert less.verdict == (UNKNOWN if workload == "groups" else INVALID)
    assert any(f" could not be judged: {lacking}" in each for each in (*less.reasons, *less.notes))


def without_most_polls() -> Callable[[Line], Line]:
    """Remove the records of all polls except the first of each process."""
    polled: dict[int, int] = {}
    asked: dict[int, int] = {}

    def keep(line: Line) -> Line:
        if line["e"] == "i" and line["f"] == "poll":
            asked[line["op"]] = line["p"]
        proc = asked.get(line.get("op", -1), -1) if line["e"] == "c" else -1
        if proc == -1 or not any(entry[5] for entry in line.get("got", ())):
            return line
        polled[proc] = polled.get(proc, 0) + 1
        return line if polled[proc] == 1 else {**line, "got": [[*entry[:5], [], *entry[6:]] for entry in line["got"]]}

    return keep


def test_partitions_that_never_changed_their_owner_say_little_of_two_owners() -> None:
    plan, run = run_of("pipeline")
    whole = judged(plan, run, lambda line: line).verdict
    why = (
        "members of the group squall-pipeline took a partition over from each other 0 times, and it reads 2 partitions"
    )
    assert dict(whole.ran_on_little) == {"dual-ownership": why}
    assert whole.verdict == VALID, "that is what this plan is: nobody comes or goes"


def test_a_group_that_read_hardly_anything_proves_nothing() -> None:
    plan, run = run_of("groups")
    less = judged(plan, run, without_most_polls()).verdict
    assert less.ran_on_little["stuck-group"].startswith("members of the group squall-group got ")
    lacking = [each for each in (*less.reasons, *less.notes) if each.startswith("stuck-group could not be judged: ")]
    assert less.verdict != VALID and lacking[0].endswith("were acknowledged where they read")


def test_the_simulators_own_verdict_asks_for_what_the_workload_is_there_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_of("groups")[1].verdict == VALID
    monkeypatch.setattr(SCENARIOS["groups"], "MEANT_FOR", ("G1c",))  # which needs transactions
    assert run_of("groups")[1].verdict == UNKNOWN
