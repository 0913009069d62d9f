"""Draws one transaction as lanes over time: its client, its coordinator, and each of its partitions.

Idle time is shortened, so that moments with milliseconds between them are distinct in a transaction of seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from squall.reports.lanes import LaneSpan
from squall.reports.transactions.moments import CLIENT, COORDINATOR, TxnMoment, length_text
from squall.reports.transactions.observed import ObservedTxn
from squall.reports.transactions.outcomes import COMMITTED, OPEN, UNCERTAIN, outcome_of
from squall.reports.transactions.overview import COLOURS, FAULT

WIDTH, LEFT, RIGHT, TOP = 1180, 190, 120, 22
ROW, AXIS = 40, 26
LETTER = 6.0
STEP, UNIT_S, PER_DECADE = 9.0, 0.0005, 34.0
"""Two moments are at least `STEP` px apart, and `PER_DECADE` px more for each tenfold of `UNIT_S` between them."""
_TICK = 58.0
"""Gives the least distance in px between two figures of the axis."""


def lane_svg(txn: ObservedTxn, moments: Sequence[TxnMoment], faults: Sequence[LaneSpan], ident: str) -> str:
    """Draw one transaction's moments. The times on the axis count from the transaction's begin."""
    lanes = _lanes(txn, moments)
    scale = _TimeScale([moment.t for moment in moments])
    foot = TOP + ROW * len(lanes)
    outcome = outcome_of(txn)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {foot + AXIS}" role="img" aria-labelledby="{ident}-t" font-size="12">',
        f'<title id="{ident}-t">The lanes of a transaction of {escape(txn.id)}, {outcome}</title>',
        *_faults(faults, scale, foot),
        *_axis(txn, scale, foot),
    ]
    for place, (lane, name) in enumerate(lanes.items()):
        own = [moment for moment in moments if moment.lane == lane]
        parts += _row(txn, lane, name, own, scale, TOP + ROW * place)
    return "\n".join([*parts, "</svg>"])


def _lanes(txn: ObservedTxn, moments: Sequence[TxnMoment]) -> dict[str, str]:
    """Map each lane to its name in the picture."""
    used = {moment.lane for moment in moments}
    nodes = dict.fromkeys(str(state.node) for state in txn.states if state.node >= 0)
    named = {CLIENT: f"process {txn.process}"}
    if COORDINATOR in used:
        named[COORDINATOR] = f"coordinator: broker {', '.join(nodes)}" if nodes else COORDINATOR
    return {**named, **{name: name for name in sorted(used - {CLIENT, COORDINATOR})}}


class _TimeScale:
    """Maps seconds to px: moments in order, further apart the more time lies between them."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = sorted(set(times))
        steps = [0.0]
        for earlier, later in pairwise(self.times):
            steps.append(steps[-1] + STEP + PER_DECADE * math.log10(1 + (later - earlier) / UNIT_S))
        room = WIDTH - LEFT - RIGHT
        factor = room / steps[-1] if steps[-1] > 0 else 0.0
        # A transaction with few moments does not fill the width.
        self._places = [LEFT + step * min(factor, 2.5) for step in steps]

    def x(self, t: float) -> float:
        """Return the x of a time."""
        place = bisect_right(self.times, t)
        if place == 0:
            return LEFT - 6.0
        if place == len(self.times):
            return self._places[-1] + (0.0 if t == self.times[-1] else 12.0)
        before, after = self.times[place - 1], self.times[place]
        share = (t - before) / (after - before)
        return self._places[place - 1] + share * (self._places[place] - self._places[place - 1])


def _faults(faults: Sequence[LaneSpan], scale: _TimeScale, foot: float) -> Iterable[str]:
    for fault in faults:
        if fault.end < scale.times[0] or fault.begin > scale.times[-1]:
            continue
        left, right = scale.x(fault.begin), scale.x(fault.end)
        words = escape(f"{fault.kind}: {fault.begin:.3f} to {fault.end:.3f} s")
        yield (
            f'<rect x="{left:.1f}" y="{TOP - 18}" width="{max(right - left, 2.0):.1f}" height="{foot - TOP + 18}" '
            f'fill="{FAULT}" fill-opacity="0.13"><title>{words}</title></rect>'
        )
        if right - left > 40:
            letters = int((right - left) / LETTER)
            yield _text(left + 3, TOP - 7, fault.kind[:letters], "var(--ink)")


def _axis(txn: ObservedTxn, scale: _TimeScale, foot: float) -> Iterable[str]:
    last = float("-inf")
    for t in scale.times:
        x = scale.x(t)
        if x - last < _TICK:
            continue
        last = x
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{foot}" stroke="var(--line)"/>'
        words = f"{t:.3f} s" if t == scale.times[0] else f"+{length_text(t - txn.began)}"
        yield _text(x, foot + 16, words, "var(--muted)", 'text-anchor="middle"')


def _text(x: float, y: float, words: str, colour: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="11" {more}>{escape(words)}</text>'


def _row(
    txn: ObservedTxn, lane: str, name: str, own: Sequence[TxnMoment], scale: _TimeScale, y: float
) -> Iterable[str]:
    middle = y + 13
    letters = int((LEFT - 24) / 6.4)
    shown = name if len(name) <= letters else "\u2026" + name[-letters + 1 :]
    yield f'<text x="{LEFT - 16}" y="{middle + 4}" text-anchor="end" fill="var(--ink)">{escape(shown)}'
    yield f"<title>{escape(name)}</title></text>"
    yield f'<line x1="{LEFT - 8}" x2="{WIDTH - 8}" y1="{middle}" y2="{middle}" stroke="var(--line)"/>'
    yield from _bars(txn, lane, own, scale, middle)
    ends = [float("-inf"), float("-inf")]
    for moment in own:
        x = scale.x(moment.t)
        yield _glyph(moment, x, middle)
        words = moment.label
        free = next((line for line, end in enumerate(ends) if x - 4 >= end), None)
        if free is not None:
            ends[free] = x + LETTER * len(words) + 6
            colour = "var(--bad)" if moment.grave or moment.kind in ("refused", "failed") else "var(--ink)"
            yield (
                f'<text x="{x - 3:.1f}" y="{middle + 15 + 11 * free:.1f}" font-size="10.5" fill="{colour}">'
                f"{escape(words)}</text>"
            )


def _bars(txn: ObservedTxn, lane: str, own: Sequence[TxnMoment], scale: _TimeScale, middle: float) -> Iterable[str]:
    """Draw the bar of a lane, from the lane's first moment to its final one; in a partition's lane, to the marker."""
    if not own:
        return
    outcome = outcome_of(txn)
    colour = COLOURS[outcome]
    marked = [moment for moment in own if moment.kind == "marked"]
    last = marked[0] if lane not in (CLIENT, COORDINATOR) and marked else own[-1]
    if lane not in (CLIENT, COORDINATOR) and not marked:
        colour = COLOURS[OPEN] if outcome == COMMITTED else COLOURS[UNCERTAIN]
    elif last.grave:
        colour = "var(--bad)"
    left, right = scale.x(own[0].t), scale.x(last.t)
    yield (
        f'<rect x="{left:.1f}" y="{middle - 4}" width="{max(right - left, 2.0):.1f}" height="8" rx="2" '
        f'fill="{colour}" fill-opacity="0.4"/>'
    )


def _glyph(moment: TxnMoment, x: float, y: float) -> str:
    title = f"<title>{moment.t:.4f} s: {escape(moment.text)}</title>"
    match moment.kind:
        case "marked" | "again":  # a marker stands: up for commit, down for abort
            up = moment.label.startswith("commit")
            tip, foot = (y - 9, y + 5) if up else (y + 9, y - 5)
            colour = COLOURS[COMMITTED] if up else "var(--ink)"
            shape = f'<path d="M{x:.1f} {tip}L{x + 7:.1f} {foot}L{x - 7:.1f} {foot}Z" fill="{colour}"'
        case "refused" | "failed":
            shape = f'<path d="M{x - 5:.1f} {y - 5}l10 10m0 -10l-10 10" stroke="var(--bad)" stroke-width="2.5"'
        case "prepared" | "asked":
            shape = f'<path d="M{x:.1f} {y - 7}l7 7l-7 7l-7 -7Z" fill="var(--ink)"'
        case "visible":
            colour = "var(--bad)" if moment.grave else "var(--link)"
            shape = f'<circle cx="{x:.1f}" cy="{y}" r="6" fill="{colour}"'
        case "seen":
            shape = f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="var(--card)" stroke="var(--link)" stroke-width="2"'
        case _:
            shape = f'<circle cx="{x:.1f}" cy="{y}" r="3.5" fill="var(--ink)"'
    edge = ' stroke="var(--card)" stroke-width="1"' if "stroke" not in shape else ""
    return f"{shape}{edge}>{title}</{shape[1:].split(' ', 1)[0]}>"
