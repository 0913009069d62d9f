"""Draws the figures of a night's page as inline SVG: loss and unavailability at a glance, and measures over the nights.

Text is not converted to paths, and colours are those of the page's light or dark mode.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from squall.reports.figure import ACKED, FAULT, INK, LINE, MUTED, STYLE, VARIABLES, WIDTH_IN
from squall.reports.nightly.table import DurabilityCell, duration, share
from squall.reports.nightly.trends import MEASURES, MeasureSeries

ROWS = 24
"""Limits the rows of the figure that `glance` draws, each a configuration under one class of faults. The gravest are
shown.
"""
SERIES = 8
"""Limits the configurations in the figure of trends. Those whose measures changed most often come first, then those
that were measured in most nights.
"""
MARKERS = {("squall", "docker"): "D", ("kafka", "process"): "s", ("kafka", "docker"): "p"}
"""Maps (target, runtime) to a marker of matplotlib. All other pairs have a circle if the target is Squall, else a
triangle.
"""
LEAST = 1e-5
"""Shares below this are drawn together with 0, which a logarithmic axis cannot show."""


def glance(cells: Sequence[DurabilityCell]) -> str:
    """Draw each configuration under each class of faults as a row: the share of records lost, and the longest
    unavailability. Return an empty text if no run has a verdict.
    """
    proven = [cell for cell in cells if cell.runs]
    rows = list(dict.fromkeys((cell.configuration, cell.class_words) for cell in proven))[:ROWS]
    if not rows:
        return ""
    places = _places(proven, rows)
    lines = max(_label(*row).count("\n") + 1 for row in rows)
    height = max(0.5, 0.17 * lines) * len(rows) + 1.3
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, height))
        FigureCanvasSVG(figure)
        loss, gap = figure.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.06})
        figure.subplots_adjust(left=0.27, right=0.985, top=1 - 0.3 / height, bottom=0.85 / height)
        for cell, y in places:
            _loss(loss, cell, y)
            _gap(gap, cell, y)
        _axes(loss, gap, rows, max(cell.unavailable_ms or 0 for cell in proven))
        _legend(figure, [cell for cell, _ in places])
        return inline(figure, "glance", "Loss and unavailability by configuration", describe(proven))


def describe(cells: Sequence[DurabilityCell]) -> str:
    """Describe the figure of `glance` in words, a sentence for each cell."""
    words = []
    for cell in cells:
        low, high = cell.interval
        words.append(
            f"{cell.configuration}, {cell.class_words}, {cell.where}: {share(cell.rate)} lost "
            f"({share(low)} to {share(high)}), {cell.promised}; nothing could be written for up to "
            f"{duration(cell.unavailable_ms) or 'an unknown time'}."
        )
    return " ".join(words)


def _places(cells: Sequence[DurabilityCell], rows: Sequence[tuple[str, str]]) -> list[tuple[DurabilityCell, float]]:
    """Return each cell of the durability table with its y position in the figure. `rows` lists (configuration, classes
    of faults). The cells of row N are spread around y = N, so that they do not cover each other.
    """
    placed = []
    for row, key in enumerate(rows):
        mine = [cell for cell in cells if (cell.configuration, cell.class_words) == key]
        step = min(0.26, 0.8 / len(mine))
        placed += [(cell, row + step * (number - (len(mine) - 1) / 2)) for number, cell in enumerate(mine)]
    return placed


def _look(cell: DurabilityCell) -> dict[str, Any]:
    colour = FAULT if cell.broken else ACKED
    filled = "none" if cell.runtime == "sim" else colour
    return {
        "marker": _marker(cell.target, cell.runtime),
        "color": colour,
        "mfc": filled,
        "mec": colour,
        "ms": 7,
        "mew": 1.6,
    }


def _marker(target: str, runtime: str) -> str:
    return MARKERS.get((target, runtime), "o" if target == "squall" else "^")


def _loss(axis: Any, cell: DurabilityCell, y: float) -> None:
    low, high = cell.interval
    axis.plot([low, high], [y, y], color=FAULT if cell.broken else ACKED, lw=2, alpha=0.55, solid_capstyle="butt")
    axis.plot([cell.rate or 0.0], [y], ls="none", **_look(cell))


def _gap(axis: Any, cell: DurabilityCell, y: float) -> None:
    if cell.unavailable_ms is not None:
        seconds = cell.unavailable_ms / 1000
        axis.plot([0, seconds], [y, y], color=ACKED, lw=5, alpha=0.3, solid_capstyle="butt")
        axis.plot([seconds], [y], ls="none", **{**_look(cell), "color": ACKED, "mec": ACKED,
                  "mfc": "none" if cell.runtime == "sim" else ACKED})  # fmt: skip
        axis.annotate(f" {duration(cell.unavailable_ms)}", (seconds, y), xytext=(5, 0), textcoords="offset points",
                      va="center", fontsize=8, color=MUTED)  # fmt: skip


def _axes(loss: Any, gap: Any, rows: Sequence[tuple[str, str]], longest_ms: float) -> None:
    loss.set_xscale("symlog", linthresh=LEAST, linscale=0.6)
    loss.set_xlim(-LEAST / 4, 1.4)
    loss.set_xticks([0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1], ["0", "0.001 %", "0.01 %", "0.1 %", "1 %", "10 %", "all"])
    loss.xaxis.set_minor_locator(NullLocator())
    loss.set_xlabel("acknowledged records lost, with 95 % interval")
    gap.set_xlim(0, max(longest_ms / 1000, 0.1) * 1.18)
    gap.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
    gap.set_xlabel("longest unavailability of a partition")
    loss.set_yticks(range(len(rows)), [_label(*row) for row in rows])
    loss.set_ylim(len(rows) - 0.5, -0.5)
    for axis in (loss, gap):
        axis.tick_params(length=0)
        axis.tick_params(axis="y", labelcolor=INK)
        axis.grid(axis="x", color=LINE, lw=0.6)
        for row in range(1, len(rows)):
            axis.axhline(row - 0.5, color=LINE, lw=0.6)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)


def _label(configuration: str, classes: str) -> str:
    """Return a row's label, the configuration and then the classes of faults, broken into lines that fit left of the
    axes.
    """
    return "\n".join([*textwrap.wrap(configuration, 40), *textwrap.wrap(classes, 40)])


def _legend(figure: Any, cells: Sequence[DurabilityCell]) -> None:
    handles = [
        Line2D([], [], ls="none", marker="o", color=ACKED, ms=7, label="as promised"),
        Line2D([], [], ls="none", marker="o", color=FAULT, ms=7, label="something forbidden was found"),
    ]
    for target, runtime in sorted({(cell.target, cell.runtime) for cell in cells}):
        filled = "none" if runtime == "sim" else INK
        look: dict[str, Any] = {"marker": _marker(target, runtime), "mec": INK, "mfc": filled, "ms": 7}
        handles.append(Line2D([], [], ls="none", label=f"{target}, {runtime}", **look))
    figure.legend(handles=handles, loc="lower center", ncols=min(len(handles), 7), frameon=False, fontsize=8.5)


def over_nights(series: Sequence[MeasureSeries]) -> tuple[str, int]:
    """Draw each measure over the nights, a row for each configuration. Return the figure and the number of
    configurations that it leaves out.

    The figure is empty if no measure has two nights.
    """
    by_name: dict[str, list[MeasureSeries]] = {}
    for each in series:
        by_name.setdefault(each.name, []).append(each)
    telling = {name: found for name, found in by_name.items() if any(len(each.values) > 1 for each in found)}
    order = sorted(telling, key=lambda name: (-sum(len(each.changes) for each in telling[name]),
                                              -max(len(each.values) for each in telling[name]), name))  # fmt: skip
    shown = order[:SERIES]
    if not shown:
        return "", 0
    nights = sorted({night for name in shown for each in telling[name] for night in each.nights})
    with matplotlib.rc_context(STYLE):
        height = 1.15 * len(shown) + 0.9
        figure = Figure(figsize=(WIDTH_IN, height))
        FigureCanvasSVG(figure)
        axes = figure.subplots(len(shown), len(MEASURES), squeeze=False, sharex=True,
                               gridspec_kw={"hspace": 0.45, "wspace": 0.28})  # fmt: skip
        figure.subplots_adjust(left=0.17, right=0.99, top=1 - 0.5 / height, bottom=0.4 / height)
        for row, name in enumerate(shown):
            for column, (measure, title) in enumerate(MEASURES):
                found = next((each for each in telling[name] if each.measure == measure), None)
                _pane(axes[row][column], found, nights)
                if not row:
                    axes[row][column].set_title(title, fontsize=9, color=MUTED, pad=16)
            label = name.replace(", ", "\n")
            axes[row][0].text(
                -0.34, 0.5, label, transform=axes[row][0].transAxes, ha="right", va="center", fontsize=8.5
            )
        words = " ".join(_in_words(each) for name in shown for each in telling[name])
        return inline(figure, "trends", "Availability and latency over the nights", words), len(order) - len(shown)


def _pane(axis: Any, series: MeasureSeries | None, nights: Sequence[str]) -> None:
    axis.tick_params(length=0, labelsize=8)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.grid(axis="y", color=LINE, lw=0.6)
    axis.set_xlim(-0.5, max(len(nights) - 0.5, 0.5))
    ends = sorted({0, len(nights) - 1})
    axis.set_xticks(ends, [_day(nights[each]) for each in ends])
    if series is None:
        axis.set_yticks([])
        axis.text(0.5, 0.5, "not known", transform=axis.transAxes, ha="center", va="center", color=MUTED, fontsize=8)
        return
    at = [nights.index(night) for night in series.nights]
    axis.plot(at, series.values, color=ACKED, lw=1.4, marker="o", ms=3.5)
    axis.set_ylim(0, max(series.values) * 1.3 or 1)
    axis.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(3))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value) if value else "0"))
    for change in series.changes:
        axis.axvline(at[change.at] - 0.5, color=FAULT, lw=1.2, ls=(0, (3, 2)))
        axis.annotate(f"{duration(change.before)} → {duration(change.after)}", (at[change.at] - 0.5, 1), ha="center",
                      xycoords=("data", "axes fraction"), xytext=(0, 2), textcoords="offset points", fontsize=7.5,
                      color=INK)  # fmt: skip


def _day(night: str) -> str:
    """Return a short label for a night: its month and day, or the first 10 letters of a name that is no timestamp."""
    found = re.match(r"(\d{4})(\d\d)(\d\d)T", night)
    return f"{found[2]}-{found[3]}" if found else night[:10]


def _in_words(series: MeasureSeries) -> str:
    title = dict(MEASURES)[series.measure]
    told = f"{series.name}, {title}: {duration(series.values[0])} at first, {duration(series.values[-1])} at last."
    for change in series.changes:
        night = series.nights[change.at]
        told += f" From night {night} on {duration(change.after)} instead of {duration(change.before)}."
    return told


def inline(figure: Any, name: str, title: str, description: str) -> str:
    """Return the SVG for use inside a page: without prolog, with a title and a description, in the colours of the
    page's light or dark mode.
    """
    out = io.StringIO()
    # No date, so that the same night has the same page.
    figure.savefig(out, format="svg", metadata={"Date": None})
    svg = out.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    for stand_in, variable in VARIABLES.items():
        svg = svg.replace(stand_in, variable)
    box = re.search(r'viewBox="[^"]*"', svg)
    head = (
        f'<svg {box[0] if box else ""} xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
    )
    # Two figures of one page must not share ids.
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg[svg.index(">") + 1 :])
    return head + svg
