"""A workload's own section: drawn on the page and on the terminal, and missed where it should be there."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from squall.checkers.measures import measure
from squall.checkers.metrics import context_of, shape
from squall.reports.page import render
from squall.reports.run_files import read_run
from squall.reports.sections.of_run import section_of
from squall.reports.sections.of_transactions import in_figures
from squall.reports.sections.on_terminal import drawn
from squall.reports.sections.strip import strip_svg
from squall.reports.terminal import summary
from squall.workloads.registry import DEFAULT, SCENARIOS
from squall.workloads.section import SectionTable, TimelineBar, TimelineLane, TimelineStrip, WorkloadSection
from tests.support.histories.builder import HistoryBuilder

STRIP = TimelineStrip(
    "who was there",
    10,
    20,
    (
        TimelineLane(
            "writes",
            (
                TimelineBar(10, 14, "good", "fine"),
                TimelineBar(14, 18, "bad", "<nothing>"),
                TimelineBar(18, 20, "good", "fine"),
            ),
        ),
        TimelineLane("a fault of a very long name that has no room", (TimelineBar(14, 14.001, "neutral", "short"),)),
    ),
    "red is bad",
)
SECTION = WorkloadSection(
    "Of its own", "Four seconds were lost.", STRIP, (SectionTable("Each", ("what", ">s"), (("it & he", "4.0"),)),)
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    said = {"schema": 1, "verdict": "unknown", "run": "r", "workload": {"name": DEFAULT, "lost_s": 4}}
    (tmp_path / "verdict.json").write_text(json.dumps(said))
    return tmp_path


def _shown(section: WorkloadSection, width: int = 80) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width)
    for part in drawn(section, width):
        console.print(part)
    return out.getvalue().splitlines()


def test_a_strip_has_a_bar_for_each_span_where_its_time_is() -> None:
    svg = strip_svg(STRIP)
    bars = [(float(x), float(w)) for x, w in re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', svg)]
    begin, end = bars[0][0], bars[2][0] + bars[2][1]
    assert bars[1] == pytest.approx((begin + 0.4 * (end - begin), 0.4 * (end - begin)), abs=0.2)
    assert bars[3][1] > 1, "what was short is still seen"
    assert ">0 s<" in strip_svg(STRIP._replace(begin_s=-1)) and "-0 s" not in strip_svg(STRIP._replace(begin_s=-1))
    assert "&lt;nothing&gt;" in svg and "<nothing>" not in svg


def test_a_terminal_shows_the_gravest_of_each_moment_in_letters() -> None:
    writes = next(line for line in _shown(SECTION) if line.startswith("writes"))
    marks = writes.split(maxsplit=1)[1]
    assert re.fullmatch(r"=+!+=+", marks)
    assert marks.count("!") / len(marks) == pytest.approx(0.4, abs=0.05)
    assert any("it & he" in line and "4.0" in line for line in _shown(SECTION))


def test_long_names_of_lanes_are_whole_and_a_legend_says_what_the_colours_mean() -> None:
    name = "semantics-exactly-once, process 12"
    strip = STRIP._replace(lanes=(TimelineLane(name, ()),), legend=(("good", "holds <it>"), ("bad", "lost it")))
    svg = strip_svg(strip)
    assert f">{name}<" in svg and "\u2026" not in svg
    assert "holds &lt;it&gt;" in svg and svg.count("<rect") == 2
    shown = _shown(SECTION._replace(strip=strip), 120)
    assert any(line.startswith(name) for line in shown)
    assert any("= holds <it>, ! lost it" in line for line in shown)
    assert "\u2026" in strip_svg(STRIP._replace(lanes=(TimelineLane("n" * 200, ()),))), "within reason"


def test_the_page_has_the_section_that_the_workload_makes_of_its_figures(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def section(figures: Any) -> WorkloadSection:
        given.append(figures)
        return SECTION

    monkeypatch.setattr(SCENARIOS[DEFAULT], "section", section)
    page = render(run_dir).read_text()
    assert given == [{"name": DEFAULT, "lost_s": 4}]
    assert (
        "Of its own" in page and "it &amp; he" in page and 'aria-label="who was there"' in page and "red is bad" in page
    )


def test_moments_of_a_workloads_figures_are_on_the_pages_clock(run_dir: Path) -> None:
    run = {"schema": 1, "began_ns": 0, "phases": [{"name": "load", "began": 2_000_000_000, "ended": 9_000_000_000}]}
    (run_dir / "run.json").write_text(json.dumps(run))
    figures = {"name": DEFAULT, "from_s": 0.5, "faults": [{"began_s": 3.0, "ended_s": None, "longest_s": 1.5}]}
    (run_dir / "verdict.json").write_text(json.dumps({"schema": 1, "workload": figures}))
    shown = read_run(run_dir).verdict["workload"]
    assert shown["from_s"] == -1.5
    assert shown["faults"] == [{"began_s": 1.0, "ended_s": None, "longest_s": 1.5}]


def test_figures_that_cannot_be_read_and_a_workload_that_nobody_knows_are_told(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def section(figures: Any) -> WorkloadSection:
        raise KeyError("from_s")

    monkeypatch.setattr(SCENARIOS[DEFAULT], "section", section)
    assert section_of(read_run(run_dir)) == (None, "Its figures cannot be read: KeyError: 'from_s'.")
    assert "Its figures cannot be read" in render(run_dir).read_text()
    (run_dir / "verdict.json").write_text(json.dumps({"schema": 1, "workload": {"name": "later"}}))
    assert section_of(read_run(run_dir)) == (None, "This Squall does not know the workload 'later'.")


# ---------------------------------------------------------------------------------------------------- transactions


@pytest.fixture
def transactional(run_dir: Path) -> Path:
    """A run directory with the figures of a history: half of its transactions aborted, two readers of it all."""
    h = HistoryBuilder()
    p = h.producer()
    for number in range(4):
        txn = h.begin(p)
        h.ok(h.send(p, txn=txn), 2 * number)
        h.end(txn, "abort" if number % 2 else "commit")
    pairs = [(send.off, send.val) for send in h.sends]
    for _ in range(2):
        h.poll(h.reader(), pairs)
    history = h.history()
    context = context_of(history, ())
    (run_dir / "metrics.json").write_text(json.dumps(shape(measure(history, context), context)))
    return run_dir


ABORTED = "got the records of 2 transactions that did not commit, at 2 offsets"


def test_page_and_terminal_say_how_much_read_uncommitted_readers_got_that_did_not_commit(transactional: Path) -> None:
    page = " ".join(render(transactional).read_text().split())
    out = io.StringIO()
    summary(transactional, Console(file=out, width=200))
    for shown in (page, " ".join(out.getvalue().split())):
        assert ABORTED in shown
        assert "2 of 4 transactions were committed (p50 1.0 ms, p99 1.0 ms)." in shown
    assert '<h2 id="transactions-in-figures">' in page
    section = in_figures(read_run(transactional))
    assert section is not None
    ended, got = section.tables
    assert dict(map(tuple, ended.rows))["aborted by their clients"] == "2"
    assert got.rows[0] == ["that were aborted or failed", "under load", "2", "2", "4"]


def test_where_nobody_saw_uncommitted_records_the_section_says_that_this_shows_nothing(transactional: Path) -> None:
    figures = json.loads((transactional / "metrics.json").read_text())
    figures["transactions"]["read_uncommitted"] = {}
    (transactional / "metrics.json").write_text(json.dumps(figures))
    section = in_figures(read_run(transactional))
    assert section is not None
    assert "so nothing shows that readers at read_committed were kept from any" in section.sentence


@pytest.mark.parametrize("told", [None, {}, {"ended": "?"}, {"ended": {"committed": -1}}, []])
def test_without_figures_of_transactions_there_is_no_section(run_dir: Path, told: object) -> None:
    (run_dir / "metrics.json").write_text(json.dumps({"transactions": told}))
    assert in_figures(read_run(run_dir)) is None
    assert 'id="transactions-in-figures"' not in render(run_dir).read_text()
