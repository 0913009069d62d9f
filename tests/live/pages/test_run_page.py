"""A run's page in a real Chromium: light, dark, on a phone, on paper, without script, without a network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from squall.reports.page import render
from tests.support.browser import Browser, Page
from tests.support.looks import LIGHT, OUTSIDE
from tests.unit.reports.conftest import LOST
from tests.unit.reports.test_operations import write_records

CONTRAST = (
    "(() => {"
    + LIGHT
    + """
  const ink = light(getComputedStyle(document.querySelector("path.dots")).stroke);
  const card = light(getComputedStyle(document.querySelector("figure.card:has(path.dots)")).backgroundColor);
  return (Math.max(ink, card) + 0.05) / (Math.min(ink, card) + 0.05);
})()
"""
)
"""Returns the contrast ratio (WCAG) of the dots for single records."""


@pytest.fixture
def page_path(lost_dir: Path) -> Path:
    """Return the page of a run that lost a record, with a dot for each latency."""
    sends = [(0, 0, 3, 100 + n, 10 + n, (3 << 40) + 100 + n, 2 + n / 5, 2.005 + n / 5) for n in range(39)]
    write_records(lost_dir, [*sends, (0, 0, 3, 9, 60, LOST, 4.4, 4.41)])
    return render(lost_dir)


def widths(page: Page) -> tuple[int, int]:
    got = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    return int(got[0]), int(got[1])


@pytest.mark.parametrize("width", [360, 390, 820, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window_or_asks_for_a_network(
    page_path: Path, browser: Browser, width: int, dark: bool
) -> None:
    page = browser.open(page_path, dark=dark, width=width)
    needed, there = widths(page)
    assert needed <= there == width
    assert page.troubles() == []
    assert [url for url in page.requests() if not url.startswith(("file:", "data:"))] == []


@pytest.mark.gate
def test_tables_are_cards_on_a_phone_and_cells_say_what_they_are(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path, width=390)
    cell = "document.querySelector('#checks ~ .table td.n')"
    assert page.evaluate(f"getComputedStyle({cell}).display") == "block"
    assert page.evaluate(f"getComputedStyle({cell}, '::before').content") == '"found: "'
    wide = browser.open(page_path)
    assert wide.evaluate(f"getComputedStyle({cell}).display") == "table-cell"
    assert wide.evaluate(f"getComputedStyle({cell}, '::before').content") == "none"


@pytest.mark.parametrize("dark", [False, True])
def test_dots_of_single_records_can_be_seen(page_path: Path, browser: Browser, dark: bool) -> None:
    page = browser.open(page_path, dark=dark)
    assert page.evaluate(CONTRAST) > 4.5
    assert page.evaluate("document.querySelector('path.dots').getAttribute('d').split('M').length") == 41
    assert page.evaluate("getComputedStyle(document.querySelector('path.dots')).strokeLinecap") == "round"


@pytest.mark.parametrize("topic", ["appends-0", "__transaction_state", "a-topic-with-a-name-that-goes-on-and-on"])
def test_no_label_of_a_picture_is_cut_off(page_path: Path, browser: Browser, topic: str) -> None:
    for path in page_path.parent.glob("**/*.json*"):
        path.write_text(path.read_text().replace("appends-0", topic))
    page = browser.open(render(page_path.parent))
    assert page.evaluate("document.querySelectorAll('figure svg text').length") > 20
    assert page.evaluate(OUTSIDE) == []


def test_what_is_closed_stays_closed_on_paper(page_path: Path, browser: Browser, tmp_path: Path) -> None:
    page = browser.open(page_path)
    page.send("Emulation.setEmulatedMedia", media="print")
    shown = "[...document.querySelectorAll('details')].map(d => [d.open, d.lastElementChild.checkVisibility()])"
    found = [tuple(each) for each in page.evaluate(shown)]
    assert (True, True) in found and (False, False) in found
    assert set(found) <= {(True, True), (False, False)}
    page.print_to(tmp_path / "folded.pdf")
    folded = page.evaluate("document.documentElement.scrollHeight")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.print_to(tmp_path / "open.pdf")
    assert folded < 0.95 * page.evaluate("document.documentElement.scrollHeight")
    assert 3 <= pages_of(tmp_path / "folded.pdf") <= pages_of(tmp_path / "open.pdf") <= 12


def pages_of(pdf: Path) -> int:
    return len(re.findall(rb"/Type /Page\b", pdf.read_bytes()))


def test_a_picture_is_never_larger_than_its_sheet_of_paper(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path, width=720)
    page.send("Emulation.setEmulatedMedia", media="print")
    sizes = page.evaluate("[...document.querySelectorAll('figure > svg')].map(s => s.getBoundingClientRect().height)")
    assert sizes and max(sizes) <= 24 / 2.54 * 96 + 1


def test_contents_lead_to_every_section(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    links = page.evaluate("[...document.querySelectorAll('nav.toc a')].map(a => a.getAttribute('href'))")
    headings = page.evaluate("[...document.querySelectorAll('h2[id]')].map(h => '#' + h.id)")
    assert links == headings and len(links) >= 6


def test_raw_files_are_linked_and_there(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    files = page.evaluate("[...document.querySelectorAll('#files ~ .table a')].map(a => a.getAttribute('href'))")
    assert {"plan.toml", "history.jsonl", "nodes/1/trace.jsonl"} <= set(files)
    assert all((page_path.parent / name).is_file() for name in files)


def test_the_figures_values_stand_under_the_mouse(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    page.evaluate("document.getElementById('timeline-figure').scrollIntoView()")
    place = "document.querySelector('#timeline-figure svg').getBoundingClientRect()"
    left, top, width = page.evaluate(f"[{place}.left, {place}.top, {place}.width]")
    known = page.evaluate("JSON.parse(document.getElementById('timeline-values').textContent)")

    def told(t: float) -> dict[str, str]:
        share = known["left"] + (t - known["from"]) / (known["to"] - known["from"]) * (known["right"] - known["left"])
        page.move_to(left + share * width, top + 200)
        texts = "r => [r.firstChild.textContent, r.lastChild.textContent]"
        rows = page.evaluate(f"[...document.querySelectorAll('.values div')].map({texts})")
        return {str(name): str(value) for name, value in rows}

    before, after = told(1.0), told(4.5)
    assert abs(float(before["second of load"]) - 1.0) < 0.05
    assert before["appends-0-0"] == "led by broker 1, 3 in sync"
    assert after["appends-0-0"] == "led by broker 2, 2 in sync"
    assert "down" not in before["broker 1"] and "fault" not in before
    assert after["fault"].startswith("kill") and after["broker 1"] == "down"
    page.move_to(5, 5)
    assert page.evaluate("document.querySelector('.values').hidden")


def test_a_time_in_a_witness_leads_to_its_moment_in_the_figure(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    link = "document.querySelector('details.witness a[data-t]')"
    page.evaluate(f"{link}.click()")
    assert page.evaluate("location.hash") == "#timeline-figure"
    shown = page.evaluate("document.querySelector('.values div').lastChild.textContent")
    assert abs(float(shown) - float(page.evaluate(f"{link}.dataset.t"))) < 0.001


@pytest.mark.parametrize("script", [True, False])
def test_links_within_the_page_lead_somewhere_and_back(page_path: Path, browser: Browser, script: bool) -> None:
    page = browser.open(page_path, script=script)
    page.send("Emulation.setScriptExecutionDisabled", value=False)  # for the questions of this test
    lost = page.evaluate(
        "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href'))"
        ".filter(href => !document.getElementById(href.slice(1)))"
    )
    assert lost == []
    witness = page.evaluate("document.querySelector('details.told > p > a').getAttribute('href')")
    story = page.evaluate(f"document.querySelector('{witness} a[href^=\"#story\"]').getAttribute('href')")
    assert page.evaluate(f"document.querySelector('{story} > p > a').getAttribute('href')") == witness
    sentences = page.evaluate(
        f"[...document.querySelectorAll('{story} svg a')].map(a => [a.getAttribute('href'), a.firstElementChild.id])"
    )
    assert len(sentences) >= 8
    back = page.evaluate(
        f"[...document.querySelectorAll('{story} li a.t')].map(a => [a.parentElement.id, a.getAttribute('href')])"
    )
    assert all(f"#{moment}" in [href for _, href in back] or sentence for sentence, moment in sentences)
    assert {sentence for sentence, _ in sentences} == {f"#{line}" for line, _ in back}


def test_a_link_opens_what_it_leads_into(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    sentence = page.evaluate("document.querySelector('details.told svg a').getAttribute('href')")
    words = f"document.querySelector('{sentence}').closest('details')"
    assert page.evaluate(f"{words}.open") is False
    page.send("Page.navigate", url=f"{page_path.as_uri()}{sentence}")
    assert page.evaluate(f"{words}.open") is True


def test_without_script_everything_can_be_read(page_path: Path, browser: Browser) -> None:
    words = (
        "(document.querySelectorAll('.tools').forEach(each => each.remove()),"
        " document.body.innerText.replace(/Open all\\s*Close all/, '').replace(/\\s+/g, ' '))"
    )
    with_script = browser.open(page_path).evaluate(words)
    page = browser.open(page_path, script=False)
    page.send("Emulation.setScriptExecutionDisabled", value=False)
    assert page.evaluate(words) == with_script
    assert page.evaluate("document.querySelectorAll('nav.toc button, .values').length") == 0


def test_everything_is_opened_and_closed_at_once(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    states = "[...new Set([...document.querySelectorAll('details')].map(d => d.open))]"
    for place, wanted in ((0, [True]), (1, [False])):
        page.evaluate(f"document.querySelectorAll('nav.toc button')[{place}].click()")
        assert page.evaluate(states) == wanted


def test_a_witness_leads_to_its_operation_and_back(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    box = "document.querySelector('details.witness a[href=\"#op-9\"]').getAttribute('href')"
    assert page.evaluate(box) == "#op-9"
    back = page.evaluate("document.getElementById('op-9').parentElement.getAttribute('href')")
    assert page.evaluate(f"document.querySelector('{back}').className") == "witness"
    words = page.evaluate("document.getElementById('op-9').querySelector('title').textContent")
    assert "send of record 7 of process 3 (operation 9): acknowledged at offset 60" in words


def test_the_page_is_small(page_path: Path) -> None:
    assert page_path.stat().st_size < 1_500_000


@pytest.mark.night("looks at pages in a browser; the gate looks at one")
def test_on_a_phone_the_names_of_panes_stay_in_view(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path, width=390)
    left = "document.querySelector('svg.labels').getBoundingClientRect().left"
    begin = page.evaluate(left)
    page.evaluate("document.getElementById('timeline-figure').scrollLeft = 300")
    assert abs(page.evaluate(left) - begin) <= 8, "the figure's own padding"
    size = "parseFloat(getComputedStyle(document.querySelector('#timeline-figure text')).fontSize)"
    scale = "document.querySelector('#timeline-figure svg').getScreenCTM().a"
    assert page.evaluate(f"{size} * {scale}") >= 9.5
    wide = browser.open(page_path)
    assert wide.evaluate("getComputedStyle(document.querySelector('svg.labels')).display") == "none"


@pytest.mark.night("looks at pages in a browser; the gate looks at one")
def test_all_witnesses_are_in_one_table_and_each_leads_to_its_own(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    rows = page.evaluate(
        "[...document.querySelectorAll('#witnesses tbody tr')].map(row => [...row.cells].map(each => each.textContent))"
    )
    witnesses = page.evaluate("document.querySelectorAll('details.witness').length")
    assert len(rows) == witnesses > 0
    assert rows[0][:4] == ["lost-write (reads)", "appends-0-0", "60", "record 7 of process 3"]
    links = page.evaluate("[...document.querySelectorAll('#witnesses tbody a')].map(each => each.getAttribute('href'))")
    assert all(page.evaluate(f"document.querySelector({link!r}).className") == "witness" for link in links)
