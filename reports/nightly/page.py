"""Writes the page of a night, and one for each configuration, as HTML files that need no network."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from squall.checkers.anomalies.registry import CATALOG
from squall.reports.cards import with_names
from squall.reports.checkout import PROGRAM, from_checkout
from squall.reports.checks import INVARIANT
from squall.reports.nightly import figures, table
from squall.reports.nightly.report import NightlyReport
from squall.reports.nightly.trends import MEASURES
from squall.reports.page import environment

FOLDER, FILE = "report", "index.html"
T = TypeVar("T")


def render(night: Path, report: NightlyReport, name: str = FILE) -> Path:
    """Write the night's page to `night`/report/`name`, and a page for each configuration to the same folder. Return the
    path of the night's page.
    """
    folder = night / FOLDER
    folder.mkdir(exist_ok=True)
    shared = {
        "count": table.count,
        "duration": table.duration,
        "link": lambda row: link_of(night, row),
        "nightlink": lambda name: night_link(night, name),
    }
    for each in report.configurations:
        _write(
            folder / each.page,
            "configuration.html.j2",
            each=each,
            night=report.night["night"],
            nights=len(report.nights),
            home=quote(name),
            over_nights=_drawn(partial(figures.over_nights, each.series)),
            **shared,
        )
    return _write(
        folder / name,
        "night.html.j2",
        report=report,
        pages={each.name: each.page for each in report.configurations},
        share=table.share,
        amount=table.amount,
        explain=lambda row: explain(night, row),
        glance=_drawn(lambda: figures.glance(report.cells)),
        over_nights=_drawn(lambda: figures.over_nights(report.trends.series)),
        measures=dict(MEASURES),
        **shared,
    )


def _write(path: Path, template: str, **shown: Any) -> Path:
    text = with_names(environment().get_template(template).render(**shown))
    # Two commands may write the same page at the same time.
    fresh = path.with_suffix(f".new-{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
    return path


def _drawn(draw: Callable[[], T]) -> tuple[T | None, str]:
    """Return a figure, or None and the reason why there is none: a figure that fails must not fail the page."""
    try:
        return draw(), ""
    except Exception as error:  # the page says so, and all the rest of it stands
        return None, f"Drawing failed: {type(error).__name__}: {error}."


def explain(night: Path, row: table.Row) -> str:
    """Return the `squall explain` command for a finding, to be run in the checkout's folder; empty if the directory of
    the finding's run is gone.
    """
    run = run_of(night, row)
    if run is None:
        return ""
    name = f"{row['anomaly']} ({row['evidence']})" if row["evidence"] else row["anomaly"]
    words = [name] if row["anomaly"] in CATALOG or name.startswith(INVARIANT) else []
    return shlex.join([PROGRAM, "explain", from_checkout(run), *words])


def link_of(night: Path, row: table.Row) -> str:
    """Return the link from the night's page to the page of a run, or to the run's directory if it has no page; empty if
    the directory is gone.
    """
    run = run_of(night, row)
    if run is None:
        return ""
    page = run / "report.html"
    return quote(Path(os.path.relpath(page if page.exists() else run, night / FOLDER)).as_posix())


def night_link(night: Path, name: str) -> str:
    """Return the link from a page of `night` to the page of the night `name` in the same folder. Empty if that page
    does not exist, or if `name` is this night.
    """
    page = night.resolve().parent / name / FOLDER / FILE
    return quote(f"../../{name}/{FOLDER}/{FILE}") if page.exists() and name != night.resolve().name else ""


def run_of(night: Path, row: table.Row) -> Path | None:
    """Return the directory of the run that `row` names: below `night`, or below another night in the same folder. None
    if it is gone.
    """
    own = night if row["night"] in ("", night.resolve().name) else night.resolve().parent / row["night"]
    run = own / row["run"]
    return run if row["run"] and run.is_dir() else None
