"""Whole runs in virtual time: their results, and the names of their failures."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

from squall.broker.controller import elections
from squall.broker.controller.elections import PartitionChange
from squall.broker.log.log import Log
from squall.broker.log.results import AppendResult
from squall.broker.net.server import Server
from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.faults.nemesis import Nemesis
from squall.chaos.mutants import find
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs import batch, simulation
from squall.chaos.runs.batch import SeedBatch, limited, run_batch
from squall.chaos.runs.observer import ClusterObserver
from squall.chaos.runs.result import FailureSignature, SimResult
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.chaos.runtimes.sim.invariants import writes
from squall.chaos.runtimes.sim.invariants.violation import InvariantViolation
from squall.chaos.runtimes.sim.invariants.watch import InvariantChecker
from squall.chaos.runtimes.sim.runtime import SimRuntime
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import OK, SEND
from squall.checkers.history.values import AFTER_HEALING, producer_of
from squall.reports.run_list import runs_in, to_remove
from squall.workloads import payload
from squall.workloads.payload import VerifiedPayload

pytestmark = pytest.mark.gate

OPERATIONS = [[-0.5 + number * 0.25, 0, "appends-0", number % 2, 100 + number] for number in range(8)]


def small(**more: Any) -> Plan:
    """Return a plan with eight records to two partitions on three brokers."""
    values: dict[str, Any] = {
        "seed": 5,
        "runtime": "sim",
        "warmup_s": 0.5,
        "time_s": 4,
        "workload": {"topics": 1, "partitions": 2, "producers": 1, "readers": 1},
        "operations": OPERATIONS,
    }
    return make_plan({**values, **more})


@pytest.fixture(scope="module")
def clean() -> SimResult:
    faults = [{"at_s": 1, "duration_s": 1.5, "action": "kill", "target": "leader:appends-0-0"}]
    return simulate(small(faults=faults), messages=True)


def test_a_clean_run_is_valid_and_has_all_the_files_of_a_run(clean: SimResult) -> None:
    assert (clean.verdict, clean.failure, clean.trouble) == ("valid", None, None), clean.told
    assert clean.sim_s > 5
    assert {"plan.toml", "run.json", "history.jsonl", "nemesis.jsonl"} <= set(clean.files)
    assert {f"nodes/{node}/trace.jsonl" for node in (1, 2, 3)} <= set(clean.files)
    assert any(name.startswith("nodes/1/data/appends-0-0/") for name in clean.files)
    assert clean.messages
    info = json.loads(clean.files["run.json"])
    assert info["faults"] == {"planned": 1, "landed": 1}
    assert info["converged"]["ok"]


def test_the_operations_are_the_load(clean: SimResult) -> None:
    history = parse(clean.files["history.jsonl"].splitlines(keepends=True))
    ours = {each.proc for each in history.processes if AFTER_HEALING in each.settings}
    sends = [each for each in history.records.rows() if each.kind == SEND and producer_of(each.val) not in ours]
    assert len(sends) == len(OPERATIONS)
    assert {send.st for send in sends} == {OK}
    sent = [json.loads(line) for line in clean.files["history.jsonl"].splitlines() if b'"f":"send"' in line]
    sent = [line for line in sent if line["p"] not in ours]
    assert [line["b"] for line in sent] == [size for *_, size in OPERATIONS]
    began = sent[0]["t"]
    for line, (at_s, *_) in zip(sent, OPERATIONS, strict=True):
        assert (line["t"] - began) / 1e9 == pytest.approx(float(at_s) + 0.5, abs=0.02)


def test_the_same_plan_is_the_same_run_and_another_seed_another(clean: SimResult) -> None:
    again = simulate(clean.plan)
    assert again.digest == clean.digest
    assert again.files["history.jsonl"] == clean.files["history.jsonl"]
    assert simulate(clean.plan.model_copy(update={"seed": 6})).digest != clean.digest


def test_a_saved_run_has_its_replicas_compared_and_a_verdict(clean: SimResult, tmp_path: Path) -> None:
    directory = save(clean, tmp_path, "./squall sim --seed 5")
    verdict = json.loads(directory.verdict.read_text())
    assert verdict["verdict"] == "valid"
    assert json.loads((directory.path / "replicas.json").read_text())["findings"] == []
    assert directory.read_info()["simulated"]["digest"] == clean.digest
    assert (tmp_path / "latest").is_symlink()


def test_a_saved_run_is_as_old_as_its_files_and_its_simulation_repeats_byte_for_byte(
    clean: SimResult, tmp_path: Path
) -> None:
    before = datetime.now(UTC)
    save(clean, tmp_path, "again", tables=False)
    after = datetime.now(UTC)
    (row,) = runs_in(tmp_path)
    assert row.began is not None
    assert before - timedelta(seconds=clean.cpu_s + 1) <= row.began <= after
    assert to_remove([row], after, 1, None) == []
    assert to_remove([row], after + timedelta(days=2), 1, None) == [row]
    assert simulate(clean.plan).files["run.json"] == clean.files["run.json"]


def test_a_broken_invariant_ends_the_run_and_names_the_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looked = InvariantChecker.look

    def look(self: InvariantChecker, *dirty_nodes: Any) -> None:
        looked(self, *dirty_nodes)
        if self._world.kernel.now > 2 and not self._world.violations:
            self._world.violations.append(
                InvariantViolation("made-up", "it is broken", 2.0, 1, "appends-0", 0, {"epoch": 3})
            )

    monkeypatch.setattr(InvariantChecker, "look", look)
    result = simulate(small())
    assert result.failure == FailureSignature("invariant", "made-up")
    assert result.verdict == "invalid"
    assert "it is broken" in result.reasons[0]
    assert result.sim_s < 10
    directory = save(result, tmp_path, "again", latest=False)
    assert json.loads((directory.path / "violations.json").read_text())[0]["details"] == {"epoch": 3}
    verdict = json.loads(directory.verdict.read_text())
    assert verdict["verdict"] == "invalid"
    assert "it is broken" in verdict["reasons"][0]
    going_on = simulate(small(), stop_at_first=False)
    assert going_on.failure == FailureSignature("invariant", "made-up")
    assert json.loads(going_on.files["run.json"])["final_reads"]


def test_trouble_of_ours_behind_a_broken_invariant_is_told_where_the_run_was_to_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = InvariantChecker.look

    def look(self: InvariantChecker, *dirty_nodes: Any) -> None:
        looked(self, *dirty_nodes)
        if self._world.violations:
            raise RuntimeError("a look failed")
        if self._world.kernel.now > 2:
            self._world.violations.append(InvariantViolation("made-up", "it is broken", 2.0, 1, "appends-0", 0, {}))

    monkeypatch.setattr(InvariantChecker, "look", look)
    assert simulate(small()).trouble is None
    going_on = simulate(small(), stop_at_first=False)
    assert going_on.failure == FailureSignature("invariant", "made-up")
    assert "a look failed" in (going_on.trouble or "")


def test_looks_that_miss_what_is_written_are_trouble_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "_hook", lambda *_: object.__setattr__)
    result = simulate(small())
    assert (result.verdict, result.failure) == ("unknown", None)
    assert "no write to it was seen" in (result.trouble or ""), result.reasons


def test_an_acknowledgement_of_another_place_than_the_record_has_breaks_an_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    appended = Log.append_as_leader

    def append(self: Log, *args: Any, **named: Any) -> AppendResult:
        done = appended(self, *args, **named)
        return done if done.error or self.topic != "appends-0" else done._replace(base_offset=0)

    monkeypatch.setattr(Log, "append_as_leader", append)
    for acks in (-1, 1):
        load = {"topics": 1, "partitions": 2, "producers": 1, "readers": 1, "acks": acks, "idempotence": acks == -1}
        result = simulate(small(workload=load))
        assert result.failure == FailureSignature("invariant", "acknowledged-offset"), acks
        assert "offset 0 holds b'SQ1" in result.reasons[0]
        assert result.violations[0].details["offset"] == 0


def test_a_record_that_is_another_one_when_it_is_read_again_breaks_an_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verify, seen = payload.verify, set[int]()

    def verify_again(*args: Any) -> VerifiedPayload:
        found = verify(*args)
        again = found.value in seen
        seen.add(found.value)
        return found._replace(value=found.value + 1) if again else found

    monkeypatch.setattr(payload, "verify", verify_again)
    result = simulate(small())
    assert result.failure == FailureSignature("invariant", "consistent-read")
    assert "was served as value" in result.reasons[0]


def test_a_reader_that_is_served_what_is_not_committed_breaks_an_invariant() -> None:
    result = simulate(find("22").plan(0), mutant="22")
    assert result.failure == FailureSignature("invariant", "served-is-committed")


def test_a_controller_that_keeps_eligible_who_is_not_waited_for_is_found_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other invariants cannot see it: until a record is written, the eligible replica lacks nothing."""
    faults = [{"at_s": 2, "duration_s": 2, "action": "stop", "target": "follower:appends-0-0"}]
    plan, target = small(faults=faults), elections._PlannedPartition
    keep = target.keep_eligible

    def keep_eligible(self: Any, change: PartitionChange) -> None:
        keep(self, replace(change, min_isr=99))

    assert simulate(plan, stop_at_first=False).violations == []
    monkeypatch.setattr(target, "keep_eligible", keep_eligible)
    assert {each.name for each in simulate(plan, stop_at_first=False).violations} == {"elr-superset"}


def test_a_controller_resigns_by_request_and_another_epoch_has_one() -> None:
    fault = {"at_s": 1, "duration_s": 2, "action": "leadership", "target": "controller", "params": {"how": "resign"}}
    result = simulate(small(faults=[fault]))
    assert result.verdict == "valid", result.reasons
    seen = json.loads(result.files["nemesis.jsonl"].splitlines()[-1])["evidence"]
    assert seen["after"]["epoch"] > seen["before"]["epoch"]
    resigned = [line for line in result.trace if line["e"] == "controller_resigned"][0]
    assert (resigned["n"], resigned["epoch"]) == (f"broker-{seen['before']['controller']}", seen["before"]["epoch"])
    active = [line["epoch"] for line in result.trace if line["e"] == "controller_active"]
    assert seen["after"]["epoch"] in active


def test_a_failure_of_the_harness_is_unknown_and_has_its_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def play(self: Nemesis) -> None:
        raise KeyError("a bug of ours")

    monkeypatch.setattr(Nemesis, "play", play)
    result = simulate(small())
    assert result.failure is None
    assert result.verdict == "unknown"
    assert result.trouble is not None
    assert "a bug of ours" in result.files["harness-traceback.txt"].decode()
    assert json.loads(result.files["run.json"])["counters"]["acked"], "of the warm-up"
    assert result.reasons == ("KeyError: 'a bug of ours'",), "that of the nursery's group would be a line of dashes"
    verdict = json.loads(save(result, tmp_path, "again").verdict.read_text())
    assert (verdict["verdict"], verdict["reasons"]) == ("unknown", list(result.reasons))


def test_a_checker_that_stops_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge_bytes(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("in a checker")

    monkeypatch.setattr(simulation, "judge_bytes", judge_bytes)
    result = simulate(small())
    assert (result.verdict, result.failure) == ("unknown", None)
    assert "in a checker" in str(result.trouble)


def test_a_cluster_that_does_not_converge_says_what_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    async def converged(self: ClusterObserver, topics: Any, timeout_s: float) -> dict[str, Any]:
        if trio.current_time() < 4:
            return {"ok": True, "took_s": 0, "lacking": {}}
        return {"ok": False, "took_s": timeout_s, "lacking": {"appends-0-0": "no leader"}}

    monkeypatch.setattr(ClusterObserver, "converged", converged)
    monkeypatch.setattr(InvariantChecker, "stuck", lambda self: ["node 2 is fenced"])
    result = simulate(small())
    assert result.failure == FailureSignature("liveness", "not-converged")
    assert result.reasons == ("node 2 is fenced",)
    assert json.loads(result.files["run.json"])["converged"]["stuck"] == ["node 2 is fenced"]


def test_a_broker_that_ends_by_itself_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = Server.settle

    def broken(self: Server) -> None:
        assert trio.current_time() < 3, "offset 3 is above the end"
        settle(self)

    monkeypatch.setattr(Server, "settle", broken)
    result = simulate(small())
    assert result.failure is not None
    assert result.failure.kind == "crash"
    assert result.failure.name.startswith("AssertionError in ")
    assert "broker 1 ended by itself: AssertionError: offset 3 is above the end" in result.reasons[0]
    assert result.trouble is None
    assert result.verdict == "invalid"


@pytest.mark.parametrize("crash_s", [3.0, 6.0])
def test_of_a_crash_and_a_broken_invariant_the_first_one_is_the_failure(
    crash_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, broken = Server.settle, InvariantViolation("hw-monotonic", "it went back", 4.0, 1, "appends-0", 0)

    def crashing(self: Server) -> None:
        assert trio.current_time() < crash_s, "a bug"
        settle(self)

    class Broken(simulation.SimWorld):
        def __init__(self, seed: int) -> None:
            super().__init__(seed)
            self.violations.append(broken)

    monkeypatch.setattr(Server, "settle", crashing)
    monkeypatch.setattr(simulation, "SimWorld", Broken)
    result = simulate(small(), stop_at_first=False)
    assert result.failure is not None
    crashed = result.reasons[0].startswith("broker 1 ended by itself: AssertionError: a bug")
    assert (result.failure.kind, crashed) == (("crash", True) if crash_s < broken.t else ("invariant", False))
    assert any("hw-monotonic appends-0-0 node 1: it went back" in line for line in result.reasons)


def test_a_cluster_that_cannot_be_healed_is_a_failure_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async def heal(self: SimRuntime) -> dict[str, Any]:
        raise HarnessError("broker 2 was not ready within 60 s")

    monkeypatch.setattr(SimRuntime, "heal", heal)
    result = simulate(small())
    assert result.failure == FailureSignature("liveness", "cannot heal")
    assert result.reasons == ("broker 2 was not ready within 60 s",)


def test_a_broker_that_ends_because_its_disk_fails_is_no_finding() -> None:
    params = {"how": "EIO", "op": "write"}
    faults = [{"at_s": 1, "duration_s": 1.5, "action": "disk", "target": "leader:appends-0-0", "params": params}]
    result = simulate(small(faults=faults))
    assert (result.verdict, result.failure) == ("valid", None), result.reasons
    exits = json.loads(result.files["run.json"])["node_exits"]
    assert [each["expected"] for each in exits] == [True]


def test_a_simulation_that_takes_too_long_is_ended_and_nothing_is_said_of_its_broker(tmp_path: Path) -> None:
    order = SeedBatch(None, None, tmp_path, cpu_limit_s=0.05)
    with pytest.raises(RuntimeError, match="seed 5 did not come to its end"):
        limited(small(), order)


def test_a_try_of_shrinking_ends_when_the_budget_does() -> None:
    asked = []

    def over() -> bool:
        asked.append(True)
        return len(asked) > 2

    with pytest.raises(RuntimeError, match="seed 5 did not come to its end"):
        limited(small(), SeedBatch(None, None, Path()), over)
    assert len(asked) == 3


def test_a_mutant_that_there_is_not_is_refused() -> None:
    with pytest.raises(PreconditionError, match="there is no mutant"):
        simulate(small(), mutant="nobody")


def test_a_batch_gives_every_seed_its_result_and_keeps_what_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def drawn_plan(seed: int, **_: object) -> Plan:
        if seed == 2:
            raise KeyError("no plan")
        return small(seed=seed)

    monkeypatch.setattr(batch, "drawn_plan", drawn_plan)
    results = {each.seed: each for each in run_batch(SeedBatch(None, None, tmp_path), range(1, 4), jobs=1)}
    assert [results[seed].verdict for seed in (1, 2, 3)] == ["valid", "unknown", "valid"]
    assert "no plan" in str(results[2].trouble)
    assert results[1].saved is None
    assert results[1].digest != results[3].digest
