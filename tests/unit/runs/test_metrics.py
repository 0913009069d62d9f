"""Checks what a run serves as metrics: names, labels and values one by one, and every metric that the board needs."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from rich.console import Console

from squall.chaos.errors import PreconditionError
from squall.chaos.faults.context import FaultExecution
from squall.chaos.faults.nemesis import UpcomingFault
from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runs import exporter as module
from squall.chaos.runs.exporter import HOST, MetricsExporter, serving
from squall.chaos.runs.metrics import CONTENT_TYPE, PHASES, exposition, state_of
from squall.chaos.runs.progress import Progress
from squall.chaos.runs.run_status import RunPhase, RunStatus
from squall.workloads.counters import LoadCounters

ROOT = Path(__file__).parents[3]
BOARD = ROOT / "compose/metrics/boards/squall.json"
PLACES = {"appends-0": (1, 3), "a-b-1": (2,)}


TYPES = """\
# TYPE squall_run info
# TYPE squall_phase stateset
# TYPE squall_phase_elapsed_seconds gauge
# UNIT squall_phase_elapsed_seconds seconds
# TYPE squall_phase_remaining_seconds gauge
# UNIT squall_phase_remaining_seconds seconds
# TYPE squall_sends counter
# TYPE squall_send_outcomes counter
# TYPE squall_sends_outstanding gauge
# TYPE squall_records_read counter
# TYPE squall_send_latency_seconds histogram
# UNIT squall_send_latency_seconds seconds
# TYPE squall_final_read_records counter
# TYPE squall_faults gauge
# TYPE squall_faults_under_way gauge
# TYPE squall_next_fault_seconds gauge
# UNIT squall_next_fault_seconds seconds
# TYPE squall_broker_up gauge
# TYPE squall_partition_isr gauge
# TYPE squall_partition_replicas gauge
# TYPE squall_partition_leader gauge
# TYPE squall_verdict stateset
""".splitlines()


def whole() -> RunStatus:
    """A run in the middle of its load, of which everything can be seen. Its phase began at 100 s."""
    load = LoadCounters(sent=10, acked=6, failed=1, info=2, read=5)
    for seconds in (0.001, 0.0011, 0.3, 2.5, 60.0, 0.004):
        load.latencies.take(seconds)
    faults = [make_fault(number, 1.0, 1.0, "kill", "node:1", {}) for number in range(4)]
    played = [
        FaultExecution(faults[0]),
        FaultExecution(faults[1], began=1),
        FaultExecution(faults[2], began=1, ended=2, landed=True),
    ]
    return RunStatus(
        about={"run": 'a "run"\\\n', "seed": "7", "target": "squall", "runtime": "process", "workload": "appends"},
        phases=[RunPhase("warm-up", 98.0, 2.0, 100.0), RunPhase("load with faults", 100.0, 30.0)],
        load=load,
        final=LoadCounters(read=3),
        faults=(*played, FaultExecution(faults[3], ended=2)),
        coming=lambda: [UpcomingFault(faults[0], 3.5)],
        nodes={1: "running", 2: "paused", 3: "down"},
        view=ClusterSnapshot((1, 2, 3), 1, {"appends-0": 1, "a-b-1": -1}, PLACES, dict.fromkeys(PLACES, (1, 2, 3))),
        verdict="invalid",
    )


def samples(status: RunStatus, now: float = 112.0) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """(name, labels) -> value, as the format's own parser reads it: it takes only what is well-formed."""
    families = text_string_to_metric_families(exposition(status, now))
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples
    }


def value(status: RunStatus, name: str, **labels: str) -> float | None:
    return samples(status).get((name, tuple(sorted(labels.items()))))


def test_of_a_run_that_has_not_begun_there_is_something_to_parse() -> None:
    found = samples(RunStatus())
    assert found["squall_sends_total", ()] == 0
    assert found["squall_phase", (("squall_phase", "load"),)] == 0
    assert ("squall_phase_remaining_seconds", ()) not in found


def test_the_text_is_this() -> None:
    told = exposition(
        RunStatus(load=LoadCounters(sent=3, acked=2), nodes={1: "running"}, verdict="valid"), 0.0
    ).splitlines()
    assert [line for line in told if line.startswith(("# TYPE", "# UNIT"))] == TYPES
    for line in (
        "squall_sends_total 3.0",
        'squall_send_outcomes_total{outcome="ok"} 2.0',
        "squall_sends_outstanding 1.0",
        'squall_send_latency_seconds_bucket{le="0.001"} 0.0',
        'squall_send_latency_seconds_bucket{le="+Inf"} 0.0',
        "squall_send_latency_seconds_count 0.0",
        'squall_faults{state="not landed"} 0.0',
        'squall_broker_up{broker="1"} 1.0',
        'squall_verdict{squall_verdict="valid"} 1.0',
        'squall_verdict{squall_verdict="invalid"} 0.0',
    ):
        assert line in told
    assert told[-1] == "# EOF"


def test_each_sample_has_the_value_that_can_be_seen() -> None:
    status = whole()
    assert value(status, "squall_phase", squall_phase="load") == 1
    assert value(status, "squall_phase", squall_phase="heal") == 0
    assert value(status, "squall_phase_elapsed_seconds") == 12
    assert value(status, "squall_phase_remaining_seconds") == 18
    outcomes = {each: value(status, "squall_send_outcomes_total", outcome=each) for each in ("ok", "fail", "info")}
    assert outcomes == {"ok": 6, "fail": 1, "info": 2}
    assert value(status, "squall_sends_total") == 10
    assert value(status, "squall_sends_outstanding") == 1
    assert value(status, "squall_records_read_total") == 5
    assert value(status, "squall_final_read_records_total") == 3
    states = ("waiting", "under way", "landed", "not landed")
    assert [value(status, "squall_faults", state=state) for state in states] == [1, 1, 1, 1]
    assert value(status, "squall_faults_under_way", kind="kill") == 1
    assert value(status, "squall_next_fault_seconds") == 3.5
    assert [value(status, "squall_broker_up", broker=each) for each in "123"] == [1, 0, 0]
    assert value(status, "squall_partition_isr", topic="a-b", partition="1") == 1
    assert value(status, "squall_partition_replicas", topic="appends", partition="0") == 3
    assert value(status, "squall_partition_leader", topic="a-b", partition="1") == -1
    verdicts = {each: value(status, "squall_verdict", squall_verdict=each) for each in ("valid", "invalid", "unknown")}
    assert verdicts == {"valid": 0, "invalid": 1, "unknown": 0}


def test_buckets_are_cumulative_and_a_bound_is_inside() -> None:
    buckets = {
        labels[0][1]: so_many
        for (name, labels), so_many in samples(whole()).items()
        if name == "squall_send_latency_seconds_bucket"
    }
    assert buckets["0.001"] == 1 and buckets["0.0025"] == 2 and buckets["0.005"] == 3
    assert buckets["0.25"] == 3 and buckets["0.5"] == 4 and buckets["2.5"] == 5
    assert buckets["30.0"] == 5 and buckets["+Inf"] == 6
    assert value(whole(), "squall_send_latency_seconds_count") == 6
    assert value(whole(), "squall_send_latency_seconds_sum") == pytest.approx(62.8061)


def test_labels_are_quoted() -> None:
    (labels,) = [dict(labels) for name, labels in samples(whole()) if name == "squall_run_info"]
    assert labels["run"] == 'a "run"\\\n'


def test_every_phase_of_a_run_is_a_state() -> None:
    source = (ROOT / "chaos/runs/run.py").read_text()
    names = set(re.findall(r'_phase\("([^"]+)"', source)) | {"load"}
    assert len(names) > 10
    told = {state_of(RunPhase(name, 0.0)) for name in (*names, "judge", "judge: Spark looks for anomalies", "report")}
    assert told == set(PHASES)


# ---------------------------------------------------------------------------------------------------- the board


def asked() -> Iterator[tuple[str, str]]:
    """(panel, query) of the board."""
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_every_metric_that_the_board_asks_for_is_exported_with_its_labels() -> None:
    exported: dict[str, set[str]] = {}
    for name, labels in samples(whole()):
        exported.setdefault(name, set()).update(label for label, _ in labels)
    wanted = {name for _, query in asked() for name in re.findall(r"squall_\w+", query)}
    assert wanted <= exported.keys() and len(wanted) > 15
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel["targets"]:
            names = re.findall(r"squall_\w+", target["expr"])
            legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            grouped = {word for each in re.findall(r"by \(([^)]*)\)", target["expr"]) for word in each.split(", ")}
            assert legend | grouped <= set.union(*(exported[name] for name in names)), panel["title"]


def test_every_family_that_is_exported_is_on_the_board() -> None:
    families = {family.name for family in text_string_to_metric_families(exposition(whole(), 112.0))}
    queries = " ".join(query for _, query in asked())
    assert {name for name in families if name not in queries} == {"squall_phase_elapsed_seconds"}


def test_the_page_names_every_family_and_no_other() -> None:
    families = {family.name: family for family in text_string_to_metric_families(exposition(whole(), 112.0))}
    told = dict(re.findall(r"^\| `(squall_\w+)` \| (\w+) \|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    assert told == {name: family.type for name, family in families.items()}


# ------------------------------------------------------------------------------------------------------ the server


def fetched(url: str) -> tuple[str, str]:
    """Body and content type."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


@pytest.fixture
def progress() -> Progress:
    return Progress("a run", Console(quiet=True))


@contextmanager
def served(progress: Progress) -> Iterator[str]:
    """`serving` on a free port. Yields the address that it said."""
    said: list[str] = []
    progress.say = said.append  # type: ignore[method-assign]
    with serving(progress, 0):
        yield said[0].removeprefix("metrics: ")


def test_a_scrape_sees_the_run_as_it_is_now(progress: Progress) -> None:
    with served(progress) as url:
        assert "squall_sends_total 0.0\n" in fetched(url)[0]
        progress.status.load = LoadCounters(sent=4)
        text, kind = fetched(url)
        assert "squall_sends_total 4.0\n" in text
        assert kind == CONTENT_TYPE
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetched(url.removesuffix("metrics") + "other")


def test_it_listens_on_loopback_and_no_longer_than_the_run(progress: Progress) -> None:
    with served(progress) as url:
        assert url.startswith(f"http://{HOST}:") and HOST == "127.0.0.1"
        assert progress.view_every_s is not None, "the brokers are asked for their ISRs"
    with pytest.raises(urllib.error.URLError):
        fetched(url)


def test_without_a_port_nothing_is_served(progress: Progress) -> None:
    with serving(progress, None):
        assert progress.view_every_s is None


def test_a_port_that_is_taken_is_refused_with_what_to_do(progress: Progress) -> None:
    with served(progress) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(PreconditionError, match=f"--metrics {port}: Address already in use; --metrics 0"):
            MetricsExporter(port, lambda: ("", False))


def test_the_end_waits_for_whoever_scraped_to_come_for_the_verdict() -> None:
    calls = count()
    exporter = MetricsExporter(0, lambda: (f"{next(calls)}", next(calls) > 2))
    try:
        assert not exporter.awaited, "nobody ever came"
        assert not exporter.wait_for_last(60), "so nobody is waited for"
        fetched(exporter.url)
        assert exporter.awaited
        assert not exporter.wait_for_last(0)
        fetched(exporter.url)
        assert exporter.wait_for_last(60) and not exporter.awaited
    finally:
        exporter.close()


def test_ctrl_c_ends_the_wait_for_the_last_scrape(progress: Progress, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: MetricsExporter, limit_s: float = 0) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.MetricsExporter, "wait_for_last", interrupted)
    with served(progress) as url:
        fetched(url)
        progress.status.verdict = "valid"
    with pytest.raises(urllib.error.URLError):
        fetched(url)
