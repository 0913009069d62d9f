"""Draws every operation of a partition around a fault or a finding, as lanes of processes; after Jepsen's timeline.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from squall.reports.fault_words import FaultRow
from squall.reports.lanes import LeaderEpochStart
from squall.reports.operations_read import ClientOperation

WIDTH, GUTTER, RIGHT = 1180, 118, 12
ROW_H, DEPTH, GAP, TOP, BOTTOM = 8, 5, 8, 34, 26
"""`ROW_H` is the height of a row, `GAP` the space between processes, `TOP` and `BOTTOM` the margins, all in px; at most
`DEPTH` overlapping operations get rows of their own.
"""
COLOURS = {
    "ok": "var(--good)",
    "read": "var(--read)",
    "fail": "var(--bad)",
    "info": "var(--open)",
    "empty": "var(--muted)",
}
_DOES = {"producer": "sends", "reader": "reads", "final": "final reads"}
_Place = Callable[[float], float]
"""Maps a time to an x coordinate."""
KEY = (
    ("ok", "acknowledged"),
    ("info", "unknown outcome"),
    ("fail", "failed"),
    ("read", "read"),
    ("empty", "read nothing"),
)


@dataclass(frozen=True, slots=True)
class PartitionTimeWindow:
    """Describes a time window of one partition, in seconds on the page's time axis."""

    partition: str
    begin: float
    end: float
    why: str


@dataclass(frozen=True, slots=True)
class OperationsWindow:
    """Holds a window with its drawn operations. `left_out` counts the operations that did not fit; `elsewhere` says
    where they are.
    """

    window: PartitionTimeWindow
    operations: tuple[ClientOperation, ...]
    left_out: int
    svg: str
    text: str
    elsewhere: str = ""


@dataclass
class _ProcessLane:
    process: int
    role: str
    rows: list[list[ClientOperation]] = field(default_factory=list)
    y: float = 0.0


def draw(
    window: PartitionTimeWindow,
    operations: Sequence[ClientOperation],
    faults: Sequence[FaultRow],
    terms: Sequence[LeaderEpochStart],
    about: Mapping[int, str],
    ident: str,
    single: Collection[int] | None = None,
    named: Collection[int] = (),
) -> str:
    """Draw the window as SVG. `about` maps the id of an operation, or the value of a record, to the anchor of the
    witness that names it. `terms` lists the partition's leader epochs. `ident` is unique among the pictures of the
    page. Each box has the anchor op-N, except those of the operations in `named`, because an earlier picture has their
    anchors.

    `single` lists the operations that are drawn as a box of their own with a title; None means all. The others are
    drawn together, without titles, which takes a tenth of the bytes.
    """
    lanes = _lanes(operations)
    y = float(TOP)
    for lane in lanes:
        lane.y = y
        y += ROW_H * len(lane.rows) + GAP
    height, scale = y + BOTTOM, (WIDTH - GUTTER - RIGHT) / (window.end - window.begin)

    def x_of(t: float) -> float:
        return GUTTER + (min(max(t, window.begin), window.end) - window.begin) * scale

    title = f"Operations of {window.partition}, {window.begin:.3f} to {window.end:.3f} s"
    parts = [
        f'<svg class="operations" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="{ident}-t">',
        f'<title id="{ident}-t">{escape(title)}</title>',
        *_bands(faults, window, x_of, height),
        *_axis(window, x_of, height),
        *_terms(terms, window, x_of, height),
    ]
    for lane in lanes:
        middle = lane.y + ROW_H * len(lane.rows) / 2 + 4
        parts.append(
            f'<text x="{GUTTER - 8}" y="{middle:.1f}" class="n">process {lane.process}, {_DOES[lane.role]}</text>'
        )
        for number, row in enumerate(lane.rows):
            y = lane.y + ROW_H * number
            parts += _together((each for each in row if single is not None and each.op not in single), x_of, y)
            parts += [
                _box(each, x_of, y, about, each.op not in named) for each in row if single is None or each.op in single
            ]
    return "\n".join([*parts, "</svg>"])


def _lanes(operations: Sequence[ClientOperation]) -> list[_ProcessLane]:
    """Return a lane for each process, producers first, then readers. A process's operations that overlap have rows
    below each other.
    """
    lanes: dict[int, _ProcessLane] = {}
    for each in sorted(operations, key=lambda each: (each.role != "producer", each.process, each.t0)):
        lane = lanes.setdefault(each.process, _ProcessLane(each.process, each.role))
        free = next((row for row in lane.rows if row[-1].t1 <= each.t0), None)
        if free is None and len(lane.rows) < DEPTH:
            free = []
            lane.rows.append(free)
        (free if free is not None else lane.rows[-1]).append(each)
    return list(lanes.values())


def _box(each: ClientOperation, x_of: _Place, y: float, about: Mapping[int, str], named: bool) -> str:
    left = x_of(each.t0)
    width = max(x_of(each.t1) - left, 2.0)
    anchor = about.get(each.op) or next((about[v] for v in each.values if v in about), "")
    mark = ' stroke="var(--ink)" stroke-width="1.6"' if anchor else ' fill-opacity="0.75"'
    ident = f'id="op-{each.op}" ' if named else ""
    box = (
        f'<rect {ident}x="{left:.1f}" y="{y:.0f}" width="{width:.1f}" height="{ROW_H - 2}" '
        f'fill="{COLOURS[each.outcome]}"{mark}><title>{escape(each.text)}</title></rect>'
    )
    return f'<a href="#{anchor}">{box}</a>' if anchor else box


def _together(operations: Iterable[ClientOperation], x_of: _Place, y: float) -> list[str]:
    """Draw the operations of one row at height `y` without titles: one SVG path for each outcome."""
    paths: dict[str, list[str]] = {}
    for each in operations:
        left = x_of(each.t0)
        width = max(x_of(each.t1) - left, 2.0)
        paths.setdefault(each.outcome, []).append(f"M{left:.1f} {y:.0f}h{width:.1f}v{ROW_H - 2}h-{width:.1f}z")
    return [
        f'<path d="{"".join(boxes)}" fill="{COLOURS[outcome]}" fill-opacity="0.75"/>'
        for outcome, boxes in paths.items()
    ]


def _bands(faults: Sequence[FaultRow], window: PartitionTimeWindow, x_of: _Place, height: float) -> list[str]:
    parts = []
    for row in faults:
        end = float("inf") if row.began is None or row.length is None else row.began + row.length
        if row.began is None or row.began > window.end or end < window.begin:
            continue
        left, right = x_of(row.began), x_of(end)
        parts.append(
            f'<rect x="{left:.1f}" y="12" width="{max(right - left, 1):.1f}" height="{height - 12 - BOTTOM:.0f}" '
            f'fill="#d55e00" fill-opacity="0.13"><title>{escape(row.evidence)}</title></rect>'
        )
        room = int((WIDTH - RIGHT - left) / 6)
        parts.append(f'<text x="{left + 3:.1f}" y="10">{escape(row.label[:room])}</text>')
    return parts


def _axis(window: PartitionTimeWindow, x_of: _Place, height: float) -> list[str]:
    step = next(s for s in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 1e9)
                if (window.end - window.begin) / s <= 12)  # fmt: skip
    digits = 3 if step < 0.01 else 2 if step < 0.1 else 1 if step < 1 else 0
    # int() rounds towards 0: up for a negative begin, but down for a positive one.
    first = int(window.begin / step) + (window.begin > 0)
    parts = []
    for number in range(first, int(window.end / step) + 1):
        x = x_of(number * step)
        parts.append(f'<path d="M{x:.1f} 14V{height - BOTTOM:.0f}" stroke="var(--line)"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 10:.0f}" class="x">{number * step:.{digits}f} s</text>')
    return parts


def _terms(terms: Sequence[LeaderEpochStart], window: PartitionTimeWindow, x_of: _Place, height: float) -> list[str]:
    parts = []
    for term in terms:
        if window.begin < term.t < window.end:
            x = x_of(term.t)
            who = (
                f"broker {term.leader} leads, epoch {term.epoch}"
                if term.leader >= 0
                else f"no leader, epoch {term.epoch}"
            )
            path = f'<path d="M{x:.1f} 14V{height - BOTTOM:.0f}" stroke="var(--ink)" stroke-dasharray="4 3"/>'
            end = x > WIDTH * 0.8
            parts.append(f'{path}<text x="{x + (-4 if end else 4):.1f}" y="26"{" class=n" if end else ""}>{who}</text>')
    return parts


def text_of(operations: Collection[ClientOperation]) -> str:
    """Return the operations as plain text, a line each."""
    return "\n".join(each.text for each in operations)
