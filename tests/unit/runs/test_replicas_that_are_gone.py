"""Replicas' logs that should be there and are not: nothing is known of them, and the verdict says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from squall.chaos.plans.plan import make_plan, write_plan
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.judgement import CHANGED, compare_replicas
from squall.checkers.history import conversion
from squall.checkers.verdict import judge
from tests.support.histories.builder import HistoryBuilder
from tests.unit.checkers.anomalies.test_replica_divergence import LOG, replica


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run of three brokers with three replicas of t-0, all alike."""
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 0))])
    directory = RunDirectory(tmp_path)
    directory.history.write_bytes(b"".join(h.lines()))
    directory.nemesis.write_bytes(b"")
    directory.plan.write_text(write_plan(make_plan({"seed": 1})))
    conversion.convert(tmp_path)
    for node in (1, 2, 3):
        replica(tmp_path, node, LOG)
    return directory


def troubles_of(run: RunDirectory) -> list[str]:
    """Return the troubles that a comparison finds."""
    found: list[str] = []
    compare_replicas(run, found)
    return found


def test_replicas_that_are_all_there_are_no_trouble_and_may_go_once_they_were_compared(run: RunDirectory) -> None:
    assert troubles_of(run) == []
    for node in run.nodes.glob("*"):
        shutil.rmtree(node / "data")
    assert troubles_of(run) == []


def test_without_the_nodes_folder_the_verdict_is_unknown(run: RunDirectory) -> None:
    shutil.rmtree(run.nodes)
    troubles = troubles_of(run)
    assert troubles == ["the replicas' logs were not compared: nodes/ has the data of 0 of 3 brokers"]
    verdict = judge(run.path, [], {"partitions": {"t-0": {"part": 0, "acked": 1}}}, troubles=troubles)
    assert (verdict.verdict, verdict.reasons) == ("unknown", tuple(troubles))
    (looked_for,) = [note for note in verdict.notes if note.startswith("looked for: ")]
    assert "replica-divergence" not in looked_for


def test_with_empty_logs_the_verdict_is_unknown(run: RunDirectory) -> None:
    for segment in run.nodes.glob("*/data/*/*.log"):
        segment.write_bytes(b"")
    assert troubles_of(run) == []
    verdict = judge(run.path, [], {"partitions": {"t-0": {"part": 0, "acked": 1}}})
    assert verdict.verdict == "unknown"
    assert len(verdict.reasons) == 3
    assert all("its log holds batches below 0 only" in reason for reason in verdict.reasons)
    (looked_for,) = [note for note in verdict.notes if note.startswith("looked for: ")]
    assert "replica-divergence" not in looked_for


def test_a_replica_that_is_gone_is_named_though_the_others_are_compared(run: RunDirectory) -> None:
    shutil.rmtree(run.nodes / "3")
    assert troubles_of(run) == ["the replicas of t-0 were not all compared: only 2 of 3 left files"]
    shutil.rmtree(run.nodes / "2" / "data" / "t-0")
    assert troubles_of(run) == ["the replicas of t-0 were not all compared: fewer than two left files"]


@pytest.mark.parametrize(
    "values",
    [
        {"runtime": "sim"},
        {"workload": {"replication_factor": 1, "min_isr": 1}},
        {
            "runtime": "external",
            "target": "kafka",
            "bootstrap": "127.0.0.1:9092",
            "cluster": {"nodes": 3, "ids": (1, 2, 3), "settings": {}},
        },
    ],
)
def test_where_no_second_replica_leaves_files_none_is_missed(values: dict[str, object], run: RunDirectory) -> None:
    shutil.rmtree(run.nodes)
    run.plan.write_text(write_plan(make_plan(values)))
    assert troubles_of(run) == []


def test_logs_that_were_changed_after_they_were_compared_are_nobodys_fault(run: RunDirectory) -> None:
    assert troubles_of(run) == []
    kept = (run.path / "replicas.json").read_bytes()
    segment = max((run.nodes / "2" / "data").glob("*/*.log"), key=lambda path: path.stat().st_size)
    content = segment.read_bytes()
    segment.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert troubles_of(run) == [CHANGED]
    assert (run.path / "replicas.json").read_bytes() == kept, "what was found then stays"
    metrics = {"partitions": {"t-0": {"part": 0, "acked": 1}}}
    assert judge(run.path, [], metrics, troubles=[CHANGED]).verdict == "unknown"
    (run.path / "replicas.json").unlink()
    assert troubles_of(run) == []
    assert "replica-divergence" in {each.name for each in judge(run.path, [], metrics).anomalies}
