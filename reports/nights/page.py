"""The page of a night: one HTML file that needs no network."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from checkers.anomalies.registry import CATALOG
from reports.cards import with_names
from reports.checks import INVARIANT
from reports.nights import figures, table
from reports.nights.report import Report
from reports.nights.trends import MEASURES
from reports.page import environment

FOLDER, FILE = "report", "index.html"
PROGRAM = Path(__file__).resolve().parents[2] / "squall"
T = TypeVar("T")


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
            amount=table.amount,
            link=lambda row: link_of(night, row),
            explain=lambda row: explain(night, row),
            glance=_drawn(lambda: figures.glance(report.cells)),
            over_nights=_drawn(lambda: figures.over_nights(report.trends.series)),
            measures=dict(MEASURES),
            nightlink=lambda name: night_link(night, name),
        )
    )
    path = folder / name
    fresh = path.with_suffix(f".new-{os.getpid()}")
    fresh.write_text(with_names(text), encoding="utf-8")
    fresh.replace(path)
    return path


def _drawn(draw: Callable[[], T]) -> tuple[T | None, str]:
    """A figure, or why there is none: one that fails must not take the page with it."""
    try:
        return draw(), ""
    except Exception as error:  # the page says so, and all the rest of it stands
        return None, f"Drawing failed: {type(error).__name__}: {error}."


def explain(night: Path, row: table.Row) -> str:
    """The command that tells more of a finding, as it works in every folder. Empty where its run is gone."""
    run = run_of(night, row)
    if run is None:
        return ""
    name = f"{row['anomaly']} ({row['evidence']})" if row["evidence"] else row["anomaly"]
    words = [name] if row["anomaly"] in CATALOG or name.startswith(INVARIANT) else []
    return shlex.join([str(PROGRAM), "explain", str(run.absolute()), *words])


def link_of(night: Path, row: table.Row) -> str:
    """From the page to the page of a run, or to its directory; empty where that is gone."""
    run = run_of(night, row)
    if run is None:
        return ""
    page = run / "report.html"
    return quote(Path(os.path.relpath(page if page.exists() else run, night / FOLDER)).as_posix())


def night_link(night: Path, name: str) -> str:
    """From the page to that of another night beside it; empty where there is none."""
    page = night.resolve().parent / name / FOLDER / FILE
    return quote(f"../../{name}/{FOLDER}/{FILE}") if page.exists() and name != night.resolve().name else ""


def run_of(night: Path, row: table.Row) -> Path | None:
    """The directory of a row's run, in its own night beside this one; None where it is gone."""
    own = night if row["night"] in ("", night.resolve().name) else night.resolve().parent / row["night"]
    run = own / row["run"]
    return run if row["run"] and run.is_dir() else None
