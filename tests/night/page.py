"""Makes the page of a night of tests: one HTML file that needs no network, and looks like the durability report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import jinja2

from squall.chaos.nightly.directory import write_whole
from squall.reports.page import environment
from tests.night.collecting import place_of
from tests.night.parts import Part, shown
from tests.night.record import Folder
from tests.night.report import Report

FILE = "report/index.html"
TEMPLATES = Path(__file__).parent


def render(folder: Folder, report: Report, parts: Mapping[str, Part]) -> Path:
    """Write the page, and return its path."""
    page, night = folder.path / FILE, report.night["night"]
    page.parent.mkdir(exist_ok=True)
    shared = environment()
    assert shared.loader is not None
    own = shared.overlay(loader=jinja2.ChoiceLoader([jinja2.FileSystemLoader(TEMPLATES), shared.loader]))
    text = own.get_template("night_of_tests.html.j2").render(
        report=report,
        what={part.name: part.what for part in parts.values()},
        pages={part.name: _link(page, there) for part in parts.values() if (there := part.page(folder, night))},
        minutes=minutes,
        commit=short(report.night["commit"]),
        store=shown(place_of(folder) / f"tests={night}"),
    )
    write_whole(page, text)
    return page


def short(commit: str) -> str:
    """Return a commit's short hash, with a remark if files differed from it."""
    name, _, dirty = commit.partition("-")
    return f"{name[:10]}, changed" if dirty else name[:10] or "unknown"


def minutes(seconds: float) -> str:
    """Return a duration as text."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _link(page: Path, there: Path) -> str:
    return quote(Path(os.path.relpath(there, page.parent)).as_posix())
