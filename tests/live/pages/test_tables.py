"""Filtering, sorting and copying tables, in a real Chromium."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall.reports.run_list import runs_in
from squall.reports.runs_page import render
from tests.support.browser import Browser, Page
from tests.unit.reports.test_run_list import LOST, put

pytestmark = pytest.mark.night("looks at pages in a browser; the gate looks at one")

NAMES = "[...document.querySelectorAll('tbody tr:not([hidden]) th')].map(each => each.textContent)"


@pytest.fixture
def page_path(tmp_path: Path) -> Path:
    """Return the list page of four runs, one of which has no figures."""
    put(tmp_path, "a", 1, "valid")
    put(tmp_path, "b", 2, "invalid", anomalies=[LOST], metrics={"latency_ms": {"all": {"p99": 1200.0}}})
    put(tmp_path, "c", 3, "valid", metrics={"latency_ms": {"all": {"p99": 9.5}}})
    put(tmp_path, "d", 4, "unknown", metrics={}, reasons=["a fault did not land"])
    return render(tmp_path, runs_in(tmp_path))


def sort_by(page: Page, name: str) -> list[str]:
    """Click on a column's head, and return the runs in their new order."""
    heads = "[...document.querySelectorAll('thead button')]"
    page.evaluate(f"{heads}.find(each => each.textContent.startsWith({json.dumps(name)})).click()")
    return list(page.evaluate(NAMES))


def test_a_column_of_numbers_begins_with_the_largest_and_what_is_not_known_comes_last(
    page_path: Path, browser: Browser
) -> None:
    page = browser.open(page_path)
    assert page.evaluate(NAMES) == ["a", "b", "c", "d"]
    assert sort_by(page, "p99") == ["b", "a", "c", "d"]
    assert sort_by(page, "p99") == ["c", "a", "b", "d"]
    assert page.evaluate("document.querySelector('[aria-sort=ascending]').textContent") == "p99, ms"
    assert sort_by(page, "verdict") == ["b", "d", "a", "c"]
    assert page.troubles() == []


def test_only_rows_with_all_words_stay(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    box = "document.querySelector('.tools input')"
    for text, left in (("VALID", ["a", "b", "c"]), ("lost-write inv", ["b"]), ("", ["a", "b", "c", "d"])):
        page.evaluate(f"{box}.value = {json.dumps(text)}; {box}.dispatchEvent(new Event('input'))")
        assert page.evaluate(NAMES) == left
    page.evaluate(f"{box}.value = 'land'; {box}.dispatchEvent(new Event('input'))")
    assert page.evaluate("document.querySelector('.tools output').textContent") == "1 of 4"


def test_what_is_shown_is_copied_as_a_spreadsheet_takes_it(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path)
    box = "document.querySelector('.tools input')"
    page.evaluate(f"{box}.value = 'lost-write'; {box}.dispatchEvent(new Event('input'))")
    page.evaluate(
        "window.addEventListener('copy', each => { window.copied = each.clipboardData.getData('text/plain') })"
    )
    x, y = page.evaluate(
        "(() => { const box = document.querySelector('.tools button').getBoundingClientRect();"
        " return [box.x + 5, box.y + 5] })()"
    )
    page.click(x, y)
    assert page.evaluate("document.querySelector('.tools output').textContent") == "1 rows copied"
    head, row = [line.split("\t") for line in page.evaluate("window.copied").split("\n")]
    assert head[:3] == ["run", "verdict", "found, or why nothing is proven"]
    assert row[:3] == ["b", "invalid", "lost-write: 7"]
    assert len(head) == len(row)


def test_a_phone_has_a_list_instead_of_heads(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path, width=390)
    page.evaluate(
        "(() => { const list = document.querySelector('.tools select');"
        " list.value = [...list.options].find(each => each.text === 'p99, ms').value;"
        " list.dispatchEvent(new Event('change')) })()"
    )
    assert page.evaluate(NAMES) == ["b", "a", "c", "d"]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("getComputedStyle(document.querySelector('.tools select')).display") == "block"


def test_without_script_the_table_is_whole_and_has_no_tools(page_path: Path, browser: Browser) -> None:
    page = browser.open(page_path, script=False)
    page.send("Emulation.setScriptExecutionDisabled", value=False)  # for the questions of this test
    assert page.evaluate(NAMES) == ["a", "b", "c", "d"]
    assert page.evaluate("document.querySelectorAll('.tools, thead button').length") == 0
