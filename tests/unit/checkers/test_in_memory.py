"""A run judged in memory gets the verdict that its run directory gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall.checkers import metrics
from squall.checkers.anomalies import stuck
from squall.checkers.anomalies.registry import find_all
from squall.checkers.engines import REFERENCE
from squall.checkers.findings import findings_of
from squall.checkers.history import conversion
from squall.checkers.in_memory import judge_bytes
from squall.checkers.measures import measure
from squall.checkers.plan_facts import BadPlan
from squall.checkers.verdict import INVALID, UNKNOWN, judge, to_json
from tests.support.histories.builder import generate
from tests.support.histories.nemesis_lines import NEMESIS

PLAN: dict[str, Any] = {
    "workload": {"acks": -1, "min_isr": 2, "replication_factor": 3},
    "limits": {"stuck_s": 15},
    "faults": [{"action": "kill"}, {"action": "partition"}],
}
PLAN_TOML = """
[workload]
acks = -1
min_isr = 2
replication_factor = 3
[limits]
stuck_s = 15
[[faults]]
action = "kill"
[[faults]]
action = "partition"
"""
CONVERGED = {"ok": True, "took_s": 1, "lacking": {}}


def lines_of(seed: int) -> bytes:
    return b"".join(generate(seed).lines())


def on_disk(path: Path, lines: bytes, converged: dict[str, Any] | None) -> dict[str, Any]:
    """The verdict by way of a run directory."""
    (path / "history.jsonl").write_bytes(lines)
    (path / "nemesis.jsonl").write_bytes(NEMESIS)
    (path / "plan.toml").write_text(PLAN_TOML)
    if converged is not None:
        (path / "run.json").write_text(json.dumps({"converged": converged}))
    conversion.convert(path)
    loaded, faults = conversion.load(path)
    context = metrics.context_of(loaded, faults)
    taken = measure(loaded, context)
    findings = [*findings_of(find_all(loaded)), *stuck.liveness(taken, metrics.StuckLimits(15, 15))]
    return to_json(judge(path, findings, metrics.shape(taken, context), engine=REFERENCE))


def without_notes(verdict: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in verdict.items() if name != "notes"}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("converged", [CONVERGED, {"ok": False, "lacking": {"t-0": "no leader"}}, None])
def test_memory_and_directory_agree(seed: int, converged: dict[str, Any] | None, tmp_path: Path) -> None:
    lines = lines_of(seed)
    judged = judge_bytes("r", lines, NEMESIS, PLAN, info={"converged": converged})
    assert without_notes(to_json(judged.verdict)) == without_notes(on_disk(tmp_path, lines, converged))


def test_a_cluster_that_did_not_converge_is_found() -> None:
    info = {"converged": {"ok": False, "lacking": {"t-0": "no leader"}}}
    judged = judge_bytes("r", lines_of(1), NEMESIS, PLAN, info=info)
    assert judged.verdict.verdict == INVALID
    assert [finding.anomaly for finding in judged.findings] == ["not-converged"]


def test_troubles_and_histories_that_do_not_parse_are_unknown() -> None:
    assert judge_bytes("r", lines_of(1), NEMESIS, PLAN, troubles=["it broke"]).verdict.verdict == UNKNOWN
    cut = judge_bytes("r", b'{"e":"x"}\n', NEMESIS, PLAN)
    assert cut.verdict.verdict == UNKNOWN
    assert any("header" in reason for reason in cut.verdict.reasons)


def test_a_plan_that_does_not_say_what_was_promised_is_refused() -> None:
    with pytest.raises(BadPlan):
        judge_bytes("r", lines_of(1), NEMESIS, {})
    with pytest.raises(ValueError, match="expect='fun'"):
        judge_bytes("r", lines_of(1), NEMESIS, PLAN, expect="fun")
