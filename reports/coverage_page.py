"""Writes the page of a batch of simulations that measured coverage: what no seed reached, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from squall.reports.page import environment


@dataclass(frozen=True, slots=True)
class CoverageSection:
    """Holds one table of the page. The first column of a row names what the row is about."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    is_open: bool
    """Is True if the page shows the table when it is opened; else a click on the title shows it."""


def render(path: Path, *, batch: str, headline: str, sentence: str, sections: Sequence[CoverageSection]) -> Path:
    """Write the page about the coverage of a batch of simulations, and return its path. `batch` names the seeds in
    words; `headline` and `sentence` sum up the result.
    """
    shown = [each for each in sections if each.rows]
    template = environment().get_template("coverage.html.j2")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".html.new")
    fresh.write_text(
        template.render(batch=batch, headline=headline, sentence=sentence, sections=shown), encoding="utf-8"
    )
    fresh.replace(path)
    return path
