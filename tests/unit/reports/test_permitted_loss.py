"""A valid run that lost records: the same line on its page, terminal, JUnit and in `squall runs`, with a story."""

from __future__ import annotations

import io
import json
import re
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from rich.console import Console

from squall.chaos.commands.conclusion import conclude
from squall.chaos.commands.runs import command
from squall.chaos.runs.directory import RunDirectory
from squall.reports import checks
from squall.reports.explained import listing
from squall.reports.junit import write_junit
from squall.reports.page import render
from squall.reports.run_files import read_run
from squall.reports.run_list import one, runs_in
from squall.reports.runs_page import render as render_runs
from squall.reports.story_index import rendered_stories
from squall.reports.terminal import summary

LINE = "28 of 90 acknowledged records lost (31 %): acks=1 permits it"
WHY = "only the leader had the record, and another replica leads now"


@pytest.fixture
def permitted(lost_dir: Path) -> Path:
    """The run of `lost_dir` with acks=1: its loss is permitted, and so are two duplicates."""
    verdict = json.loads((lost_dir / "verdict.json").read_text())
    (lost,) = verdict["anomalies"]
    cell = {"row": "acks=1", "under": "no fault, P, N or C", "source": "Kafka documentation"}
    judged = {"permitted": True, "why": WHY, "cell": cell, "count": 28, "partitions": {"appends-0-0": 28}}
    twice = {"name": "duplicate", "count": 2, "why": "sent again", "partitions": {"appends-0-0": 2}, "witnesses": []}
    write(lost_dir, verdict="valid", reasons=[], anomalies=[{**lost, **judged}, {**lost, **judged, **twice}])
    return lost_dir


def write(run: Path, **changes: Any) -> None:
    verdict = json.loads((run / "verdict.json").read_text())
    (run / "verdict.json").write_text(json.dumps({**verdict, **changes}))


def terminal(run: Path) -> str:
    out = io.StringIO()
    summary(run, Console(file=out, width=200))
    return out.getvalue()


def test_page_terminal_list_and_junit_say_it_in_their_first_line(permitted: Path) -> None:
    page = unescape(render(permitted).read_text())
    assert f"<title>VALID, {LINE}: r1 - Squall</title>" in page
    assert f'<section class="banner valid lossy" aria-label="Verdict">\n<h1>VALID, {LINE}</h1>' in page
    assert f"VALID, {LINE}  r1" in terminal(permitted).splitlines()
    assert " ".join(listing(permitted).split()).startswith(f"VALID, {LINE} r1: ")
    suite = ElementTree.parse(write_junit(permitted)).getroot()[0]
    case = suite.find("testcase[@name='verdict']")
    assert case is not None and (case.findtext("system-out") or "").startswith(f"{LINE}\n")
    (told,) = case.iter("property")
    assert (told.get("name"), told.get("value")) == ("permitted loss", LINE)
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")


def test_the_reason_stays_the_verdicts_and_what_else_is_permitted_has_a_sentence(permitted: Path) -> None:
    said = checks.sentence(read_run(permitted))
    assert f"The loss is permitted: {WHY}. All in appends-0-0. 2 records stand at two offsets: sent again." in said


def test_what_is_permitted_and_no_loss_changes_no_banner(permitted: Path) -> None:
    (_, twice) = json.loads((permitted / "verdict.json").read_text())["anomalies"]
    write(permitted, anomalies=[twice])
    page = render(permitted).read_text()
    assert '<section class="banner valid" aria-label="Verdict">\n<h1>VALID</h1>' in page
    assert "2 records stand at two offsets: sent again." in page
    assert rendered_stories(read_run(permitted)) == []


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("unknown", f"{LINE}. Nothing is proven either way: no one leads."),
        (
            "invalid",
            f"This breaks what the configuration promises (acks=all, min ISR 2): no one leads. Beside that, {LINE}.",
        ),
    ],
)
def test_a_graver_verdict_keeps_its_banner_and_still_tells_of_the_loss(permitted: Path, word: str, said: str) -> None:
    write(permitted, verdict=word, reasons=["no one leads"])
    assert checks.sentence(read_run(permitted)) == said
    assert f"<h1>{word.upper()}</h1>" in render(permitted).read_text()
    case = ElementTree.parse(write_junit(permitted)).getroot()[0].find("testcase[@name='verdict']")
    assert case is not None and [each.get("value") for each in case.iter("property")] == [LINE]


def test_a_permitted_loss_has_a_story_that_says_so_behind_what_is_not_permitted(permitted: Path) -> None:
    (telling,) = rendered_stories(read_run(permitted))
    assert telling.title == "lost-write in appends-0-0, permitted"
    anomalies = json.loads((permitted / "verdict.json").read_text())["anomalies"]
    unseen = {**anomalies[0], "name": "unseen", "permitted": False}
    write(permitted, anomalies=[*anomalies, unseen])
    assert [each.title for each in rendered_stories(read_run(permitted))] == ["unseen in appends-0-0"]


@pytest.mark.usefixtures("drawn")
def test_the_timeline_marks_the_partition_that_lost_in_a_colour_that_is_no_findings(permitted: Path) -> None:
    page = render(permitted).read_text()
    (mark,) = re.findall(r"<text [^>]*>28 lost, permitted</text>", page)
    assert "var(--open)" in mark
    anomalies = json.loads((permitted / "verdict.json").read_text())["anomalies"]
    wrong = {**anomalies[0], "count": 3, "permitted": False, "partitions": {"appends-0-0": 3}}
    write(permitted, anomalies=[*anomalies, wrong])
    assert re.findall(r"<text [^>]*>(\d+ lost[^<]*)</text>", render(permitted).read_text()) == ["3 lost"]


def test_the_list_of_runs_says_it_on_the_terminal_on_its_page_and_beside_another_run(permitted: Path) -> None:
    assert (one(permitted).loss, one(permitted).permitted) == (LINE, ("duplicate (reads): 2",))
    for width in ("120", "400"):  # as cards, and as a table
        arguments = ["--runs", str(permitted.parent)]
        done = CliRunner().invoke(command, arguments, standalone_mode=False, env={"COLUMNS": width})
        assert LINE in done.output
    page = render_runs(permitted.parent, runs_in(permitted.parent)).read_text()
    assert '<section class="banner valid lossy"' in page
    assert "Nothing forbidden was found. 1 valid run lost acknowledged records, as permitted." in page
    assert '<span class="tag open">valid</span>' in page and f"<strong>{LINE}</strong>" in page


def test_a_simulation_that_lost_records_with_permission_has_a_page(permitted: Path) -> None:
    assert conclude(RunDirectory(permitted), keep_data=True, always_page=False) == 0
    assert f"<h1>VALID, {LINE}</h1>" in (permitted / "report.html").read_text()
