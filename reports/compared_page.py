"""Writes the page that compares up to six runs: their findings, the differences of their plans, and their curves at one
scale.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from squall.reports.cards import with_names
from squall.reports.fault_words import fault_rows
from squall.reports.page import environment
from squall.reports.run_files import Json, RunFiles, mapping, objects, read_run
from squall.reports.run_list import RunListEntry, compared
from squall.reports.samples import LatencySamples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE = "compared.html"
LISTS = ("operations", "faults")
"""Names the lists of a plan: only the number of operations is compared, and faults have rows of their own."""


def render(rows: Sequence[RunListEntry]) -> Path:
    """Write compared.html beside the first run, and return its path."""
    files = [read_run(row.path) for row in rows]
    folder = rows[0].path.parent
    differing, same = differences([each.plan for each in files])
    text = (
        environment()
        .get_template("compared.html.j2")
        .render(
            rows=rows,
            links=[_link(folder, row) for row in rows],
            cells=[each for each in compared(rows)[2:] if any(each[1])],  # name and verdict head the columns
            differing=differing,
            same=same,
            curves=curves(files),
        )
    )
    path = folder / PAGE
    fresh = path.with_suffix(".html.new")
    fresh.write_text(with_names(text), encoding="utf-8")
    fresh.replace(path)
    return path


def _link(folder: Path, row: RunListEntry) -> str:
    return quote(Path(os.path.relpath(row.path / "report.html", folder)).as_posix()) if row.page else ""


def differences(plans: Sequence[Json]) -> tuple[list[tuple[str, tuple[str, ...]]], int]:
    """Return the settings that differ, as (setting, its value in each plan; empty if a plan has none), and the number
    of equal settings.
    """
    flat = [dict(_settings(plan)) for plan in plans]
    names = dict.fromkeys(name for plan in flat for name in plan)
    values = [(name, tuple(plan.get(name, "") for plan in flat)) for name in names]
    differing = [(name, each) for name, each in values if len(set(each)) > 1]
    return differing, len(values) - len(differing)


def _settings(plan: Json, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in plan.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{prefix}{name}.")
        elif name not in LISTS:
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)
    if prefix:
        return
    if isinstance(plan.get("operations"), list):
        yield "operations", f"{len(plan['operations'])} of its own"
    for place, fault in enumerate(objects(plan.get("faults")), start=1):
        more = ", ".join(f"{name} {value}" for name, value in sorted(mapping(fault.get("params")).items()))
        when = f"at {fault.get('at_s', '?')} s for {fault.get('duration_s', '?')} s"
        yield f"fault {place}", f"{fault.get('action')} {fault.get('target')} {when}{f' ({more})' if more else ''}"


def curves(files: Sequence[RunFiles]) -> str:
    """Draw records and latency by second, a row for each run, all at one scale. Return an empty text if no run says
    when its load was, or if matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        return ""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    from squall.reports.figure import STYLE, WIDTH_IN, latency, throughput, time_span
    from squall.reports.nightly.figures import inline

    spans = [span for each in files if (span := time_span(each)) is not None]
    if not spans:
        return ""
    with matplotlib.rc_context(STYLE):
        height = 1.6 * len(files) + 0.8
        figure = Figure(figsize=(WIDTH_IN, height))
        FigureCanvasSVG(figure)
        axes = figure.subplots(len(files), 2, squeeze=False, sharex=True, gridspec_kw={"hspace": 0.25, "wspace": 0.12})
        figure.subplots_adjust(left=0.105, right=0.99, top=1 - 0.3 / height, bottom=0.5 / height)
        for place, (run, panes) in enumerate(zip(files, axes, strict=True), start=1):
            throughput(panes[0], run)
            latency(panes[1], run, LatencySamples())
            for pane in panes:
                _finish(pane, run)
            panes[0].set_ylabel(f"run {place}", rotation=0, ha="right", va="center")
            panes[0].yaxis.set_label_coords(-0.13, 0.5)
            panes[1].set_ylabel("")
        for column, title in enumerate(("records/s", "latency, ms")):
            axes[0][column].set_title(title, fontsize=9)
            limits = [pane.get_ylim() for pane in axes[:, column]]
            for pane in axes[:, column]:
                pane.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
            axes[-1][column].set_xlabel("seconds of load", fontsize=9)
        axes[0][0].set_xlim(min(begin for begin, _ in spans), max(end for _, end in spans))
        words = " ".join(f"Run {place} is {run.name}." for place, run in enumerate(files, start=1))
        return inline(figure, "curves", "Records and latency by second", words)


def _finish(pane: Axes, run: RunFiles) -> None:
    """Shade the times of the run's faults in a pane, and remove the pane's frame."""
    from squall.reports.figure import FAULT

    pane.tick_params(length=0)
    for side in ("top", "right", "left"):
        pane.spines[side].set_visible(False)
    for fault in fault_rows(run):
        if fault.began is not None and fault.length is not None:
            pane.axvspan(fault.began, fault.began + fault.length, color=FAULT, alpha=0.12, lw=0, zorder=-5)
