"""KAFKA-17754 and similar bugs on our broker, as on Apache Kafka: a late EndTxn ends the following transaction."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.result import SimResult
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.reports.page import render

PLAN = Path(__file__).parents[3] / "plans/delayed-end-txn.toml"


def played(generation: int) -> SimResult:
    """Simulate the plan that is also played on Apache Kafka."""
    values: dict[str, Any] = tomllib.loads(PLAN.read_text())
    workload = {**values["workload"], "generation": generation}
    return simulate(make_plan({**values, "runtime": "sim", "workload": workload}), stop_at_first=False)


def late_ends(result: SimResult) -> list[dict[str, Any]]:
    """Return the trace events of requests that the fault held back."""
    last = {line["id"]: line for line in map(json.loads, result.run_files()["nemesis.jsonl"].splitlines())}
    return [frame for line in last.values() for frame in line["evidence"]["struck"]]


@pytest.fixture(scope="module")
def first_generation() -> SimResult:
    return played(1)


def test_of_a_v1_client_half_a_committed_transaction_is_lost_and_half_an_aborted_one_is_read(
    first_generation: SimResult,
) -> None:
    assert first_generation.judgement is not None
    found = {finding.anomaly for finding in first_generation.judgement.findings}
    assert {"torn-txn", "G1a"} <= found
    assert first_generation.verdict == "invalid"


def test_the_coordinator_takes_the_late_end_for_one_of_the_open_transaction(first_generation: SimResult) -> None:
    abort, commit = late_ends(first_generation)
    assert re.fullmatch(r"abort of squall-0, producer \d+, epoch 0", abort["said"])
    assert re.fullmatch(r"commit of squall-1, producer \d+, epoch 0", commit["said"])
    for end in (abort, commit):
        assert end["answer"] == "NONE"
        assert 7.0 <= (end["answered_ns"] - end["came_ns"]) / 1e9 < 7.1


def test_the_page_names_the_end_that_came_late(first_generation: SimResult, tmp_path: Path) -> None:
    page = render(save(first_generation, tmp_path, "again").path).read_text()
    assert re.search(r"holds EndTxn \(abort of squall-0, producer \d+, epoch 0\) on link CLIENT→\d for 7 s", page)
    assert "answers NONE: it ends the transaction that is open by now." in page


def test_of_a_v2_client_the_late_end_has_an_old_epoch_and_ends_nothing() -> None:
    result = played(2)
    assert result.verdict == "valid", result.reasons
    assert [end["answer"] for end in late_ends(result)] == ["PRODUCER_FENCED", "PRODUCER_FENCED"]
