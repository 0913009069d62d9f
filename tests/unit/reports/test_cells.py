"""The cell of the matrix that permits or forbids a finding is beside the finding."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from squall.checkers.guarantees import SAFE_EXPECTED
from squall.reports.checks import checks_of
from squall.reports.explained import explained
from squall.reports.page import render
from squall.reports.run_files import read_run
from squall.reports.terminal import summary

CELL = {"row": "acks=all, min ISR 1", "under": "W1", "source": "KIP-966: <ELR>"}


def with_cell(run: Path, cell: Any, permitted: bool | None) -> Path:
    """The run, whose findings are all judged by this cell."""
    verdict = json.loads((run / "verdict.json").read_text())
    for each in verdict["anomalies"]:
        each.update(cell=cell, permitted=permitted)
    (run / "verdict.json").write_text(json.dumps(verdict))
    return run


def on_the_terminal(run: Path) -> str:
    out = io.StringIO()
    summary(run, Console(file=out, width=10_000))
    return out.getvalue()


@pytest.mark.parametrize(
    ("permitted", "says"),
    [
        (True, 'The cell "acks=all, min ISR 1", under W1, permits this (KIP-966: <ELR>)'),
        (False, 'The promise of "acks=all, min ISR 1", under W1, forbids this (KIP-966: <ELR>)'),
        (None, 'It depends on the cell "acks=all, min ISR 1", under W1 (KIP-966: <ELR>)'),
    ],
)
def test_the_page_the_terminal_and_explain_name_the_cell(lost_dir: Path, permitted: bool | None, says: str) -> None:
    run = with_cell(lost_dir, CELL, permitted)
    found = [check for check in checks_of(read_run(run)) if check.count]
    assert {check.cell for check in found} == {says}
    assert says in on_the_terminal(run)
    assert f"By which rule: {says[0].lower()}{says[1:]}." in " ".join(explained(run, found[0].name, 10_000).split())
    page = render(run).read_text()
    assert says.replace('"', "&#34;").replace("<", "&lt;").replace(">", "&gt;") in page


@pytest.mark.parametrize("cell", [None, {}, "acks=1", ["acks=1"]])
def test_a_verdict_of_an_earlier_version_names_none(lost_dir: Path, cell: Any) -> None:
    run = with_cell(lost_dir, cell, False)
    assert {check.cell for check in checks_of(read_run(run))} == {""}
    assert "the cell" not in explained(run, "lost-write").lower()
    assert "the cell" not in on_the_terminal(run).lower()


def test_expect_safe_is_said_once(lost_dir: Path) -> None:
    cell = {"row": SAFE_EXPECTED.row, "under": SAFE_EXPECTED.under, "source": SAFE_EXPECTED.source}
    found = [check for check in checks_of(read_run(with_cell(lost_dir, cell, permitted=False))) if check.count]
    assert {check.cell for check in found} == {""}
