"""Checks that a failure in a benchmark is reported, and never makes what it is compared with look better."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from bench import __main__ as program
from bench import script as scripts
from bench.client import AckLatency, Throughput
from bench.groups import ReadRate, RebalanceDurations
from bench.rates import OperationRate
from bench.sheet import ClusterFigures, MeasurementStep, table


def gives(**figures: float) -> Callable[[], Mapping[str, float]]:
    return lambda: figures


def fails(error: Exception | None = None) -> Callable[[], Mapping[str, float]]:
    def take() -> Mapping[str, float]:
        raise error or RuntimeError("records were left in the queue")

    return take


def test_a_failed_step_costs_its_own_figures_of_that_round_and_is_counted() -> None:
    sheet = ClusterFigures("squall")
    sheet.fill([MeasurementStep("a", gives(a=1)), MeasurementStep("b", gives(b=2))])
    sheet.fill(
        [
            MeasurementStep("a", gives(a=3)),
            MeasurementStep("b", fails(KafkaException(KafkaError(KafkaError._TIMED_OUT)))),
        ]
    )
    assert sheet.found == {"a": [1, 3], "b": [2]}
    assert sheet.missing() == ["squall: b: no figure in 1 of 2 rounds"]


def test_a_step_is_counted_in_the_rounds_in_which_it_was_asked_for() -> None:
    sheet = ClusterFigures("kafka")
    sheet.fill([MeasurementStep("a", gives(a=1))])
    sheet.fill([MeasurementStep("a", gives(a=1)), MeasurementStep("failover", fails())])
    assert sheet.missing() == ["kafka: failover: no figure in 1 of 1 round"]


def test_a_failed_step_that_is_needed_costs_every_figure_of_that_round_and_ends_it() -> None:
    after: list[int] = []

    def asked() -> Mapping[str, float]:
        after.append(1)
        return {"b": 2}

    sheet = ClusterFigures("kafka")
    sheet.fill(
        [
            MeasurementStep("a", gives(a=1)),
            MeasurementStep("warm-up", gives(), needed=True),
            MeasurementStep("b", asked),
        ]
    )
    sheet.fill(
        [
            MeasurementStep("a", gives(a=9)),
            MeasurementStep("warm-up", fails(), needed=True),
            MeasurementStep("b", asked),
        ]
    )
    assert sheet.found == {"a": [1], "b": [2]}
    assert len(after) == 1
    assert sheet.missing() == [f"kafka: {name}: no figure in 1 of 2 rounds" for name in ("a", "warm-up", "b")]


def test_a_bug_is_no_missing_figure() -> None:
    with pytest.raises(KeyError):
        ClusterFigures("squall").fill([MeasurementStep("a", fails(KeyError("a")))])


def test_figures_that_one_cluster_alone_has_stand_in_the_table_without_a_ratio() -> None:
    rows = table({"squall": {"a": [1, 3, 2]}, "kafka": {"a": [4], "b": [5]}}).splitlines()
    assert [row.split() for row in rows] == [
        ["figure", "squall", "kafka", "ratio"],
        ["a", "2.00", "(1.00", "..", "3.00)", "4.00", "(4.00", "..", "4.00)", "0.50"],
        ["b", "-", "5.00", "(5.00", "..", "5.00)"],
    ]
    assert table({"squall": {}}).split() == ["figure", "squall"]


# ------------------------------------------------------------------------------------------------------- whole runs


class Cluster:
    """A cluster that accepts every call and does nothing."""

    bootstrap, launched_at = "nowhere", 0.0

    def __init__(self, name: str) -> None:
        self.name, self.running = name, False

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def rss_mb(self) -> list[float]:
        return [10.0]


class Loads:
    """Replaces the loads; some of them fail."""

    def __init__(self) -> None:
        self.failing: Callable[[str, int, float], bool] = lambda cluster, size, seconds: False
        self.clusters: list[Cluster] = []

    def cluster(self, name: str, folder: Path) -> Cluster:
        self.clusters.append(Cluster(name))
        return self.clusters[-1]

    def throughput(self, cluster: Cluster, size: int, *, seconds: float, **_: Any) -> Throughput:
        assert cluster.running
        if self.failing(cluster.name, size, seconds):
            raise RuntimeError("records were left in the queue")
        return Throughput(1, 1, 1, 1, 1)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    found = Loads()
    monkeypatch.setattr(program, "new_cluster", found.cluster)
    monkeypatch.setattr(scripts, "REST_S", 0.0)
    monkeypatch.setattr(scripts, "first_ack", lambda *_: 1.0)
    monkeypatch.setattr(scripts, "throughput", found.throughput)
    monkeypatch.setattr(scripts, "latency", lambda *_, **__: AckLatency(1, 1, 1, 1))
    monkeypatch.setattr(scripts, "transactions", lambda *_: OperationRate(1, 1, 1, 1))
    monkeypatch.setattr(scripts, "rebalance", lambda *_: RebalanceDurations(1, 1))
    monkeypatch.setattr(scripts, "commits", lambda *_: OperationRate(1, 1, 1, 1))
    monkeypatch.setattr(scripts, "reading", lambda *_: ReadRate(1, 1, 1))
    monkeypatch.setattr(scripts, "failover", lambda *_, **__: {"s to next ack": 1.0, "records failed": 0})
    return found


def run(folder: Path, *options: str) -> tuple[int, dict[str, dict[str, list[float]]]]:
    """Run the benchmark. Returns its exit code and every figure."""
    path = folder / "figures.json"
    code = program.main(["--rounds", "2", "--seconds", "1", "--json", str(path), *options])
    return code, json.loads(path.read_text())


def test_without_failures_nothing_stands_under_the_table(
    loads: Loads, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run(tmp_path, "--peer", "kafka")
    assert code == 0
    assert "no figure" not in capsys.readouterr().out
    assert list(found["squall"]) == list(found["kafka"])
    assert [len(found["squall"][f]) for f in ("100 B, idempotent, MB/s", "failover of leader, s to next ack")] == [2, 1]
    assert not any(each.running for each in loads.clusters)


def test_only_what_was_asked_for_is_measured(loads: Loads, tmp_path: Path) -> None:
    loads.failing = lambda cluster, size, seconds: True
    code, found = run(tmp_path, "--only", "transactions, 4")
    assert code == 0, "loads that nobody asked for did not fail"
    assert [figure.partition(", ")[0] for figure in found["squall"]] == ["launch to first ack"] + 4 * ["transactions"]


def test_a_figure_of_ours_that_failed_is_told_and_the_exit_code_is_1(
    loads: Loads, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loads.failing = lambda cluster, size, seconds: cluster == "squall" and size == 1024
    code, found = run(tmp_path, "--peer", "kafka")
    assert code == 1
    assert capsys.readouterr().out.splitlines()[-4:-2] == [
        "squall: 1024 B, idempotent: no figure in 2 of 2 rounds",
        "squall: 1024 B, not idempotent: no figure in 2 of 2 rounds",
    ]
    assert "1024 B, idempotent, MB/s" not in found["squall"]
    assert len(found["kafka"]["1024 B, idempotent, MB/s"]) == 2


def test_a_peer_that_was_not_warmed_up_has_no_figures_of_that_round(
    loads: Loads, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loads.failing = lambda cluster, size, seconds: len(loads.clusters) == 2 and seconds == 15 and size == 100
    code, found = run(tmp_path, "--peer", "kafka")
    assert code == 0, "nothing of ours failed"
    assert list(found["kafka"]) == list(found["squall"])
    assert {len(values) for values in found["kafka"].values()} == {1}
    told = [line for line in capsys.readouterr().out.splitlines() if "no figure" in line]
    assert "kafka: warm-up: no figure in 1 of 2 rounds" in told
    assert "kafka: 100 B, idempotent: no figure in 1 of 2 rounds" in told
    assert not any(line.startswith("squall") for line in told)
    assert not any(each.running for each in loads.clusters)
