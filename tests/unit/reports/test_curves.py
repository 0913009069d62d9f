"""The curves of the timeline: what is drawn stays inside its pane, and can be distinguished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from squall.reports import figure
from squall.reports.page import render
from squall.reports.run_files import read_run
from squall.reports.samples import LatencySamples


@pytest.fixture
def axis() -> Any:
    """An empty pane."""
    return Figure().subplots()


def test_the_curve_of_readers_ends_before_fresh_readers_read_all(run_dir: Path, axis: Any) -> None:
    files = read_run(run_dir)
    until = files.phase("final reads")[0]
    assert until is not None
    seconds = [until - 3, until - 2, until - 1, until]
    files.series = {"second": seconds, "acked": [5, 5, 5, 0], "read": [4, 6, 5, 90_000]}
    figure.throughput(axis, files)
    acked, read = (each.get_data() for each in axis.patches)
    assert list(read.values) == [4, 6, 5] and read.edges[-1] == until
    assert list(acked.values) == [5, 5, 5, 0]
    assert axis.get_ylim()[1] < 10, "the pane is as high as the load needs"


def test_p50_is_seen_in_a_second_in_which_it_equals_p99(run_dir: Path, axis: Any) -> None:
    files = read_run(run_dir)
    files.series = {"second": [0.0, 1.0], "p50_ms": [7.0, 7.0], "p99_ms": [7.0, 9.0]}
    figure.latency(axis, files, LatencySamples())
    lines = {each.get_label(): each for each in axis.lines}
    assert lines["p50"].get_zorder() > lines["p99"].get_zorder()
    assert lines["p50"].get_linewidth() < lines["p99"].get_linewidth()


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize(("count", "said"), [(40, True), (100, False)])
def test_p99_of_a_few_records_says_of_how_many(run_dir: Path, count: int, said: bool) -> None:
    path = run_dir / "metrics.json"
    metrics = json.loads(path.read_text())
    metrics["latency_ms"]["all"]["count"] = count
    path.write_text(json.dumps(metrics))
    assert (f"<small>of {count} records</small>" in render(run_dir).read_text()) is said
