"""Draws the timeline: load, latency, faults, brokers and partitions over one time axis, as inline SVG.

Text stays text. Colours that depend on the page's light or dark mode are drawn in stand-in colours, which become CSS
variables at the end; brokers have the colours of Okabe and Ito, which people with any colour vision can distinguish.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from squall.reports import summary
from squall.reports.fault_words import FaultRow
from squall.reports.figure_values import LEFT, RIGHT, values_of
from squall.reports.lanes import BrokerLane, PartitionLane, broker_lanes, partition_lanes
from squall.reports.run_files import RunFiles, integer, mapping
from squall.reports.samples import LatencySamples

INK, MUTED, LINE, PAPER, PERMITTED = "#0a0b0c", "#6a6b6d", "#dadbdd", "#fafbfd", "#855301"
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    PAPER: "var(--card)",
    PERMITTED: "var(--open)",
}
BROKER_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#b8a000", "#7f5ca8", "#8c6d4f", "#5f7f8f")
FAULT = "#d55e00"
_LATENCY_PANE = '<g id="axes_4">'
"""Begins the latency pane in the SVG: matplotlib numbers the axes."""
ACKED, READ = "#0072b2", "#009e73"
_DRAWING = "timeline-drawing"
"""Is the id of the group that holds the whole drawing."""
LANES = 24
"""Limits the number of partitions that are drawn. If there are more, those that were unavailable the longest are drawn.
"""
WIDTH_IN = 12.0
AXIS_IN = WIDTH_IN * (RIGHT - LEFT)
"""Gives the width of the panes in inches, in which labels must fit."""
_PHASE_LABEL_IN = 0.075
"""Gives the approximate width in inches of a letter of a phase's name; names that do not fit are left out."""
_FAULT_LABEL_IN = 0.072
"""Gives the approximate width in inches of a letter of a fault's label; a fault whose label would overlap another has
another row.
"""
STYLE = {
    "svg.fonttype": "none",
    # Without a salt, matplotlib draws random ids, and the same run would have another page each time.
    "svg.hashsalt": "squall",
    "font.family": "sans-serif",
    "font.sans-serif": ["system-ui", "Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "hatch.linewidth": 0.8,
}


@dataclass(frozen=True, slots=True)
class Timeline:
    """Holds the figure as SVG, and its content in words for readers who cannot see it."""

    svg: str
    description: str
    left_out: int
    """Counts the partitions that are not drawn, because there are more than `LANES`."""
    labels: str = ""
    """Holds the names left of the drawing, such as those of brokers and partitions, as an SVG of their own (`labels`).
    """
    values: str = ""
    """Holds JSON for the page's script: what the figure shows at each moment."""


def time_span(files: RunFiles) -> tuple[float, float] | None:
    """Return the time from the begin of the load to the end of the final reads, in seconds on the page's time axis;
    None if one of the two is not known.
    """
    begin, _ = files.phase("warm-up", "load", "load with faults")
    _, end = files.phase("load", "load with faults", "settle", "heal", "converge", "final reads")
    seconds = _numbers(files.series.get("second"))
    if begin is None and seconds:
        begin = min(seconds)
    if end is None and seconds:
        end = max(seconds) + 1
    if end is None:
        times = [files.seconds(e["t"] * 1e9) or 0.0 for trace in files.traces.values() for e in trace[-1:]]
        end = max(times, default=None)
    return (begin, end) if begin is not None and end is not None and begin < end else None


def _numbers(values: Any) -> list[float]:
    return [v for v in values if isinstance(v, (int, float))] if isinstance(values, list) else []


def draw(files: RunFiles, faults: Sequence[FaultRow], samples: LatencySamples, span: tuple[float, float]) -> Timeline:
    """Draw the whole figure between the two times of `span`. `samples` holds latencies of single sends, and the gaps in
    which a partition acknowledged nothing.
    """
    begin, end = span
    brokers = broker_lanes(files, begin, end)
    every = partition_lanes(files, begin, end, samples.gaps)
    longest = sorted(every, key=lambda lane: -sum(gap.end - gap.begin for gap in lane.gaps))[:LANES]
    partitions = [lane for lane in every if lane in longest]
    rows = _fault_rows(faults, begin, end)
    heights = [0.3, 0.26 * max(rows.values(), default=0) + 0.3, 1.35, 1.7, 0.42 * len(brokers) + 0.1,
               0.36 * len(partitions) + 0.1]  # fmt: skip
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, sum(heights) + 1.1))
        # The constructor attaches the canvas to the figure. pyplot would keep each figure in a global list.
        FigureCanvasSVG(figure)
        axes = figure.subplots(len(heights), 1, sharex=True, gridspec_kw={"height_ratios": heights, "hspace": 0.09})
        figure.subplots_adjust(left=LEFT, right=RIGHT, top=0.995, bottom=0.75 / (sum(heights) + 1.1))
        _phases(axes[0], files, begin, end)
        _faults(axes[1], faults, rows, begin, end)
        throughput(axes[2], files)
        latency(axes[3], files, samples)
        _brokers(axes[4], brokers)
        _partitions(axes[5], partitions, _facts(files))
        _marks(axes[5], partitions, files, end)
        _finish(figure, axes, faults, begin, end)
        out = io.StringIO()
        # No date, so that the same run has the same page.
        figure.savefig(out, format="svg", metadata={"Date": None})
        dots = _dots(figure, axes[3], samples)
    description = describe(faults, every, span, summary.unavailable_to(files.verdict))
    svg = _inline(out.getvalue(), description, faults).replace(_LATENCY_PANE, _LATENCY_PANE + dots)
    values = values_of(files, faults, brokers, partitions, span)
    return Timeline(svg, description, len(every) - len(partitions), labels(svg), values)


def _dots(figure: Any, axis: Any, samples: LatencySamples) -> str:
    """Return single latencies as one SVG path of dots in the page's own colour: thousands of separate marks would be
    large.
    """
    if samples.points is None or not samples.points.shape[1]:
        return ""
    at, took = samples.points
    # Pixels from below become points from above, which are the units of matplotlib's SVG.
    where = axis.transData.transform(np.column_stack([at - took / 1e3, np.maximum(took, 0.1)])) * 72 / figure.dpi
    height, box = figure.get_figheight() * 72, axis.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    inside = (where[:, 0] >= box.x0 * 72) & (where[:, 0] <= box.x1 * 72)
    path = "".join(f"M{x:.1f} {height - y:.1f}h0" for x, y in where[inside])
    look = 'fill="none" stroke="var(--muted)" style="stroke-width: 1.6; stroke-linecap: round"'
    return f'<path class="dots" d="{path}" {look}/>'


def describe(
    faults: Sequence[FaultRow],
    partitions: Sequence[PartitionLane],
    span: tuple[float, float],
    clients: Mapping[str, str],
) -> str:
    """Describe the figure in words. `clients` maps a partition to the only client for which it was unavailable
    (`summary.unavailable_to`).
    """
    words = [f"From second {span[0]:.1f} to {span[1]:.1f} of the load."]
    for fault in faults:
        if fault.began is not None:
            length = f"for {fault.length:.1f} s" if fault.length is not None else "without an end"
            words.append(f"At {fault.began:.1f} s: {fault.label}, {length}.")
    for lane in partitions:
        if lane.gaps:
            worst = max(lane.gaps, key=lambda gap: gap.end - gap.begin)
            took = worst.end - worst.begin
            to = f" to {clients[lane.name]}" if lane.name in clients else ""
            words.append(f"{lane.name} acknowledged nothing{to} for {took:.1f} s from {worst.begin:.1f} s.")
    return " ".join(words)


# --------------------------------------------------------------------------------------------------------------- panes


def _phases(axis: Any, files: RunFiles, begin: float, end: float) -> None:
    for index, (name, since, until) in enumerate(files.phases):
        left, right = max(begin, begin if since is None else since), min(end, end if until is None else until)
        if left >= right or name in ("start the cluster", "create topics", "stop the cluster"):
            continue
        axis.add_patch(Rectangle((left, 0), right - left, 1, facecolor=LINE, alpha=0.35 + 0.4 * (index % 2), lw=0))
        if (right - left) / (end - begin) * AXIS_IN > _PHASE_LABEL_IN * len(name):
            axis.text((left + right) / 2, 0.5, name, ha="center", va="center", fontsize=8.5)
    axis.set_ylim(0, 1)
    _label(axis, "phase")


def _fault_rows(faults: Sequence[FaultRow], begin: float, end: float) -> dict[int, int]:
    """Map each fault's id to a row, from 1, so that neither faults nor their labels overlap."""
    rows: dict[int, int] = {}
    free: list[float] = []
    letter = _FAULT_LABEL_IN * (end - begin) / AXIS_IN
    for fault in sorted((f for f in faults if f.began is not None), key=lambda f: f.began or 0.0):
        began = fault.began or 0.0
        row = next((i for i, until in enumerate(free) if until <= began), len(free))
        # The slice replaces the row's end, or appends a row.
        free[row : row + 1] = [end if fault.length is None else began + max(fault.length, letter * len(_words(fault)))]
        rows[fault.id] = row + 1
    return rows


def _words(fault: FaultRow) -> str:
    return fault.label if fault.state == "landed" else f"{fault.label}: {fault.state}"


def _faults(axis: Any, faults: Sequence[FaultRow], rows: dict[int, int], begin: float, end: float) -> None:
    for fault in faults:
        if fault.began is None:
            continue
        length = end - fault.began if fault.length is None else fault.length
        solid = fault.state == "landed"
        look = {"alpha": 0.3} if solid else {"alpha": 0.12, "hatch": "///"}
        place = (fault.began, rows[fault.id] - 0.42)
        axis.add_patch(Rectangle(place, length, 0.84, facecolor=FAULT, lw=0.8, gid=f"fault-{fault.id}", **look))
        # A label that has no room behind its fault's begin ends at the pane's edge.
        right = fault.began + _FAULT_LABEL_IN * len(_words(fault)) * (end - begin) / AXIS_IN > end
        place = (end if right else fault.began, rows[fault.id])
        axis.annotate(_words(fault), place, xytext=(-3 if right else 3, 0), textcoords="offset points", va="center",
                      ha="right" if right else "left", fontsize=8.5)  # fmt: skip
    axis.set_ylim(max(rows.values(), default=1) + 0.6, 0.4)
    _label(axis, "faults")
    if not rows:
        axis.text(0.01, 0.5, "none", transform=axis.transAxes, va="center", color=MUTED)


def throughput(axis: Any, files: RunFiles) -> None:
    """Draw records by second: acknowledged, read under load, failed, and of unknown outcome."""
    seconds = _numbers(files.series.get("second"))
    for key, colour, name in (("acked", ACKED, "acknowledged"), ("read", READ, "read by readers")):
        values = _before_final_reads(files, key) if key == "read" else _numbers(files.series.get(key))
        if seconds and 0 < len(values) <= len(seconds):
            edges = [*seconds[: len(values)], seconds[len(values) - 1] + 1]
            axis.stairs(values, edges, color=colour, lw=1.6, label=name, fill=False, baseline=None)
    for key, colour, name in (("failed", INK, "failed"), ("unknown", MUTED, "unknown outcome")):
        values = _numbers(files.series.get(key))
        if len(values) == len(seconds) and any(values):
            axis.stairs(values, [*seconds, seconds[-1] + 1], color=colour, lw=1.2, ls=":", label=name)
    drawn = _numbers(files.series.get("acked")) + _before_final_reads(files, "read")
    axis.set_ylim(0, 1.35 * max(drawn, default=1.0) or 1.0)
    axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _label(axis, "records/s")
    _legend_or_none(axis, bool(seconds))


def _before_final_reads(files: RunFiles, key: str) -> list[float]:
    """Return the series `key` of series.json, such as "read", up to the begin of the final reads. Fresh readers read as
    fast as they can then, so later values would dwarf those of the load.
    """
    until = files.phase("final reads")[0]
    pairs = zip(_numbers(files.series.get("second")), _numbers(files.series.get(key)), strict=False)
    return [value for second, value in pairs if until is None or second + 1 <= until]


def latency(axis: Any, files: RunFiles, samples: LatencySamples) -> None:
    """Draw the latency of acknowledged writes by second, and of single writes if they are known."""
    seconds = _numbers(files.series.get("second"))
    if samples.points is not None and samples.points.shape[1]:
        at, took = samples.points
        axis.plot([], [], ".", ms=4, color=MUTED, mec="none", label="one record, at its sending")
        # The dots come into the SVG later (`_dots`), but the axis must have room for them.
        axis.update_datalim([(float((at - took / 1e3).min()), float(np.maximum(took, 0.1).min())),
                             (float(at.max()), float(np.maximum(took, 0.1).max()))])  # fmt: skip
    # In a second with few records both are equal: p50 is drawn over the wider p99, so that both are seen.
    for key, colour, width, name in (("p50_ms", ACKED, 1.3, "p50"), ("p99_ms", FAULT, 3.0, "p99")):
        listed = files.series.get(key)
        values = [v if isinstance(v, (int, float)) else np.nan for v in listed] if isinstance(listed, list) else []
        if seconds and len(values) == len(seconds):
            axis.plot(np.array(seconds) + 0.5, values, color=colour, lw=width, marker="o", ms=2 + width, label=name,
                      zorder=3 - width / 10)  # fmt: skip
    axis.set_yscale("log")
    axis.autoscale_view()
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * (high / low) ** 0.22)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.minorticks_off()
    _label(axis, "latency, ms")
    _legend_or_none(axis, bool(seconds))


def _legend_or_none(axis: Any, known: bool) -> None:
    axis.grid(axis="y", color=LINE, lw=0.6)
    if known and axis.get_legend_handles_labels()[0]:
        axis.legend(loc="upper right", ncols=4, facecolor=PAPER, edgecolor="none", framealpha=0.85, fontsize=8,
                    handlelength=1.4, borderpad=0.3, markerscale=1.6)  # fmt: skip
    elif not known:
        axis.text(0.5, 0.5, "not known: no series.json", transform=axis.transAxes, ha="center", color=MUTED)
        axis.set_yticks([])


def colour_of(node: int) -> str:
    """Return a broker's colour."""
    return BROKER_COLOURS[(node - 1) % len(BROKER_COLOURS)]


def _brokers(axis: Any, lanes: Sequence[BrokerLane]) -> None:
    for row, lane in enumerate(lanes):
        colour = colour_of(lane.node)
        for span in lane.states:
            box = (span.begin, row - 0.3), span.end - span.begin, 0.6
            if span.kind == "up":
                axis.add_patch(Rectangle(*box, facecolor=colour, alpha=0.75, lw=0))
            elif span.kind in ("starting", "stopping"):
                axis.add_patch(Rectangle(*box, facecolor=colour, alpha=0.25, lw=0))
            else:
                axis.add_patch(Rectangle(*box, facecolor="none", edgecolor=MUTED, lw=0.7, ls=":"))
                _word(axis, span.begin, span.end, row, "down" if span.kind == "down" else "no trace")
        for span in lane.over:
            hatch = {"paused": "||||", "cut": "xxxx", "slow": "...."}[span.kind]
            face = "none" if span.kind == "slow" else PAPER
            box = (span.begin, row - 0.3), span.end - span.begin, 0.6
            axis.add_patch(Rectangle(*box, facecolor=face, alpha=0.6, lw=0))
            axis.add_patch(Rectangle(*box, facecolor="none", edgecolor=INK, hatch=hatch, lw=0.6))
        for span in lane.controller:
            axis.plot([span.begin, span.end], [row - 0.37] * 2, color=INK, lw=2.4, solid_capstyle="butt")
        axis.plot(lane.crashes, [row] * len(lane.crashes), "X", color=FAULT, ms=9, mec=INK)
    axis.set_yticks(range(len(lanes)), [f"broker {lane.node}" for lane in lanes])
    axis.set_ylim(max(len(lanes), 1) - 0.4, -0.6)


def _word(axis: Any, begin: float, end: float, row: float, word: str) -> None:
    # (0, 1) are matplotlib's limits as long as none were set.
    low, high = axis.get_xlim() if axis.get_xlim() != (0.0, 1.0) else (begin, end)
    if end - begin > 0.02 * (high - low):
        axis.text((begin + end) / 2, row, word, ha="center", va="center", fontsize=8, color=MUTED, clip_on=True)


def _facts(files: RunFiles) -> tuple[int, int]:
    workload = mapping(files.plan.get("workload"))
    return integer(workload.get("replication_factor"), 0), integer(workload.get("min_isr"), 0)


def _partitions(axis: Any, lanes: Sequence[PartitionLane], facts: tuple[int, int]) -> None:
    """Draw a lane for each partition: its height is the share of replicas that are in sync, its colour is the leader's.
    `facts` is (replication factor, min ISR) of the plan, 0 for a number that is not known.
    """
    replicas = max([facts[0], *(size for lane in lanes for _, size in lane.isr)], default=1) or 1
    for row, lane in enumerate(lanes):
        low = row + 0.4
        for span in lane.leaders:
            if span.kind == "-1":
                continue
            steps = [(t, size) for t, size in lane.isr if t < span.end]
            before = [size for t, size in steps if t <= span.begin]
            inside = [(span.begin, before[-1] if before else replicas), *((t, s) for t, s in steps if t > span.begin)]
            edges = [t for t, _ in inside] + [span.end]
            for (t, size), until in zip(inside, edges[1:], strict=True):
                height = 0.8 * size / replicas
                colour = colour_of(int(span.kind))
                axis.add_patch(Rectangle((t, low - height), until - t, height, facecolor=colour, alpha=0.75, lw=0))
        for gap in lane.gaps:
            box = (gap.begin, row - 0.4), gap.end - gap.begin, 0.8
            axis.add_patch(Rectangle(*box, facecolor=PAPER, alpha=0.72, lw=0))
            axis.add_patch(Rectangle(*box, facecolor="none", edgecolor=INK, hatch="////", lw=0.5))
        if 0 < facts[1] <= replicas:
            axis.axhline(low - 0.8 * facts[1] / replicas, color=INK, lw=0.6, ls=(0, (1, 3)))
    longest = max((len(lane.name) for lane in lanes), default=0)
    letters = min(9.0, max(_NAME_PT / max(longest, 1), 6.0))
    axis.set_yticks(range(len(lanes)), [_shortened(lane.name, letters) for lane in lanes], fontsize=letters)
    axis.set_ylim(max(len(lanes), 1) - 0.4, -0.6)


_NAME_PT = 160.0
"""Limits the length of a partition's name beside the panes, in points: the number of its letters times their font size.
"""


def _shortened(name: str, size: float) -> str:
    """Return a name that fits even in small letters: a long name keeps its begin and its end."""
    room = int(_NAME_PT / size)
    return name if len(name) <= room else f"{name[: room // 2 - 1]}…{name[-(room - room // 2) :]}"


def _marks(axis: Any, lanes: Sequence[PartitionLane], files: RunFiles, end: float) -> None:
    """Mark at the end of a partition's lane what was found in it: findings that are not permitted in the colour of
    faults, permitted losses in another.
    """
    marks = marks_of(files)
    for row, lane in enumerate(lanes):
        if lane.name in marks:
            word, colour = marks[lane.name]
            box = {"boxstyle": "round,pad=0.25", "fc": PAPER, "ec": colour, "lw": 1.2}
            axis.annotate(word, (end, row), xytext=(-4, 0), textcoords="offset points", ha="right", va="center",
                          fontsize=8, color=colour, weight="bold", bbox=box)  # fmt: skip


def marks_of(files: RunFiles) -> dict[str, tuple[str, str]]:
    """Map a partition to the (words, colour) of the mark at the end of its lane."""
    marks: dict[str, tuple[str, str]] = {}
    if permitted := summary.loss(files, permitted=True):
        marks |= {name: (f"{lost:,} lost, permitted", PERMITTED) for name, lost, _ in permitted.partitions}
    marks |= {name: (f"{count:,} findings", FAULT) for name, count in summary.by_partition(files)}
    if wrong := summary.loss(files, permitted=False):
        marks |= {name: (f"{lost:,} lost", FAULT) for name, lost, _ in wrong.partitions}
    return marks


def _label(axis: Any, name: str) -> None:
    axis.set_ylabel(name, rotation=0, ha="right", va="center")
    axis.yaxis.set_label_coords(-0.055 if name in ("records/s", "latency, ms") else -0.006, 0.5)
    if name in ("phase", "faults"):
        axis.set_yticks([])


def _finish(figure: Any, axes: Any, faults: Sequence[FaultRow], begin: float, end: float) -> None:
    for axis in axes:
        axis.set_xlim(begin, end)
        axis.tick_params(length=0)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        for fault in faults:
            if fault.began is not None and axis is not axes[0] and axis is not axes[1]:
                until = end if fault.length is None else fault.began + fault.length
                axis.axvspan(fault.began, until, color=FAULT, alpha=0.09, lw=0, zorder=-5)
    axes[-1].xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes[-1].tick_params(axis="x", length=3)
    axes[-1].set_xlabel("seconds of load", fontsize=9)
    swatches = [
        Patch(facecolor="none", edgecolor=INK, hatch="xxxx", lw=0.6, label="cut off from peers"),
        Patch(facecolor="none", edgecolor=INK, hatch="||||", lw=0.6, label="paused"),
        Patch(facecolor="none", edgecolor=INK, hatch="....", lw=0.6, label="slow links"),
        Patch(facecolor=MUTED, alpha=0.3, label="starting or stopping"),
        matplotlib.lines.Line2D([], [], color=INK, lw=2.4, label="active controller"),
        Patch(facecolor="none", edgecolor=INK, hatch="////", lw=0.5, label="nothing acknowledged"),
        matplotlib.lines.Line2D([], [], color=INK, lw=0.8, ls=(0, (1, 3)), label="min ISR"),
    ]
    figure.legend(handles=swatches, loc="lower center", ncols=7, frameon=False, fontsize=8.5, handlelength=2.2)


def standalone(page: str) -> str:
    """Return the figure of a run's page as an SVG file of its own, in light colours; empty if the page has no figure.
    """
    found = re.search(r'<svg [^>]*aria-labelledby="timeline-title.*?</svg>', page, flags=re.S)
    if found is None:
        return ""
    svg = found[0]
    for colour, variable in VARIABLES.items():
        svg = svg.replace(variable, colour)
    return svg


def _inline(svg: str, description: str, faults: Sequence[FaultRow]) -> str:
    """Return the SVG for use inside a page: without prolog, with a title and a description, in colours of the page's
    mode.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    for stand_in, variable in VARIABLES.items():
        svg = svg.replace(stand_in, variable)
    box = re.search(r'viewBox="[^"]*"', svg)
    head = (
        f'<svg {box[0] if box else ""} xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'role="img" aria-labelledby="timeline-title timeline-desc">'
        '<title id="timeline-title">Timeline of the run</title>'
        f'<desc id="timeline-desc">{escape(description)}</desc>'
    )
    svg = head + svg[svg.index(">") + 1 :].replace('<g id="figure_1">', f'<g id="{_DRAWING}">', 1)
    for fault in faults:
        group = f'<g id="fault-{fault.id}">'
        svg = svg.replace(group, f"{group}<title>{escape(fault.evidence)}</title>")
    return svg


def labels(svg: str) -> str:
    """Return the labels left of the panes as a picture of their own, which stays visible while the figure is scrolled.
    """
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0]
    box = f"0 0 {float(width) * LEFT:.2f} {height}"
    return f'<svg class="labels" viewBox="{box}" aria-hidden="true"><use href="#{_DRAWING}"/></svg>'
