"""Pages of runs whose brokers write no traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.reports.explained import explained
from squall.reports.fault_words import evidence_text
from squall.reports.lanes import broker_lanes, partition_lanes
from squall.reports.page import render
from squall.reports.run_files import read_run
from tests.support.histories.nemesis_lines import spoken
from tests.unit.reports.conftest import TOPIC, S, at, write_lines


def as_kafka(run_dir: Path) -> None:
    """Make the run one against Apache Kafka: its plan says so, and there is no trace."""
    plan = run_dir / "plan.toml"
    plan.write_text(plan.read_text().replace('runtime = "process"', 'runtime = "process"\ntarget = "kafka"'))
    for trace in (run_dir / "nodes").glob("*/trace.jsonl"):
        trace.unlink()


@pytest.mark.usefixtures("drawn")
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


def as_polled(run_dir: Path) -> None:
    """Make the run one against a cluster that somebody else runs, which was asked meanwhile."""
    as_kafka(run_dir)
    plan = run_dir / "plan.toml"
    plan.write_text(plan.read_text().replace('runtime = "process"', 'runtime = "external"').replace("kafka", "other"))
    where = {"e": "polled", "topic": TOPIC, "partition": 0}
    write_lines(
        run_dir / "polled.jsonl",
        [
            {"t": at(0.5) / S, "e": "polled_controller", "node": 1, "epoch": 4},
            {"t": at(0.5) / S, **where, "leader": 1, "epoch": 0, "isr": [1, 2, 3]},
            {"t": at(5.6) / S, **where, "leader": -1, "epoch": 1, "isr": [2, 3]},
            {"t": at(5.8) / S, "e": "polled_controller", "node": 3, "epoch": 5},
            {"t": at(6.0) / S, **where, "leader": 2, "epoch": 2, "isr": [2, 3]},
            {"t": at(8.0) / S, **where, "leader": 2, "epoch": 2, "isr": [1, 2, 3]},
        ],
    )


def test_a_cluster_that_was_asked_has_leaders_isrs_and_controllers(lost_dir: Path) -> None:
    as_polled(lost_dir)
    files = read_run(lost_dir)
    assert files.from_polls and not any("writes no trace" in problem for problem in files.problems)
    (lane,) = partition_lanes(files, 0.0, 12.0, {})
    assert [(span.kind, round(span.begin, 1)) for span in lane.leaders] == [("1", 0.0), ("-1", 3.6), ("2", 4.0)]
    assert [size for _, size in lane.isr] == [3, 2, 2, 3]
    brokers = {lane.node: lane for lane in broker_lanes(files, 0.0, 12.0)}
    assert [round(span.begin, 1) for span in brokers[3].controller] == [3.8]
    assert "unknown" in [span.kind for span in brokers[2].states]
    assert "named when it was asked, every 0.2 s" in render(lost_dir).read_text()


def test_its_story_says_who_led_and_that_truncations_are_not_known(lost_dir: Path) -> None:
    as_polled(lost_dir)
    text = " ".join(explained(lost_dir, "lost-write", 10_000).split())
    for words in (
        "Who led, ISR and HW then: Broker 1 led in epoch 0 when A was acknowledged; ISR 1, 2, 3",
        "Who was elected: Nobody in epoch 1, as Metadata said at 3.600 s (ISR 2, 3).",
        "Broker 2 in epoch 2, as Metadata said at 4.000 s (ISR 2, 3).",
        "What was truncated: Not known: other says who leads and who is in sync when it is asked (polled.jsonl)",
        "Metadata says that broker 2 leads in epoch 2 (in sync: 2, 3).",
        "The final reads do not find A.",
    ):
        assert words in text, words


def test_odd_lines_of_polled_jsonl_take_nothing_down(lost_dir: Path) -> None:
    as_polled(lost_dir)
    odd: tuple[Any, ...] = (None, "x", -7, 2.5, [], {"a": 1}, True)
    line = {"t": at(6.0) / S, "e": "polled", "topic": TOPIC, "partition": 0, "leader": 2, "epoch": 2, "isr": [2, 3]}
    for key in line:
        write_lines(lost_dir / "polled.jsonl", [line, *({**line, key: value} for value in odd), [1], "x"])
        files = read_run(lost_dir)
        partition_lanes(files, 0.0, 12.0, {})
        assert "lost-write" in explained(lost_dir, "lost-write"), key
