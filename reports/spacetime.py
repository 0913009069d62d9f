"""Draws a story as a space-time picture in SVG: lanes for brokers and clients, time downwards, messages as arrows,
faults as bars on the lanes, leader epochs as colours, the moment of loss, and each log end and high watermark when the
leader or a log changes.

The picture needs no script and no network, works in the report and alone, and follows the reader's light or dark mode.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from html import escape
from typing import NamedTuple

from squall.reports.spacetime_layout import (
    GUTTER,
    LINE_H,
    TEXT_DX,
    DiagramLayout,
    DiagramRow,
    cells_of,
    lay_out,
    lines_of,
    shows_log,
)
from squall.reports.story import PartitionStory, decimals, placed_sentences, sentences
from squall.reports.story_facts import SimMessage
from squall.reports.story_logs import ReconstructedReplica
from squall.reports.story_moments import StoryMoment, offsets_of

EPOCHS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c6d4f", "#7f5ca8")
"""Lists the colours of leader epochs: those of Okabe and Ito, which people with any colour vision can distinguish.
Their orange-red is for faults.
"""
FAULT = "#d55e00"
_HEAD_H = 104
_END_H = 60
_CELL_W, _CELL_H = 19, 17
_LATE_S = 0.002
"""A message may be the cause of a moment if it arrived at most this many seconds before or after the moment."""
_DROPPED_AT_MOST = 6
_STEEP = 60.0
"""Limits the height in px of an arrow between brokers if it is not known when the message was sent."""

STYLE = """
svg.spacetime { --s-ink: var(--ink, #16191d); --s-muted: var(--muted, #5b6470); --s-line: var(--line, #d5d9de);
  --s-card: var(--card, #ffffff); --s-bad: var(--bad, #b3261e); font: 12px system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; }
@media (prefers-color-scheme: dark) { svg.spacetime { --s-ink: var(--ink, #e7eaee); --s-muted: var(--muted, #9aa4b1);
  --s-line: var(--line, #39414b); --s-card: var(--card, #1a1e24); --s-bad: var(--bad, #ff9a8f); } }
svg.spacetime text { fill: var(--s-ink); paint-order: stroke; stroke: var(--s-card); stroke-width: 5px;
  stroke-linejoin: round; }
svg.spacetime .m { fill: var(--s-muted); } svg.spacetime .b { font-weight: 600; }
svg.spacetime .g { fill: var(--s-bad); font-weight: 600; } svg.spacetime .t { fill: var(--s-muted); text-anchor: end;
  font-variant-numeric: tabular-nums; } svg.spacetime .tg { fill: var(--s-bad); font-weight: 700; text-anchor: end; }
svg.spacetime .c { text-anchor: middle; stroke: none; font-weight: 600; font-size: 11px; }
svg.spacetime .h { font-weight: 700; font-size: 13px; }
""".strip()


def draw(story: PartitionStory, ident: str = "spacetime", linked: bool = False) -> str:
    """Draw the story. `ident` makes its ids unique if a page has several pictures. If `linked`, each moment has the id
    IDENT-mN, and links to its sentence on the page, which has the id IDENT-lN.
    """
    layout = lay_out(story, _HEAD_H + 28)
    lines = {place: number for number, (_, _, own) in enumerate(placed_sentences(story.moments)) for place in own}
    anchors = {
        id(moment): (f"{ident}-m{place}", f"{ident}-l{lines[place]}" if linked else "")
        for place, moment in enumerate(story.moments)
    }
    ends = [lane for lane in layout.lanes if _has_end(story, lane)]
    height = layout.bottom + (_END_H if ends else 14)
    arrows = list(_arrows(story, layout))
    size = f'viewBox="0 0 {layout.width:.0f} {height:.0f}" width="{layout.width:.0f}" height="{height:.0f}"'
    named = f'role="img" aria-labelledby="{ident}-t {ident}-d"'
    parts = [
        f'<svg class="spacetime" xmlns="http://www.w3.org/2000/svg" {size} {named}>',
        f'<title id="{ident}-t">{escape(story.title)}</title>',
        f'<desc id="{ident}-d">{escape(" ".join(text for _, text in sentences(story.moments)))}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect width="{layout.width:.0f}" height="{height:.0f}" fill="var(--s-card)"/>',
        *_head(story, layout),
        *_losses(layout),
        *_lines(story, layout),
        *_faults(story, layout),
        *(arrow.shaft for arrow in arrows),
        *_moments(story, layout, anchors),
        *(arrow.head for arrow in arrows),
        *(line for lane in ends for line in _end(story, layout, lane)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def colour_of_epoch(epoch: int) -> str:
    """Return an epoch's colour; grey for no epoch."""
    return EPOCHS[epoch % len(EPOCHS)] if epoch >= 0 else "var(--s-muted)"


def text_svg(x: float, y: float, text: str, classes: str = "") -> str:
    """Return a line of text as SVG. `classes` are CSS classes that STYLE defines."""
    named = f' class="{classes}"' if classes else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{escape(text)}</text>'


def line_svg(x1: float, y1: float, x2: float, y2: float, colour: str, width: float, more: str = "") -> str:
    """Return a straight line as SVG. `more` is text with further attributes of the element."""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width:g}"'
        f"{' ' + more if more else ''}/>"
    )


# --------------------------------------------------------------------------------------------------------------- head


def _head(story: PartitionStory, layout: DiagramLayout) -> Iterable[str]:
    yield text_svg(12, 22, story.title, "h")
    yield from _legend(story, layout)
    yield text_svg(GUTTER - 14, _HEAD_H + 4, "seconds", "t")
    for lane, (x, _) in layout.lanes.items():
        name = f"Broker {lane}" if lane.isdigit() else lane.capitalize()
        yield text_svg(x - 8, _HEAD_H + 4, name, "h")
    yield line_svg(12, _HEAD_H + 11, layout.width - 12, _HEAD_H + 11, "var(--s-line)", 1)


def _legend(story: PartitionStory, layout: DiagramLayout) -> Iterable[str]:
    """Draw the legend: epochs with their leaders, and the meaning of boxes and bars."""
    leaders: dict[int, str] = {}
    for moment in story.all_moments.moments:
        if moment.kind in ("leads", "quorum") and moment.replica is not None and moment.replica.leads:
            leaders.setdefault(moment.replica.epoch, moment.lane)
    x = 12.0
    shown = {cell[1] for row in layout.rows for m in row.moments if m.replica for cell in
             cells_of(m.replica, story, layout.window)}  # fmt: skip
    shown |= {m.replica.epoch for row in layout.rows for m in row.moments if m.replica and m.replica.epoch >= 0}
    last = layout.rows[-1].t if layout.rows else 0.0
    led = [m.replica for m in story.all_moments.moments if m.replica and m.t <= last and m.lane in layout.lanes]
    shown |= {replica.epoch for replica in led if replica.leads and replica.epoch >= 0}
    for epoch in sorted(shown):
        words = f"epoch {epoch}: broker {leaders[epoch]} leads" if epoch in leaders else _never_led(story, epoch)
        if x + 24 + 6.4 * len(words) > layout.width:
            break
        yield f'<rect x="{x:.1f}" y="36" width="14" height="12" rx="2" fill="{colour_of_epoch(epoch)}"/>'
        yield text_svg(x + 20, 46.5, words)
        x += 34 + 6.4 * len(words)
    low, high = layout.window
    if low < high:
        span = f"offset {low}" if high - low == 1 else f"offsets {low} to {high - 1}"
        boxes = f"Boxes: the log at {span}, coloured by epoch; the thick bar is the high watermark. "
        key = boxes + "Wide line: leads; narrow: follows; dashed: down. Bar beside it: a fault."
        for number, line in enumerate(textwrap.wrap(key, int((layout.width - 24) / 5.9))[:2]):
            yield text_svg(12, 65 + LINE_H * number, line, "m")


def _never_led(story: PartitionStory, epoch: int) -> str:
    """Return the legend's text for an epoch in which no broker acted as leader. It names the broker that others took
    for the leader, such as "epoch 3: broker 1 never led", if there is one.
    """
    meant = [m.replica.leader for m in story.all_moments.moments if m.replica is not None and m.replica.epoch == epoch]
    known = [leader for leader in meant if leader >= 0]
    return f"epoch {epoch}: broker {known[0]} never led" if known else f"epoch {epoch}: nobody leads"


# -------------------------------------------------------------------------------------------------------------- lanes


def _lines(story: PartitionStory, layout: DiagramLayout) -> Iterable[str]:
    for lane, (x, _) in layout.lanes.items():
        if not lane.isdigit():
            yield line_svg(x, layout.top - 10, x, layout.bottom, "var(--s-muted)", 1.5)
            continue
        begin, look = layout.top - 10, _look(None)
        for moment in story.all_moments.moments:
            if moment.lane != lane or moment.replica is None or _look(moment) == look:
                continue
            row = layout.row_of(moment)
            y = layout.y_of(moment.t) if row is None else row.y
            yield from _stretch(x, begin, y, look)
            begin, look = y, _look(moment)
        yield from _stretch(x, begin, layout.bottom, look)


def _look(moment: StoryMoment | None) -> tuple[bool, bool, int]:
    """Return (up, leads, epoch) of the replica at this moment."""
    if moment is None or moment.replica is None:
        return True, False, -1
    replica = moment.replica
    return replica.up, replica.leads, replica.epoch if replica.leader >= 0 else -1


def _stretch(x: float, begin: float, end: float, look: tuple[bool, bool, int]) -> Iterable[str]:
    up, leads, epoch = look
    if end <= begin:
        return
    if not up:
        yield line_svg(x, begin, x, end, "var(--s-muted)", 1.5, 'stroke-dasharray="2 4"')
    elif leads:
        yield line_svg(x, begin, x, end, colour_of_epoch(epoch), 11)
    elif epoch >= 0:
        yield line_svg(x, begin, x, end, colour_of_epoch(epoch), 5, 'opacity="0.6"')
    else:
        yield line_svg(x, begin, x, end, "var(--s-muted)", 2)


def _faults(story: PartitionStory, layout: DiagramLayout) -> Iterable[str]:
    """Draw a bar beside the lane for each fault within the picture; simultaneous faults are beside each other."""
    if story.facts is None or not layout.rows:
        return
    first, last = layout.rows[0].t, layout.rows[-1].t
    busy: dict[str, list[float]] = {}
    for bar in sorted(story.facts.faults, key=lambda each: each.begin):
        lane = str(bar.node)
        end = last if bar.end is None else bar.end
        if lane not in layout.lanes or bar.begin > last or end < first:
            continue
        columns = busy.setdefault(lane, [])
        column = next((i for i, until in enumerate(columns) if until <= bar.begin), len(columns))
        columns[column : column + 1] = [end]
        # There is room for two bars beside a lane; further ones lie on the second.
        x = layout.lanes[lane][0] - 14 - 6 * min(column, 1)
        y1, y2 = layout.y_of(bar.begin), layout.bottom if bar.end is None else layout.y_of(bar.end)
        yield (
            f'<rect x="{x:.1f}" y="{y1:.1f}" width="5" height="{max(y2 - y1, 4):.1f}" rx="2.5" fill="{FAULT}" '
            f'fill-opacity="{0.9 if bar.down else 0.6}"><title>{escape(bar.words)}</title></rect>'
        )


def _losses(layout: DiagramLayout) -> Iterable[str]:
    """Draw a frame through all lanes at each loss of a record."""
    for row in layout.rows:
        if any(moment.lost for moment in row.moments):
            place = f'x="{GUTTER - 6}" y="{row.y - 12:.1f}"'
            box = f'{place} width="{layout.width - GUTTER - 4:.1f}" height="{row.height + 12:.1f}" rx="4"'
            yield f'<rect {box} fill="none" stroke="var(--s-bad)" stroke-width="1.5" stroke-dasharray="6 4"/>'


# ------------------------------------------------------------------------------------------------------------- arrows


class _MessageArrow(NamedTuple):
    """Holds the SVG of a message's arrow in two parts: the picture's words cover the shaft, but not the head."""

    shaft: str
    head: str


def _arrows(story: PartitionStory, layout: DiagramLayout) -> Iterable[_MessageArrow]:
    shown: list[StoryMoment] = []
    wires = story.facts.wires if story.facts is not None else []
    for row in layout.rows:
        for moment in row.moments:
            source = _source_of(moment, shown, story)
            if source is not None:
                sent_at = layout.row_of(source)
                x1, y1 = layout.lanes[source.lane][0], row.y if sent_at is None else sent_at.y
                wire = _wire(wires, source, moment)
                if wire is not None:
                    y1 = layout.y_of(wire.sent)
                elif source.lane.isdigit() and moment.lane.isdigit():
                    y1 = max(y1, row.y - _STEEP)  # when it was sent is not known, but it was not long ago
                yield _arrow(x1, y1, layout.lanes[moment.lane][0], row.y, _name(wire))
            shown.append(moment)
    yield from _dropped(wires, layout)


def _source_of(moment: StoryMoment, shown: list[StoryMoment], story: PartitionStory) -> StoryMoment | None:
    """Return the earlier moment of the picture in which the message was sent that arrived at this moment; None if it is
    not in the picture.
    """
    if moment.came_from is None:
        return None
    lane, kind = moment.came_from
    for earlier in reversed(shown):
        if earlier.lane == moment.lane or earlier.lane not in story.lanes:
            continue
        if lane == "leader":
            same = kind in earlier.about and earlier.kind in ("hw", "appends") and _leads(earlier)
        elif lane == "follower":
            same = earlier.kind == kind and bool(set(earlier.about) & set(moment.about))
        else:
            same = earlier.lane == lane and earlier.kind == kind and bool(set(earlier.about) & set(moment.about))
        if same:
            return earlier
    return None


def _leads(moment: StoryMoment) -> bool:
    return moment.replica is not None and moment.replica.leads


def _wire(wires: list[SimMessage], source: StoryMoment, moment: StoryMoment) -> SimMessage | None:
    """Return the message that was sent at or after `source` and arrived at `moment`, from those that a simulation
    recorded: a Fetch message between brokers, else a Produce message. Return None if there is none.
    """
    api = "Fetch" if source.lane.isdigit() and moment.lane.isdigit() else "Produce"
    possible = [
        wire
        for wire in wires
        if wire.arrives is not None
        and wire.api == api
        and _is_at(wire.source, source.lane)
        and _is_at(wire.target, moment.lane)
        and source.t <= wire.sent <= moment.t
    ]
    at_once = [wire for wire in possible if abs(moment.t - (wire.arrives or 0.0)) <= _LATE_S]
    return at_once[-1] if at_once else possible[0] if possible else None


def _is_at(host: str, lane: str) -> bool:
    """Return whether `host`, the sender or receiver of a simulated message, belongs to the lane. A broker's lane is
    named like its host. All clients share one host, which belongs to the lane of every client.
    """
    return host == lane if lane.isdigit() else not host.isdigit()


def _name(wire: SimMessage | None) -> str:
    return f"{wire.api} {wire.kind}, sent {wire.sent:.4f} s" if wire is not None else ""


def _dropped(wires: list[SimMessage], layout: DiagramLayout) -> Iterable[_MessageArrow]:
    """Draw the arrows of a few Fetch messages that never arrived."""
    if not layout.rows:
        return
    first, last = layout.rows[0].t, layout.rows[-1].t
    lost = [w for w in wires if w.arrives is None and first <= w.sent <= last and w.api in ("Fetch", "Produce")]
    for wire in lost[:_DROPPED_AT_MOST]:
        if wire.source in layout.lanes and wire.target in layout.lanes:
            x1, x2, y = layout.lanes[wire.source][0], layout.lanes[wire.target][0], layout.y_of(wire.sent)
            yield _arrow(x1, y, x1 + (x2 - x1) * 0.45, y + 6, f"{wire.api} {wire.kind}: lost", dropped=True)


def _arrow(x1: float, y1: float, x2: float, y2: float, name: str, *, dropped: bool = False) -> _MessageArrow:
    """Draw the arrow of a message between the lines of two lanes. `name` is its tooltip. The arrow of a `dropped`
    message ends with a cross and not with a head.
    """
    away = 7 if x2 > x1 else -7
    x1, x2 = x1 + away, x2 - (0 if dropped else away)
    colour = FAULT if dropped else "var(--s-ink)"
    title = f"<title>{escape(name)}</title>" if name else ""
    shaft = f'<g opacity="0.75">{title}{line_svg(x1, y1, x2, y2, colour, 1.2)}</g>'
    if dropped:
        return _MessageArrow(
            shaft, f'<path d="M{x2 - 4:.1f} {y2 - 4:.1f}l8 8m0 -8l-8 8" stroke="{colour}" stroke-width="2"/>'
        )
    angle = math.atan2(y2 - y1, x2 - x1)
    wings = " ".join(
        f"{x2 + 9 * math.cos(angle + turn):.1f},{y2 + 9 * math.sin(angle + turn):.1f}" for turn in (2.75, -2.75)
    )
    return _MessageArrow(shaft, f'<polygon points="{x2:.1f},{y2:.1f} {wings}" fill="{colour}"/>')


# ------------------------------------------------------------------------------------------------------------ moments


def _moments(story: PartitionStory, layout: DiagramLayout, anchors: Mapping[int, tuple[str, str]]) -> Iterable[str]:
    digits = decimals(story.moments)
    for row in layout.rows:
        lost = [moment.lost for moment in row.moments if moment.lost]
        yield text_svg(GUTTER - 14, row.y + 4, f"{row.t:.{digits}f}", "t")
        if lost:
            yield text_svg(GUTTER - 14, row.y + 4 + LINE_H, f"{', '.join(lost)} LOST", "tg")
        if row.wait:
            yield text_svg(GUTTER - 14, row.y - 13, f"{_length(row.wait)} later", "t")
        for moment in row.moments:
            anchor, sentence = anchors.get(id(moment), ("", ""))
            yield from anchored(_moment(story, layout, row, moment), anchor, sentence, moment.text)


def anchored(parts: Iterable[str], anchor: str, sentence: str, text: str) -> Iterable[str]:
    """Yield the drawing of one moment, `parts`, as a group with the id `anchor` and the tooltip `text`. A click leads
    to the sentence with the id `sentence`; if that is empty, there is no link. Without `anchor`, yield only `parts`.
    """
    if anchor:
        link = f'<a href="#{sentence}">' if sentence else ""
        yield f'{link}<g id="{anchor}" class="moment"><title>{escape(text)}</title>'
    yield from parts
    if anchor:
        yield f"</g>{'</a>' if sentence else ''}"


def _length(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _moment(story: PartitionStory, layout: DiagramLayout, row: DiagramRow, moment: StoryMoment) -> Iterable[str]:
    x, width = layout.lanes[moment.lane]
    yield from _dot(x, row.y, moment)
    y = row.y + 4
    for index, line in enumerate(lines_of(moment, width)):
        classes = "g" if moment.grave and (index == 0 or line.startswith("loses")) else "b" if index == 0 else "m"
        yield text_svg(x + TEXT_DX, y, line, classes)
        y += LINE_H
    if moment.replica is not None and shows_log(moment, layout.window):
        yield from _log(story, layout, moment.replica, x + TEXT_DX, y - 8)


def _dot(x: float, y: float, moment: StoryMoment) -> Iterable[str]:
    if moment.kind == "fault" and moment.replica is not None and not moment.replica.up:
        yield f'<path d="M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12" stroke="{FAULT}" stroke-width="3"/>'
    elif moment.grave:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="var(--s-card)" stroke="var(--s-bad)" stroke-width="3"/>'
    elif moment.kind in ("fault", "fault ends"):
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{FAULT}" stroke="var(--s-card)" stroke-width="1.5"/>'
    else:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="var(--s-ink)" stroke="var(--s-card)" stroke-width="1.5"/>'


def _has_end(story: PartitionStory, lane: str) -> bool:
    """Return whether the log of a lane is drawn at the lane's end: every append must be known, and the lane must be
    that of a broker that led or followed.
    """
    hosts = any(m.lane == lane and m.kind in ("leads", "follows") for m in story.all_moments.moments)
    return story.exact and lane.isdigit() and hosts


def _end(story: PartitionStory, layout: DiagramLayout, lane: str) -> Iterable[str]:
    """Draw the log of a lane at the end of the story, below the lane."""
    x, replica = layout.lanes[lane][0], story.all_moments.logs.of(int(lane))
    y = layout.bottom + 16
    yield text_svg(GUTTER - 14, y, "in the end", "t")
    yield text_svg(x + TEXT_DX, y, offsets_of(replica), "m")
    yield from _log(story, layout, replica, x + TEXT_DX, y + LINE_H - 8)


def _log(
    story: PartitionStory, layout: DiagramLayout, replica: ReconstructedReplica, x: float, y: float
) -> Iterable[str]:
    """Draw the log's cells, and the high watermark as a bar between two of them."""
    low, high = layout.window
    if low >= high:
        return
    held = {offset: (epoch, name) for offset, epoch, name in cells_of(replica, story, layout.window)}
    for offset in range(low, high):
        left = x + _CELL_W * (offset - low)
        box = f'x="{left:.1f}" y="{y:.1f}" width="{_CELL_W - 2}" height="{_CELL_H}" rx="2"'
        if offset in held:
            colour = colour_of_epoch(held[offset][0])
            yield f'<rect {box} fill="var(--s-card)"/>'
            yield f'<rect {box} fill="{colour}" fill-opacity="0.3" stroke="{colour}" stroke-width="1.4"/>'
            yield text_svg(left + (_CELL_W - 2) / 2, y + 12.5, held[offset][1], "c")
        else:
            yield f'<rect {box} fill="var(--s-card)" stroke="var(--s-line)" stroke-dasharray="2 2"/>'
    mark = x + _CELL_W * (min(max(replica.hw, low), high) - low) - 1
    # A wider bar in the page's colour, so that the cells' borders do not touch the bar of the high watermark.
    yield line_svg(mark, y - 4, mark, y + _CELL_H + 4, "var(--s-card)", 6)
    yield line_svg(mark, y - 4, mark, y + _CELL_H + 4, "var(--s-ink)", 3)
