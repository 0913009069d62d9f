"""Draws a timeline as SVG: lanes over one axis of time, in the page's own colours, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from squall.workloads.section import TimelineBar, TimelineLane, TimelineStrip

WIDTH, RIGHT, TOP = 1180, 24, 10
LEFT, MOST_LEFT = 190, 480
"""The names of lanes get as much room as the longest one takes, in px between these limits."""
LANE, AXIS = 30, 34
HEIGHTS = {"good": 10, "bad": 24, "neutral": 16, "mark": 16}
LETTER = 6.6
"""Gives the approximate width of a letter in px. It decides where a lane's name is cut, so that the name takes at most
MOST_LEFT; the tooltip has the whole name.
"""
LEGEND = 26
SWATCH = 18
STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
TICKS = 12
LEAST = 1.5
"""Gives the least width of a bar in px, so that a short one is visible."""
COLOURS = {"good": "var(--good)", "bad": "var(--bad)", "neutral": "var(--open)", "mark": "var(--ink)"}
OPACITY = {"good": 0.45, "bad": 1, "neutral": 0.85, "mark": 0.85}


def strip_svg(strip: TimelineStrip) -> str:
    """Draw the timeline. Each bar has a tooltip that describes the bar."""
    height = TOP + LANE * len(strip.lanes) + AXIS
    whole = height + (LEGEND if strip.legend else 0)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {whole}" role="img" aria-label="{escape(strip.title)}" font-size="12">',
        f"<title>{escape(strip.title)}</title>",
        *_axis(strip, height),
    ]
    for number, lane in enumerate(strip.lanes):
        parts += _lane(strip, lane, TOP + number * LANE)
    return "\n".join([*parts, *_legend(strip, height), "</svg>"])


def _legend(strip: TimelineStrip, top: int) -> Iterator[str]:
    x = float(_left(strip))
    for tone, said in strip.legend:
        y = top + (LEGEND - HEIGHTS[tone]) / 2
        look = f'fill="{COLOURS[tone]}" fill-opacity="{OPACITY[tone]}"'
        yield f'<rect x="{x:.1f}" y="{y:.0f}" width="{SWATCH}" height="{HEIGHTS[tone]}" rx="2" {look}/>'
        yield f'<text x="{x + SWATCH + 6:.1f}" y="{top + LEGEND / 2 + 4:.0f}" fill="var(--ink)">{escape(said)}</text>'
        x += SWATCH + 6 + len(said) * LETTER + 24


def _left(strip: TimelineStrip) -> int:
    longest = max((len(lane.name) for lane in strip.lanes), default=0)
    return min(max(LEFT, int(longest * LETTER) + 21), MOST_LEFT)


def _x(strip: TimelineStrip, at_s: float) -> float:
    length = max(strip.end_s - strip.begin_s, 1e-9)
    part = min(max((at_s - strip.begin_s) / length, 0), 1)
    left = _left(strip)
    return left + part * (WIDTH - left - RIGHT)


def _axis(strip: TimelineStrip, height: int) -> list[str]:
    length = strip.end_s - strip.begin_s
    step = next((each for each in STEPS_S if length / each <= TICKS), STEPS_S[-1])
    foot, parts = height - AXIS + 4, []
    at_s = -(-strip.begin_s // step) * step + 0.0  # without it the first one may be "-0 s"
    while at_s <= strip.end_s:
        x = _x(strip, at_s)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{foot}" stroke="var(--line)"/>')
        parts.append(f'<text x="{x:.1f}" y="{foot + 15}" text-anchor="middle" fill="var(--muted)">{at_s:g} s</text>')
        at_s = round(at_s + step, 6)
    return parts


def _lane(strip: TimelineStrip, lane: TimelineLane, y: int) -> list[str]:
    left = _left(strip)
    most = int((left - 20) / LETTER)
    shown = lane.name if len(lane.name) <= most else lane.name[: most - 1] + "\u2026"
    name = f'<text x="{left - 10}" y="{y + LANE / 2 + 4:.0f}" text-anchor="end" fill="var(--ink)">{escape(shown)}'
    return [f"{name}<title>{escape(lane.name)}</title></text>", *(_bar(strip, span, y) for span in lane.spans)]


def _bar(strip: TimelineStrip, span: TimelineBar, y: int) -> str:
    """Draw a bar. A bad bar also differs by its height, for people who do not see colours."""
    left, right = _x(strip, span.begin_s), _x(strip, span.end_s)
    width, height = max(right - left, LEAST), HEIGHTS[span.tone]
    at = f'x="{left:.1f}" y="{y + (LANE - height) / 2:.0f}" width="{width:.1f}" height="{height}" rx="2"'
    look = f'fill="{COLOURS[span.tone]}" fill-opacity="{OPACITY[span.tone]}"'
    return f"<rect {at} {look}><title>{escape(span.title)}</title></rect>"
