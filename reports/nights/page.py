"""The page of a night: one HTML file that needs no network."""

from __future__ import annotations

import os
from pathlib import Path

from reports.nights import table
from reports.nights.report import Report
from reports.page import environment

FOLDER, FILE = "report", "index.html"


def render(night: Path, report: Report, name: str = FILE) -> Path:
    """Write `night`/report/`name`, and return its path."""
    folder = night / FOLDER
    folder.mkdir(exist_ok=True)
    text = (
        environment()
        .get_template("night.html.j2")
        .render(
            report=report,
            count=table.count,
            share=table.share,
            duration=table.duration,
            link=lambda row: link_of(night, row),
        )
    )
    path = folder / name
    fresh = path.with_suffix(f".new-{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
    return path


def link_of(night: Path, row: table.Row) -> str:
    """From the page to the page of a run, or to its directory; empty where that is gone."""
    if not row["run"]:
        return ""
    run = night.parent / row["night"] / row["run"] if row["night"] != night.name else night / row["run"]
    if not run.is_dir():
        return ""
    page = run / "report.html"
    return Path(os.path.relpath(page if page.exists() else run, night / FOLDER)).as_posix()
