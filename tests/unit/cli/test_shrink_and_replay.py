"""`squall shrink` and `squall replay`, with a simulator that is made up."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from squall.chaos import cli
from squall.chaos.commands.run import plan_of
from squall.chaos.plans.plan import Plan, make_plan, read_plan, write_plan
from squall.chaos.runs.recorded import recorded
from squall.chaos.runs.result import FailureSignature, SimResult
from squall.chaos.runs.saved import save

LOST = FailureSignature("anomaly", "lost-write")
FAULTS = [
    {"at_s": 1.0, "duration_s": 2.0, "action": "kill", "target": "node:1"},
    {"at_s": 4.0, "duration_s": 2.0, "action": "pause", "target": "random"},
]


def a_plan(**more: Any) -> Plan:
    """A simulated load of a few records and two faults."""
    values = {"seed": 7, "runtime": "sim", "time_s": 10.0, "workload": {"rate": 20, "topics": 1}, "faults": FAULTS}
    return make_plan({**values, **more})


class Simulator:
    """Replaces `squall.chaos.runs.simulation`. A plan fails if `fails` returns true for it; its digest depends on its
    faults alone.
    """

    def __init__(self, fails: Callable[[Plan], FailureSignature | None]) -> None:
        self.fails = fails
        self.ran: list[tuple[Plan, str | None]] = []
        self.anomalies: Callable[[Plan], tuple[str, ...]] = lambda plan: ()
        self.noise = ""

    def simulate(self, plan: Plan, *, mutant: str | None = None, **how: Any) -> SimResult:
        """Return a result in the place of `squall.chaos.runs.simulation.simulate`."""
        self.ran.append((plan, mutant))
        failure = self.fails(plan)
        actions = "".join(fault.action for fault in plan.faults)
        trace = "".join(json.dumps({"t": 1.0, "e": name}) + "\n" for name in ("a", "b", actions + self.noise))
        info = {"schema": 1, "run": f"sim-seed{plan.seed}", "phases": []}

        def run_files() -> dict[str, bytes]:
            return {
                "plan.toml": write_plan(plan).encode(),
                "run.json": json.dumps(info).encode(),
                "nodes/1/trace.jsonl": trace.encode(),
            }

        return SimResult(
            plan=plan,
            digest=f"{actions}-{plan.seed}{self.noise}",
            trace=[{}] * 3,
            messages=None,
            violations=[],
            anomalies=self.anomalies(plan),
            verdict="invalid" if failure else "valid",
            failure=failure,
            reasons=(),
            counts=Counter(),
            sim_s=10.0,
            cpu_s=0.1,
            trouble=None,
            mutant=mutant,
            run_files=run_files,
        )


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Simulator:
    """Yield a simulator in which a run fails if it kills a broker."""
    made = Simulator(lambda plan: LOST if any(f.action == "kill" for f in plan.faults) else None)
    module = ModuleType("squall.chaos.runs.simulation")
    module.simulate = made.simulate  # type: ignore[attr-defined]
    module.SimulationTimeout = type("SimulationTimeout", (BaseException,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "squall.chaos.runs.simulation", module)
    return made


def saved(simulator: Simulator, root: Path, plan: Plan, mutant: str | None = None) -> Path:
    """A simulated run in a directory."""
    return save(simulator.simulate(plan, mutant=mutant), root, "./squall sim").path


def test_a_failing_run_is_shrunk_to_a_run_directory_of_its_own(
    simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = saved(simulator, tmp_path, a_plan())
    assert cli.run(["shrink", str(run)]) == 0
    plan = read_plan(run / "shrunk" / "plan.toml")
    assert [fault.action for fault in plan.faults] == ["kill"]
    assert plan.operations == ()
    assert recorded(run / "shrunk").failure == LOST
    assert "1 step, " in capsys.readouterr().out
    assert (run / "shrunk" / "report.html").exists()
    assert cli.run(["replay", str(run / "shrunk")]) == 0


def test_shrinking_twice_replaces_what_was_there(simulator: Simulator, tmp_path: Path) -> None:
    run = saved(simulator, tmp_path, a_plan())
    assert cli.run(["shrink", str(run)]) == 0
    (run / "shrunk" / "stale").touch()
    assert cli.run(["shrink", str(run)]) == 0
    assert not (run / "shrunk" / "stale").exists()


def test_a_shorter_search_keeps_the_smaller_plan_of_an_earlier_one(
    simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first try of the second search is interrupted."""
    run = saved(simulator, tmp_path, a_plan())
    assert cli.run(["shrink", str(run)]) == 0
    small, fails, tried = (run / "shrunk/plan.toml").read_text(), simulator.fails, []

    def interrupted(plan: Plan) -> FailureSignature | None:
        tried.append(plan)
        if len(tried) == 3:
            raise KeyboardInterrupt
        return fails(plan)

    simulator.fails = interrupted
    capsys.readouterr()
    assert cli.run(["shrink", str(run)]) == 130
    assert (run / "shrunk/plan.toml").read_text() == small
    out, err = capsys.readouterr()
    assert "from shrunk/ of an earlier search: 0 operations, 1 fault, " in " ".join(err.split())
    assert "1 step, 1 try, " in out


def test_who_interrupts_before_the_search_is_told_that_nothing_was_saved(
    simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = saved(simulator, tmp_path, a_plan())

    def interrupted(plan: Plan) -> FailureSignature | None:
        raise KeyboardInterrupt

    simulator.fails = interrupted
    assert cli.run(["shrink", str(run)]) == 130
    assert "squall: interrupted: nothing was saved" in capsys.readouterr().err
    assert not (run / "shrunk").exists()


def test_an_earlier_plan_that_fails_no_more_is_replaced(simulator: Simulator, tmp_path: Path) -> None:
    run = saved(simulator, tmp_path, a_plan())
    save(simulator.simulate(a_plan(faults=[])), tmp_path, "./squall sim").path.rename(run / "shrunk")
    assert cli.run(["shrink", str(run)]) == 0
    assert [fault.action for fault in read_plan(run / "shrunk/plan.toml").faults] == ["kill"]


def test_an_interrupted_search_saves_the_smallest_plan_so_far_and_says_so(
    simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = saved(simulator, tmp_path, a_plan())
    fails, tried = simulator.fails, []

    def interrupted_once(plan: Plan) -> FailureSignature | None:
        tried.append(fails(plan))
        if tried.count(LOST) == 3 and tried[-1] == LOST:
            raise KeyboardInterrupt
        return tried[-1]

    simulator.fails = interrupted_once
    assert cli.run(["shrink", str(run)]) == 130
    out, err = capsys.readouterr()
    assert "interrupted: a smaller plan may exist" in out
    assert "the smallest plan found so far is run once more and saved" in " ".join(err.split())
    kept = recorded(run / "shrunk")
    assert kept.failure == LOST
    assert kept.plan.operations is not None and len(kept.plan.operations) < len(simulator.ran[1][0].operations or ())
    assert (run / "shrunk" / "report.html").exists()


def test_with_a_mutant_only_what_a_sound_broker_stands_counts(simulator: Simulator, tmp_path: Path) -> None:
    run = saved(simulator, tmp_path, a_plan(), mutant="1")
    # Every killing fails without the mutant too: this is not the mutant's doing.
    assert cli.run(["shrink", str(run)]) == 2


def test_what_does_not_fail_any_more_is_no_finding(
    simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = saved(simulator, tmp_path, a_plan())
    simulator.fails = lambda plan: None
    assert cli.run(["shrink", str(run)]) == 2
    assert "it was recorded as anomaly lost-write" in capsys.readouterr().err
    simulator.fails = lambda plan: FailureSignature("deadlock", "x")
    assert cli.run(["shrink", str(run)]) == 2


def test_a_replay_with_the_same_digest_is_the_same_run(
    simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = saved(simulator, tmp_path, a_plan(), mutant="1")
    assert cli.run(["replay", str(run)]) == 0
    assert "the same trace" in capsys.readouterr().err
    assert simulator.ran[-1][1] == "1"


LOW = {"workload": {"name": "groups", "session_timeout_ms": 20_000}, "limits": {"stuck_s": 15}}
"""Limits that a new plan must not have: earlier versions ran such plans."""


def test_a_run_with_limits_that_a_new_plan_must_not_have_is_replayed_shrunk_and_run_again(
    simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"seed": 7, "runtime": "sim", "time_s": 10.0, "faults": FAULTS, **LOW}
    run = saved(simulator, tmp_path, make_plan(values, as_recorded=True))
    assert cli.run(["replay", str(run)]) == 0
    said = capsys.readouterr().err
    assert "the same trace" in said and "as it was recorded, limits.stuck_s: 15 s is below 24 s" in said
    assert cli.run(["shrink", str(run)]) == 0
    assert [fault.action for fault in read_plan(run / "shrunk" / "plan.toml").faults] == ["kill"]
    again = plan_of(run / "plan.toml", {"broker_settings": {}, "topic_settings": {}}, "process")
    assert (again.limits.stuck_s, again.runtime) == (15, "process")
    assert "as it was recorded, limits.stuck_s" in capsys.readouterr().err


def test_another_trace_is_shown_where_it_parts(
    simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = saved(simulator, tmp_path, a_plan())
    simulator.noise = "!"
    assert cli.run(["replay", str(run)]) == 1
    said = capsys.readouterr().err
    assert "nodes/1/trace.jsonl, line 3" in said
    assert '- {"t": 1.0, "e": "killpause"}' in said
    assert '+ {"t": 1.0, "e": "killpause!"}' in said


# ------------------------------------------------------------------------------------------ runs of processes


def process_run(path: Path, anomalies: list[dict[str, Any]]) -> Path:
    """A recorded run of processes with a verdict."""
    path.mkdir()
    (path / "plan.toml").write_text(write_plan(a_plan(runtime="process")))
    (path / "verdict.json").write_text(json.dumps({"schema": 1, "verdict": "invalid", "anomalies": anomalies}))
    return path


def test_a_process_runs_anomaly_is_looked_for_seed_by_seed(
    simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = process_run(tmp_path / "r", [{"name": "lost-write", "permitted": False}])
    simulator.fails = lambda plan: LOST if plan.seed == 9 else None
    simulator.anomalies = lambda plan: ("lost-write",) if plan.seed == 9 else ()
    assert cli.run(["replay", str(run), "--in", "sim", "--tries", "5"]) == 0
    tries = json.loads((run / "replays.json").read_text())["tries"]
    assert [(each["seed"], each["failure"]) for each in tries] == [
        (7, None),
        (8, None),
        (9, "anomaly lost-write"),
    ]
    found = recorded(run / "sim")
    assert found.failure == LOST and found.plan.seed == 9 and found.plan.runtime == "sim"
    assert "squall shrink" in capsys.readouterr().out
    assert all(plan.runtime == "sim" for plan, _ in simulator.ran)


def test_an_anomaly_that_never_shows_is_said_to_be_missing(simulator: Simulator, tmp_path: Path) -> None:
    run = process_run(tmp_path / "r", [{"name": "lost-write", "permitted": False}])
    assert cli.run(["replay", str(run), "--in", "sim", "--tries", "3"]) == 1
    assert len(json.loads((run / "replays.json").read_text())["tries"]) == 3
    assert not (run / "sim").exists()


@pytest.mark.parametrize("anomalies", [[], [{"name": "lost-write", "permitted": True}]])
def test_without_an_anomaly_there_is_nothing_to_look_for(
    simulator: Simulator, tmp_path: Path, anomalies: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    run = process_run(tmp_path / "r", anomalies)
    assert cli.run(["replay", str(run), "--in", "sim"]) == 3
    assert "nothing to look for" in capsys.readouterr().err
    assert cli.run(["shrink", str(run)]) == 3
    assert "squall replay" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["shrink", "replay"])
def test_what_is_no_run_is_refused(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([command, str(tmp_path / "nobody")]) == 3
    assert cli.run([command, str(tmp_path)]) == 3
    (tmp_path / "plan.toml").write_text("time_s = 'x'\n")
    assert cli.run([command, str(tmp_path)]) == 3
    assert "time_s" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["shrink", "replay"])
def test_a_simulation_without_its_run_json_is_refused_and_its_plan_named(
    command: str, simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = saved(simulator, tmp_path, a_plan())
    (run / "run.json").unlink()
    assert cli.run([command, str(run)]) == 3
    err = capsys.readouterr().err
    assert "run.json is missing" in err
    assert f"sim --plan {run}/plan.toml" in err


def test_faults_of_the_simulator_cannot_be_replayed_with_processes(simulator: Simulator, tmp_path: Path) -> None:
    lost = [{"at_s": 1.0, "duration_s": 2.0, "action": "packet_loss", "target": "node:1"}]
    run = saved(simulator, tmp_path, a_plan(faults=lost))
    assert cli.run(["replay", str(run), "--in", "process"]) == 3
