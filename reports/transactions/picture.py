"""Draws the story of a transaction as SVG: time downwards; its client, its coordinator, its partitions and their
readers beside each other. A partition's log, with markers, aborted data and last stable offset, is drawn beside each
acknowledgement, marker and read.

The picture needs no script and no network, and follows the reader's light or dark mode.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from squall.reports.spacetime import EPOCHS, FAULT, STYLE, anchored, line_svg, text_svg
from squall.reports.transactions.logs import ABORTED, OPEN, OffsetContent, PartitionLog
from squall.reports.transactions.moments import COORDINATOR, FAULTS, READERS, TxnMoment
from squall.reports.transactions.story import TxnStory

GUTTER, HEAD_H, LINE_H, CELLS_H, PAD = 92, 92, 15, 26, 13
CELL_W, CELL_H = 20, 17
NARROW, LEAST, FAULTS_W = 150, 134, 120
LETTER, TEXT_DX = 7.3, 16
WAIT_S = 0.5
CAPTION = (
    "Time runs downwards, in seconds since the load began; idle time is cut short. Boxes are offsets: pale while their "
    "transaction is open, full once its commit marker is written, struck out once its abort marker is. Triangles are "
    "markers, upwards for commit, downwards for abort. The thick bar is the last stable offset: beside readers as the "
    "answer told it, in partitions as markers make it."
)


@dataclass
class _PictureRow:
    """Holds simultaneous moments in different lanes. `y` is the position of their dots."""

    t: float
    moments: list[TxnMoment] = field(default_factory=list)
    y: float = 0.0
    height: float = 0.0
    wait: float = 0.0


class _PictureLayout:
    """Holds the positions of lanes and rows, in px."""

    def __init__(self, story: TxnStory) -> None:
        self.logs = {name: PartitionLog(story.found, name) for name in story.partitions}
        txns = [*story.subjects, *story.others]
        self.columns = {name: log.columns(txns) for name, log in self.logs.items()}
        self.lanes: dict[str, tuple[float, float]] = {}
        x = float(GUTTER)
        for lane in _lanes_of(story):
            width = self._width(lane)
            self.lanes[lane] = x + 16, width
            x += width
        self.width = x + 8
        self.rows = _rows(story.moments)
        y = HEAD_H + 28.0
        for place, row in enumerate(self.rows):
            waited = row.t - self.rows[place - 1].t if place else 0.0
            y += min(28.0, 6 * math.log10(1 + waited / 0.002)) if waited > 0 else 0.0
            if waited >= WAIT_S:
                row.wait = waited
                y += 12
            row.y, row.height = y, max(self._height(moment) for moment in row.moments)
            y += PAD + row.height
        self.bottom = y + 4

    def _width(self, lane: str) -> float:
        if lane == FAULTS:
            return FAULTS_W
        widest = max((len(columns) for columns in self.columns.values()), default=0)
        count = widest if lane == READERS else len(self.columns.get(lane, ()))
        return max(LEAST if lane in self.logs else NARROW, CELL_W * count + TEXT_DX + 24)

    def _height(self, moment: TxnMoment) -> float:
        return LINE_H * len(self.lines_of(moment)) + (CELLS_H if self.log_of(moment) else 0)

    def lines_of(self, moment: TxnMoment) -> list[str]:
        """Break a label into lines that fit its column."""
        letters = max(9, int((self.lanes[moment.lane][1] - 16 - TEXT_DX) / LETTER))
        return textwrap.wrap(moment.label, letters) or [""]

    def log_of(self, moment: TxnMoment) -> str:
        """Return the partition whose log is drawn beside a moment; empty for none."""
        name = moment.partition if moment.lane == READERS else moment.lane
        shown = moment.kind in ("acked", "marked", "again", "read", "final")
        return name if shown and self.columns.get(name) else ""

    def y_of(self, t: float) -> float:
        """Return the y of a time: the y of the latest row that is not after `t`, or a y above all rows if all are after
        `t`.
        """
        before = [row for row in self.rows if row.t <= t]
        return before[-1].y if before else self.rows[0].y - 10


def _lanes_of(story: TxnStory) -> list[str]:
    used = {moment.lane for moment in story.moments}
    processes = sorted((lane for lane in used if lane.startswith("process ")), key=lambda lane: int(lane[8:]))
    fixed = [
        lane for lane in (COORDINATOR, *story.partitions, READERS, FAULTS) if lane in used or lane in story.partitions
    ]
    return [*processes, *fixed]


def _rows(moments: Sequence[TxnMoment]) -> list[_PictureRow]:
    rows: list[_PictureRow] = []
    for moment in moments:
        last = rows[-1] if rows else None
        if last is not None and moment.t == last.t and all(each.lane != moment.lane for each in last.moments):
            last.moments.append(moment)
        else:
            rows.append(_PictureRow(moment.t, [moment]))
    return rows


def draw(story: TxnStory, ident: str = "transaction", linked: bool = False) -> str:
    """Draw a story of transactions as SVG. `ident` makes the ids unique if a page has several pictures. If `linked`,
    each moment has the id IDENT-mN, and links to its sentence on the page, which has the id IDENT-lN.
    """
    layout = _PictureLayout(story)
    height = layout.bottom + 10
    size = f'viewBox="0 0 {layout.width:.0f} {height:.0f}" width="{layout.width:.0f}" height="{height:.0f}"'
    named = f'role="img" aria-labelledby="{ident}-t {ident}-d"'
    told = escape(" ".join(moment.text for moment in story.moments))
    parts = [
        f'<svg class="spacetime" xmlns="http://www.w3.org/2000/svg" {size} {named}>',
        f'<title id="{ident}-t">{escape(story.title)}</title>',
        f'<desc id="{ident}-d">{told}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect width="{layout.width:.0f}" height="{height:.0f}" fill="var(--s-card)"/>',
        *_head(story, layout),
        *_lost_marks(layout),
        *_lines(layout),
        *_faults(story, layout),
        *_arrows(layout),
        *(line for row in layout.rows for line in _row(story, layout, row, ident, linked)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _head(story: TxnStory, layout: _PictureLayout) -> Iterable[str]:
    yield text_svg(12, 22, story.title, "h")
    x = 12.0
    for txn in [*story.subjects, *story.others]:
        colour, words = _colour(story, txn.op), f"{story.called[txn.op]}: {txn.id}, process {txn.process}"
        yield f'<rect x="{x:.1f}" y="36" width="14" height="12" rx="2" fill="{colour}"/>'
        yield text_svg(x + 20, 46.5, words)
        x += 36 + 6.4 * len(words)
    yield text_svg(12, 65, "Thick bar: last stable offset. Thin bar: high watermark.", "m")
    yield text_svg(GUTTER - 14, HEAD_H + 4, "seconds", "t")
    for lane, (x, width) in layout.lanes.items():
        name = lane.capitalize() if lane not in layout.logs else lane
        most = int((width - 6) / 7.4)
        yield text_svg(x - 8, HEAD_H + 4, name if len(name) <= most else "\u2026" + name[-most + 1 :], "h")
    yield line_svg(12, HEAD_H + 11, layout.width - 12, HEAD_H + 11, "var(--s-line)", 1)


def _colour(story: TxnStory, op: int) -> str:
    """Return a transaction's colour; grey for transactions without a name."""
    order = list(story.called)
    return EPOCHS[order.index(op) % len(EPOCHS)] if op in story.called else "var(--s-muted)"


def _lines(layout: _PictureLayout) -> Iterable[str]:
    for lane, (x, _) in layout.lanes.items():
        if lane != FAULTS:
            yield line_svg(x, HEAD_H + 18, x, layout.bottom, "var(--s-muted)", 1.5)


def _lost_marks(layout: _PictureLayout) -> Iterable[str]:
    """Draw a frame through all lanes around each row with a `grave` moment, such as a read that was not allowed."""
    for row in layout.rows:
        if any(moment.grave for moment in row.moments):
            place = f'x="{GUTTER - 6}" y="{row.y - 12:.1f}"'
            box = f'{place} width="{layout.width - GUTTER - 4:.1f}" height="{row.height + 12:.1f}" rx="4"'
            yield f'<rect {box} fill="none" stroke="var(--s-bad)" stroke-width="1.5" stroke-dasharray="6 4"/>'


def _faults(story: TxnStory, layout: _PictureLayout) -> Iterable[str]:
    """Draw a bar for each fault, as long as it was on."""
    for place, fault in enumerate(story.faults):
        if FAULTS not in layout.lanes or fault.began is None:
            continue
        x = layout.lanes[FAULTS][0] - 4 + 8 * (place % 2)
        begin = layout.y_of(fault.began)
        end = layout.bottom if fault.length is None else layout.y_of(fault.began + fault.length)
        yield (
            f'<rect x="{x:.1f}" y="{begin:.1f}" width="5" height="{max(end - begin, 5):.1f}" rx="2.5" fill="{FAULT}" '
            f'fill-opacity="0.75"><title>{escape(fault.what)}</title></rect>'
        )


_CAUSES = {"acked": "sends", "prepared": "asked", "marked": "prepared"}
"""Maps the kind of an effect to the kind of its cause in the same transaction: an arrow leads from cause to effect."""


def _arrows(layout: _PictureLayout) -> Iterable[str]:
    seen: list[tuple[_PictureRow, TxnMoment]] = []
    for row in layout.rows:
        for moment in row.moments:
            cause = _CAUSES.get(moment.kind)
            for earlier_row, earlier in reversed(seen):
                if earlier.kind == cause and earlier.op == moment.op and _meant(earlier, moment):
                    yield from _arrow(layout.lanes[earlier.lane][0], earlier_row.y, layout.lanes[moment.lane][0], row.y)
                    break
            seen.append((row, moment))


def _meant(earlier: TxnMoment, moment: TxnMoment) -> bool:
    return not moment.about or bool(set(moment.about) & set(earlier.about)) or not earlier.about


def _arrow(x1: float, y1: float, x2: float, y2: float) -> Iterable[str]:
    away = 5 if x2 > x1 else -5
    x1, x2 = x1 + away, x2 - away
    angle = math.atan2(y2 - y1, x2 - x1)
    wings = " ".join(
        f"{x2 + 8 * math.cos(angle + turn):.1f},{y2 + 8 * math.sin(angle + turn):.1f}" for turn in (2.75, -2.75)
    )
    yield f'<g opacity="0.5">{line_svg(x1, y1, x2, y2, "var(--s-ink)", 1.1)}'
    yield f'<polygon points="{x2:.1f},{y2:.1f} {wings}" fill="var(--s-ink)"/></g>'


def _row(story: TxnStory, layout: _PictureLayout, row: _PictureRow, ident: str, linked: bool) -> Iterable[str]:
    yield text_svg(GUTTER - 14, row.y + 4, f"{row.t:.4f}", "tg" if any(m.grave for m in row.moments) else "t")
    if row.wait:
        yield text_svg(GUTTER - 14, row.y - 13, f"{row.wait:.1f} s later", "t")
    for moment in row.moments:
        place = next(number for number, each in enumerate(story.moments) if each is moment)
        sentence = f"{ident}-l{place}" if linked else ""
        yield from anchored(_moment(story, layout, row, moment), f"{ident}-m{place}", sentence, moment.text)


def _moment(story: TxnStory, layout: _PictureLayout, row: _PictureRow, moment: TxnMoment) -> Iterable[str]:
    x = layout.lanes[moment.lane][0]
    yield _dot(x, row.y, moment)
    y = row.y + 4
    for place, line in enumerate(layout.lines_of(moment)):
        yield text_svg(x + TEXT_DX, y, line, "g" if moment.grave else "" if place else "b")
        y += LINE_H
    name = layout.log_of(moment)
    if name:
        yield from _log(story, layout, name, moment, x + TEXT_DX, y - 8)


def _dot(x: float, y: float, moment: TxnMoment) -> str:
    title = f"<title>{escape(moment.text)}</title>"
    if moment.grave:
        look = 'r="6" fill="var(--s-card)" stroke="var(--s-bad)" stroke-width="3"'
    else:
        colour = FAULT if moment.lane == FAULTS else "var(--s-ink)"
        look = f'r="4" fill="{colour}" stroke="var(--s-card)" stroke-width="1.5"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" {look}>{title}</circle>'


# --------------------------------------------------------------------------------------------------------------- logs


def _log(story: TxnStory, layout: _PictureLayout, name: str, moment: TxnMoment, x: float, y: float) -> Iterable[str]:
    log, columns = layout.logs[name], layout.columns[name]
    for place, offset in enumerate(columns):
        left = x + CELL_W * place
        if offset is None:
            yield text_svg(left + CELL_W / 2 - 1, y + 12, "\u2026", "c")
            continue
        entry = log.entries.get(offset)
        yield from _cell(
            story, log, entry if entry is not None and entry.since <= moment.t else None, moment.t, left, y
        )
    lso = moment.lso if moment.lane == READERS else log.lso_at(moment.t)
    yield from _bar(columns, lso, x, y, 4.5, "var(--link, #0b5cad)")
    yield from _bar(columns, moment.hw, x, y, 1.8, "var(--s-ink)")


def _cell(
    story: TxnStory, log: PartitionLog, entry: OffsetContent | None, t: float, x: float, y: float
) -> Iterable[str]:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{CELL_W - 2}" height="{CELL_H}" rx="2"'
    yield f'<rect {box} fill="var(--s-card)" stroke="var(--s-line)" stroke-dasharray="2 2"/>'
    if entry is None:
        return
    colour, middle = _colour(story, entry.op), x + CELL_W / 2 - 1
    if entry.value < 0:
        tip, foot = (y + 2.5, y + CELL_H - 3) if entry.commit else (y + CELL_H - 2.5, y + 3)
        base = f"L{middle + 6.5:.1f} {foot:.1f}L{middle - 6.5:.1f} {foot:.1f}Z"
        yield f'<path d="M{middle:.1f} {tip:.1f}{base}" fill="{colour}"/>'
        return
    state = log.state_at(entry, t)
    fill = {OPEN: 0.12, ABORTED: 0.12}.get(state, 0.45)
    yield f'<rect {box} fill="{colour}" fill-opacity="{fill}" stroke="{colour}" stroke-width="1.3"/>'
    yield text_svg(middle, y + 12.5, story.names.get(entry.value, "\u00b7"), "c")
    if state == ABORTED:
        yield line_svg(x + 1, y + CELL_H - 1, x + CELL_W - 3, y + 1, colour, 2)


def _bar(columns: Sequence[int | None], mark: int, x: float, y: float, width: float, colour: str) -> Iterable[str]:
    """Draw a bar in a log at the offset `mark` (a high watermark or last stable offset): before the first cell whose
    offset is at least `mark`. Draw nothing if `mark` is outside of the picture.
    """
    known = [offset for offset in columns if offset is not None]
    if mark < 0 or not known or mark < known[0] or mark > known[-1] + 1:
        return
    place = next((n for n, offset in enumerate(columns) if offset is not None and offset >= mark), len(columns))
    at = x + CELL_W * place - 1
    yield line_svg(at, y - 4, at, y + CELL_H + 4, colour, width)
