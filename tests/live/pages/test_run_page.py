"""A run's page in a real Chromium: light, dark, on a phone, on paper, without script, without a network."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reports.page import render
from tests.support.browser import Browser, Page
from tests.unit.reports.conftest import ORIGIN, S

CONTRAST = """
(() => {
  const channel = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 };
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number);
                       return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b) };
  const ink = light(getComputedStyle(document.querySelector("path.dots")).stroke);
  const card = light(getComputedStyle(document.querySelector("figure.card:has(path.dots)")).backgroundColor);
  return (Math.max(ink, card) + 0.05) / (Math.min(ink, card) + 0.05);
})()
"""
"""How well the dots of single records stand out (WCAG's ratio)."""
OUTSIDE = """
[...document.querySelectorAll("figure svg")].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const own = text.getBoundingClientRect();
    return own.width && (own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1
                         || own.bottom > box.bottom + 1);
  }).map(text => text.textContent);
})
"""
"""Labels that a picture cuts off."""


@pytest.fixture
def page_path(lost_dir: Path) -> Path:
    """The page of a run that lost a record, with single latencies."""
    t0 = ORIGIN + (np.arange(40) * 0.2 * S).astype(np.int64) + 2 * S
    columns = {"part": np.zeros(40, np.int32), "kind": np.zeros(40, np.int8), "st": np.zeros(40, np.int8), "t0": t0,
               "t1": t0 + 5_000_000, "val": np.arange(40) + (1 << 50)}  # fmt: skip
    (lost_dir / "history").mkdir()
    pq.write_table(pa.table(columns), lost_dir / "history" / "records.parquet")
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


def test_no_label_of_a_picture_is_cut_off(page_path: Path, browser: Browser) -> None:
    assert browser.open(page_path).evaluate(OUTSIDE) == []


def test_what_is_closed_stays_closed_on_paper(page_path: Path, browser: Browser, tmp_path: Path) -> None:
    page = browser.open(page_path)
    page.send("Emulation.setEmulatedMedia", media="print")
    shown = "[...document.querySelectorAll('details')].map(d => [d.open, d.lastElementChild.checkVisibility()])"
    found = [tuple(each) for each in page.evaluate(shown)]
    assert (True, True) in found and (False, False) in found
    assert set(found) <= {(True, True), (False, False)}
    page.print_to(tmp_path / "folded.pdf")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.print_to(tmp_path / "open.pdf")
    assert pages_of(tmp_path / "folded.pdf") < pages_of(tmp_path / "open.pdf")


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
