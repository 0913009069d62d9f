"""A night's page in a real Chromium: light, dark, on a phone, on paper, without script, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.reports.nightly.page import render
from squall.reports.nightly.report import report_of
from tests.support.browser import Browser, Page
from tests.support.looks import LIGHT, OUTSIDE
from tests.support.nightly.rows import cell, finding, losing, night, run, tables

pytestmark = pytest.mark.night("looks at pages in a browser; the gate looks at one")

NIGHTS = [night(f"n{number}") for number in range(1, 9)]
OVERLAPS = """
[...document.querySelectorAll("figure svg")].flatMap(svg => {
  const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
  return texts.flatMap(([one, a], i) => texts.slice(i + 1).filter(([, b]) =>
    a.width && b.width && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1
  ).map(([other]) => `${one} / ${other}`));
})
"""
"""Returns labels that overlap each other."""
BEYOND = """
[...document.querySelectorAll("main *")].filter(each => each.getBoundingClientRect().right > window.innerWidth + 1)
  .map(each => each.tagName + " " + each.textContent.trim().slice(0, 40))
"""
"""Returns elements that extend beyond the right edge of the window."""
PALE = (
    "(() => {"
    + LIGHT
    + """
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
                        if (!c.endsWith(", 0)")) return light(c) } return 1 };
  return [...document.querySelectorAll("h1, h2, h3, p, td, th, dt, dd, small, a, summary, li, pre, text")].filter(e => {
    const style = getComputedStyle(e);
    const ink = light(e.tagName === "text" ? style.fill : style.color), back = behind(e);
    return (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05) < 4.5;
  }).map(e => e.textContent.trim().slice(0, 60)).filter(text => text);
})()
"""
)
"""Returns texts with too little contrast (WCAG AA)."""


@pytest.fixture
def page_path(tmp_path: Path) -> Path:
    """Return the page of a night with two kinds of brokers, new and known findings, unknown runs, and a change."""
    runs = []
    for number, each in enumerate(NIGHTS):
        slow = 9000.0 if number >= 4 else 2500.0
        more = {"unavailable_ms": slow, "recovery_ms": 900.0, "p99_ms": 9.5, "p99_faulty_ms": 1500.0}
        runs += [run("one", each["night"], **more), run("kafka", each["night"], target="kafka", **more)]
    runs.append(run("two", "n8", verdict="invalid", lost=7, why="lost-write: 7, not permitted"))
    runs.append(run("flaky", "n8", verdict="unknown", why="fault 0 (kill leader) left no evidence that it landed"))
    for each in runs:
        (tmp_path / each["night"] / each["run"]).mkdir(parents=True, exist_ok=True)
    findings = [finding("two", "n8", story=[f"{at}.000 s  Process {at} reads it at offset 5." for at in range(9)])]
    findings += [
        finding("two", name, fingerprint="f2", cause="Another cause.", anomaly="duplicate") for name in ("n7", "n8")
    ]
    findings.append(finding("one", "n3", fingerprint="f3"))
    cells = [cell(lost=7, invalid=1), losing(), losing(target="kafka", unavailable_ms=12_000.0),
             cell(classes="WM D", configuration="acks=all, min ISR 2 of 3, idempotence=off, client=confluent, flush=1"),
             cell(runs=0, unknown=2, classes="C")]  # fmt: skip
    report = report_of(tables(NIGHTS, runs, findings), "n8", cells, "Over this night.")
    return render(tmp_path / "n8", report)


def widths(page: Page) -> tuple[int, int]:
    got = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    return int(got[0]), int(got[1])


@pytest.mark.parametrize("width", [360, 820, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window_and_nothing_is_asked_of_a_network(
    page_path: Path, browser: Browser, width: int, dark: bool
) -> None:
    pages = [page_path, *page_path.parent.glob("configuration-*.html")]
    assert len(pages) == 2
    for path in pages:
        page = browser.open(path, dark=dark, width=width)
        wide, window = widths(page)
        assert wide <= window, path.name
        assert page.troubles() == []
        assert page.requests() == [path.absolute().as_uri()]


@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_and_labels_are_whole_and_apart(page_path: Path, browser: Browser, dark: bool) -> None:
    page = browser.open(page_path, dark=dark)
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(PALE) == []


def test_the_answer_and_the_first_finding_are_on_the_first_screen(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    tops = page.evaluate(
        '["h1", "article.finding"].map(each => document.querySelector(each).getBoundingClientRect().top)'
    )
    assert tops == sorted(tops)
    assert tops[1] < 900
    assert page.evaluate('document.querySelector("h1").textContent') == "2 findings, 1 of them new"
    new, known = page.evaluate('[...document.querySelectorAll("article.finding details")].map(each => each.open)')
    assert (new, known) == (True, False)


def test_on_a_phone_each_row_is_a_card_that_names_its_figures(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path, width=390)
    assert page.evaluate('getComputedStyle(document.querySelector("#table ~ .cards thead")).display') == "none"
    label = page.evaluate('getComputedStyle(document.querySelector("td.lost"), "::before").content')
    assert label == '"lost: "' or label == 'attr(data-what) ": "'


def test_all_of_it_is_read_without_script_and_on_paper(page_path: Path, browser: Browser, tmp_path: Path) -> None:
    page = browser.open(page_path, script=False)
    page.send("Emulation.setEmulatedMedia", media="print")
    page.print_to(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    page.send("Emulation.setScriptExecutionDisabled", value=False)  # for the questions of this test
    words = "(document.querySelectorAll('.tools').forEach(each => each.remove()), document.body.textContent)"
    there = page.evaluate("document.body.textContent")
    assert browser.open(page_path).evaluate(words) == there


def test_paper_shows_the_story_of_what_is_new_and_cuts_no_column_off(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path, width=720)
    page.send("Emulation.setEmulatedMedia", media="print")
    assert page.evaluate(BEYOND) == []
    assert page.evaluate('document.querySelector("article.new ol.story").getBoundingClientRect().height') > 100


def test_every_link_of_the_page_leads_somewhere(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    targets = page.evaluate('[...document.querySelectorAll("a")].map(each => each.href)')
    assert len(targets) > 10
    for target in targets:
        place, _, part = target.removeprefix("file://").partition("#")
        assert Path(place).exists(), target
        if part:
            assert page.evaluate(f'document.getElementById("{part}") !== null'), target
