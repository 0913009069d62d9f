"""The page of a night: what is on it, and in which order."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from squall.reports import checkout
from squall.reports.nightly import figures, page
from squall.reports.nightly.configurations import page_of
from squall.reports.nightly.report import report_of
from tests.support.nightly.rows import cell, finding, losing, night, run, tables

Rows = list[dict[str, Any]]


def text_of(folder: Path, runs: Rows, findings: Rows, cells: Rows, *, before: Rows | None = None, **head: Any) -> str:
    """The page of night n2, without tags. before: rows of runs of n1."""
    place = folder / "n2"
    place.mkdir()
    nights = [night("n1")] * bool(before) + [night("n2", **head)]
    report = report_of(tables(nights, [*(before or []), *runs], findings), "n2", cells, "Over this night.")
    html = page.render(place, report).read_text()
    assert "None" not in re.sub(r"<[^>]*>", " ", html)
    return html


def plain(html: str) -> str:
    """The words that people see."""
    return " ".join(re.sub(r"<(style|script)>.*?</\1>|<[^>]*>", " ", html, flags=re.S).split())


def test_it_answers_in_the_order_in_which_people_ask(tmp_path: Path) -> None:
    rows = [run(name="n2"), run("two", "n2", verdict="invalid", lost=7)]
    html = text_of(tmp_path, rows, [finding("two", "n2")], [cell(lost=7, invalid=1), losing()], before=[run(name="n1")])
    places = [html.index(each) for each in ("One finding", 'id="new"', 'id="table"', 'id="trends"', 'id="runs"')]
    assert places == sorted(places)
    told = plain(html)
    assert "One finding, in 1 run; it is new" in told
    assert "This breaks what is promised: acks=all, min ISR 2 or more." in told
    assert "7 0.35% (0.17% to 0.72%)" in told  # wilson(7, 2000)
    assert "Fault 0 begins: kill of broker 1." in told


def test_a_night_whose_runs_lost_records_as_permitted_is_not_simply_green(tmp_path: Path) -> None:
    html = text_of(tmp_path, [run(name="n2", lost=260, permitted=["lost-write"]), run("two", "n2")], [], [losing()])
    assert '<section class="banner valid lossy"' in html
    assert [html.count(f'<span class="tag {kind}">valid</span>') for kind in ("open", "good")] == [1, 1]
    assert '<td class="n" data-what="lost">260<small><strong>permitted</strong></small></td>' in html


def test_each_cell_and_run_leads_to_its_page(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "n2/runs" / name).mkdir(parents=True)
    (tmp_path / "n2/runs/one/report.html").write_text("")
    report = report_of(tables([night("n2")], [run(name="n2"), run("gone", "n2")], []), "n2",
                       [cell(behind=[{**each, "night": "n2"} for each in cell()["behind"]])], "")  # fmt: skip
    html = page.render(tmp_path / "n2", report).read_text()
    assert html.count('href="../runs/one/report.html"') == 2
    assert html.count('href="../runs/two"') == 1  # its directory, for it has no page
    assert "runs/gone" not in html


def test_a_finding_of_an_earlier_night_leads_to_that_night(tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        (tmp_path / name / "report").mkdir(parents=True)
    (tmp_path / "n1/report/index.html").write_text("")
    (tmp_path / "n1/runs/one").mkdir(parents=True)
    assert page.night_link(tmp_path / "n2", "n1") == "../../n1/report/index.html"
    assert page.night_link(tmp_path / "n2", "n2") == ""
    assert page.link_of(tmp_path / "n2", run(name="n1")) == "../../n1/runs/one"
    command = page.explain(tmp_path / "n2", finding(evidence="final", anomaly="duplicate", name="n1"))
    place = os.path.relpath(tmp_path / "n1/runs/one", checkout.ROOT)
    assert command == f"./squall explain {place} 'duplicate (final)'", "typed in the checkout, wherever that is"


def test_an_empty_night_is_a_page_of_clear_sentences(tmp_path: Path) -> None:
    told = plain(text_of(tmp_path, [], [], [], ended="", not_run=["one"]))
    for sentence in ("Nothing ran", "No run of this night has ended.", "There is no run to count.", "No run has ended.",
                     "1 planned runs did not run"):  # fmt: skip
        assert sentence in told


def test_a_night_of_unknown_runs_says_so_everywhere(tmp_path: Path) -> None:
    unknown = {"verdict": "unknown", "why": "no final read reached the end", "acknowledged": None, "lost": None,
               "measured": False, "unavailable_ms": None}  # fmt: skip
    nothing = dict.fromkeys(("acknowledged", "lost", "losing", "duplicated", "lost_tails"), 0)
    empty = cell(runs=0, unknown=2, unavailable_ms=None, recovery_ms=None, leader_changes=None, **nothing,
                 latency={"calm": {}, "faulty": {}})  # fmt: skip
    told = plain(text_of(tmp_path, [run(name="n2", **unknown)], [], [empty]))
    assert "Too little is proven" in told
    assert "no run of it has a verdict" in told
    assert "no final read reached the end" in told
    assert "Sometimes without a verdict" in told


def test_an_accepted_finding_is_shown_with_its_owner_its_last_day_and_the_reason(tmp_path: Path) -> None:
    entry = {"fingerprint": "f1", "owner": "alice", "until": "2026-12-31", "why": "fixed by KAFKA-17754"}
    (tmp_path / "n1").mkdir()
    given = tables([night("n1", ended="2026-07-01T02:00:00+00:00")], [run(verdict="invalid")], [finding()])
    html = page.render(tmp_path / "n1", report_of(given, "n1", [cell()], "", accepted=[entry])).read_text()
    assert 'class="banner valid lossy"' in html
    told = plain(html)
    assert "What is accepted accepted lost-write" in told
    assert "Accepted by alice until 2026-12-31: fixed by KAFKA-17754" in told


def test_what_is_gone_is_told_and_whether_it_could_have_shown(tmp_path: Path) -> None:
    told = plain(text_of(tmp_path, [run(name="n2")], [finding(name="n1")], [cell()], before=[run(name="n1")]))
    assert "What is gone" in told
    assert "The configuration ran tonight without it." in told
    assert "Not tested tonight" not in told


def test_what_had_no_run_with_a_verdict_is_not_tested_and_not_gone(tmp_path: Path) -> None:
    rows = [run(name="n2", verdict="unknown")]
    told = plain(text_of(tmp_path, rows, [finding(name="n1")], [cell()], before=[run(name="n1")]))
    assert "What is gone" not in told
    assert "Not tested tonight Findings of earlier nights" in told
    assert "last in night n1: A broker truncates the partition." in told


def test_a_page_of_a_selection_stands_beside_the_nights_own(tmp_path: Path) -> None:
    report = report_of(tables([night("n1")], [], []), "n1", [], "")
    (tmp_path / "n1").mkdir()
    assert page.render(tmp_path / "n1", report, "acks-1.html") == tmp_path / "n1/report/acks-1.html"
    assert not (tmp_path / "n1/report/index.html").exists()


def test_a_figure_that_fails_does_not_take_the_page_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise ZeroDivisionError("drawn wrong")

    monkeypatch.setattr(figures, "glance", fail)
    told = plain(text_of(tmp_path, [run(name="n2")], [], [cell()]))
    assert "Drawing failed: ZeroDivisionError: drawn wrong." in told
    assert "Nothing is wrong" in told


def test_the_glance_has_a_row_for_each_configuration_and_says_the_same_in_words() -> None:
    report = report_of(
        tables([night()], [run()], []), "n1", [cell(), losing(), losing(target="kafka"), cell(runs=0, classes="D")], ""
    )
    svg = figures.glance(report.cells)
    assert "acks=1, min ISR 1 of 3" in svg
    assert "kafka, process" in svg
    assert "disk damage" not in svg, "no run of it has a verdict"
    assert "acks=1, min ISR 1 of 3, processes, network, kafka, process: 4.00% lost (3.23% to 4.95%)" in svg
    assert "#" + "0a0b0c" not in svg, "colours are the page's"


def test_nothing_from_a_run_is_taken_for_markup(tmp_path: Path) -> None:
    html = text_of(
        tmp_path, [run("<b>one</b>", "n2", why="<script>alert(1)</script>")], [], [cell(configuration="<i>")]
    )
    assert "<script>alert" not in html
    assert "<b>one" not in html
    assert "<i>" not in html


def test_each_configuration_has_a_page_with_all_its_nights(tmp_path: Path) -> None:
    one, other = "acks=all, min ISR 2 of 3", "acks=1, min ISR 1 of 3"
    before = [run(name="n1", verdict="invalid", lost=7, unavailable_ms=9000.0, why="lost-write: 7")]
    rows = [run(name="n2"), run("two", "n2", verdict="unknown"), run("three", "n2", configuration=other, lost=80)]
    found = [finding(name="n1"), finding(name="n1", item="three", configuration=other, permitted=True)]
    for name in ("n1", "n2"):
        (tmp_path / name / "runs/one").mkdir(parents=True)
    report = report_of(tables([night("n1"), night("n2")], [*before, *rows], found), "n2", [cell(), losing()], "")
    html = page.render(tmp_path / "n2", report).read_text()
    names = {each.name: each.page for each in report.configurations}
    assert sorted(names) == [other, one]
    assert all(f'<a href="{name}">' in html for name in names.values())
    told = (tmp_path / "n2/report" / names[one]).read_text()
    assert 'href="index.html"' in told and 'href="../../n1/runs/one"' in told
    words = plain(told)
    assert "n2 squall, process 2 1 0 1 1,000 0 0 2.5 s" in words, "valid, invalid, without a verdict; lost; unavailable"
    assert "n1 squall, process 1 0 1 0 1,000 7 0 9.0 s" in words
    assert "lost-write not permitted A broker truncates the partition. 1 n1 n1 1 one" in words
    assert "three" not in words, "that is another configuration's"
    assert "lost-write permitted" in plain((tmp_path / "n2/report" / names[other]).read_text())


def test_pages_of_configurations_that_differ_in_signs_only_are_two() -> None:
    assert page_of("acks=1, min ISR 2 of 3") != page_of("acks=1 min-ISR 2 of 3")
    assert len(page_of("x" * 300)) < 100
