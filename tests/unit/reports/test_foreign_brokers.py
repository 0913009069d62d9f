"""Pages of runs whose brokers write no traces."""

from __future__ import annotations

from pathlib import Path

from reports.fault_words import evidence_text
from reports.page import render
from reports.run_files import read_run
from tests.support.histories.nemesis_lines import spoken


def as_kafka(run_dir: Path) -> None:
    """Make the run one against Apache Kafka: its plan says so, and there is no trace."""
    plan = run_dir / "plan.toml"
    plan.write_text(plan.read_text().replace('runtime = "process"', 'runtime = "process"\ntarget = "kafka"'))
    for trace in (run_dir / "nodes").glob("*/trace.jsonl"):
        trace.unlink()


def test_one_sentence_says_that_there_are_no_traces_and_no_file_is_called_missing(run_dir: Path) -> None:
    as_kafka(run_dir)
    files = read_run(run_dir)
    assert files.foreign == "kafka"
    (told,) = [problem for problem in files.problems if "trace" in problem]
    assert told.startswith("kafka writes no trace")

    assert "Stories tell what clients saw, and of transactions what" in render(run_dir).read_text()


def test_a_trace_of_ours_that_is_missing_is_missing(run_dir: Path) -> None:
    (run_dir / "nodes" / "2" / "trace.jsonl").unlink()
    assert any("nodes/2/trace.jsonl is missing" in problem for problem in read_run(run_dir).problems)


def test_a_broker_epoch_and_where_it_was_seen_are_part_of_the_evidence() -> None:
    down = [{"pid": 7, "gone": True, "asked_ns": 0, "ended_ns": 1_000_000}]
    up = {"pid": 8, "incarnation": 2, "asked_ns": 0, "ready_ns": 1, "broker_epoch": 45, "seen_in": "broker.log"}
    said = evidence_text(spoken({"action": "kill", "asked": 1, "ended": 2, "evidence": {"down": down, "up": [up]}}))
    assert "registered with broker epoch 45 (broker.log)" in said
