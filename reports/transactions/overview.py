"""Draws all transactions of a run in one picture: a row per transactional id, transactions as bars, faults behind them.

The position of a bar shows the outcome as its colour does: above the line committed, below it aborted, across it
neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from squall.reports.lanes import LaneSpan
from squall.reports.sections.strip import STEPS_S, TICKS
from squall.reports.transactions.observed import ObservedTxn
from squall.reports.transactions.outcomes import (
    BY_CHOICE,
    COMMITTED,
    OPEN,
    UNASKED,
    UNCERTAIN,
    WORDS,
    NotableTransaction,
    ended_at,
    last_sign_of,
    outcome_of,
)

WIDTH, LEFT, RIGHT, TOP = 1180, 150, 16, 26
ROW, AXIS, LEGEND = 38, 24, 26
ROWS_AT_MOST = 40
BARS_AT_MOST = 4_000
"""Is the number of bars from which on bars are merged: those with the same outcome in the same small cell of the
picture become one.
"""
LEAST = 2.0
NUMBER_W = 14.0
COLOURS = {
    COMMITTED: "var(--good)",
    BY_CHOICE: "var(--muted)",
    UNASKED: "var(--open)",
    OPEN: "var(--open)",
    UNCERTAIN: "var(--link)",
}
_GRAVITY = (COMMITTED, BY_CHOICE, UNASKED, OPEN, UNCERTAIN)
FAULT = "#d55e00"


TITLE = "When each transactional id had which transactions, and the faults behind them"


class _TransactionBar(NamedTuple):
    """Describes the bar of a transaction between `left` and `right` in px; `number` is the transaction's number in the
    table, 0 if it is not listed there.
    """

    left: float
    right: float
    outcome: str
    grave: bool
    title: str
    number: int


def overview_svg(
    txns: Sequence[ObservedTxn],
    chosen: Sequence[NotableTransaction],
    faults: Sequence[LaneSpan],
    span: tuple[float, float],
    ident: str,
) -> str:
    """Draw all transactions between the two times of `span`, in seconds. The bar of a transaction in `chosen` links to
    its entry on the page. The `kind` of a fault's span is its text in the picture. `ident` is the prefix of ids in the
    picture and of the entries' ids.
    """
    names = rows_of(txns, chosen)
    by_id: dict[str, list[ObservedTxn]] = {name: [] for name in names}
    for txn in txns:
        # Transactions of ids without a row go into a list that is thrown away.
        by_id.get(txn.id, []).append(txn)
    cell = max(1.0, (WIDTH - LEFT - RIGHT) * len(names) / BARS_AT_MOST) if len(txns) > BARS_AT_MOST else 0.0
    foot = TOP + ROW * len(names)
    height = foot + AXIS + LEGEND
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{ident}-t" font-size="12">',
        f'<title id="{ident}-t">{TITLE}</title>',
        _open_end_pattern(ident),
        *_faults(faults, span, foot),
        *_axis(span, foot),
    ]
    by_op = {each.txn.op: each for each in chosen}
    for place, name in enumerate(names):
        bars = [_bar(txn, by_op.get(txn.op), span) for txn in by_id[name]]
        parts += _row(name, _merged(bars, cell) if cell else bars, TOP + ROW * place, ident)
    there, grave = {outcome_of(txn) for txn in txns}, any(each.grave for each in chosen)
    legend = _legend(foot + AXIS + 14, ident, [each for each in _GRAVITY if each in there], grave)
    return "\n".join([*parts, *legend, "</svg>"])


def rows_of(txns: Sequence[ObservedTxn], chosen: Sequence[NotableTransaction]) -> list[str]:
    """Return the transactional ids that have a row in the picture. If there are too many ids, those of chosen
    transactions have precedence.
    """
    names = dict.fromkeys([*(each.txn.id for each in chosen), *sorted({txn.id for txn in txns})])
    return sorted(list(names)[:ROWS_AT_MOST])


def _open_end_pattern(ident: str) -> str:
    """Define the hatching that fills bars without a known end."""
    size = 'width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"'
    back = '<rect width="5" height="5" fill="var(--card)"/>'
    stripe = '<rect width="2.5" height="5" fill="var(--link)"/>'
    return f'<defs><pattern id="{ident}-h" {size}>{back}{stripe}</pattern></defs>'


def x_of(at: float, span: tuple[float, float]) -> float:
    """Return the x of a second, in px."""
    share = (at - span[0]) / max(span[1] - span[0], 1e-9)
    return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)


def _faults(faults: Sequence[LaneSpan], span: tuple[float, float], foot: float) -> Iterable[str]:
    for fault in faults:
        if fault.end < span[0] or fault.begin > span[1]:
            continue
        left, right = x_of(fault.begin, span), x_of(fault.end, span)
        words = escape(f"{fault.kind}: {fault.begin:.2f} to {fault.end:.2f} s")
        yield (
            f'<rect x="{left:.1f}" y="{TOP - 18}" width="{max(right - left, LEAST):.1f}" height="{foot - TOP + 18}" '
            f'fill="{FAULT}" fill-opacity="0.13"><title>{words}</title></rect>'
        )
        letters = int((right - left - 4) / 6.3)
        shown = fault.kind if len(fault.kind) <= letters else fault.kind[: max(letters - 1, 0)] + "\u2026"
        if letters >= 4:
            yield f'<text x="{left + 3:.1f}" y="{TOP - 6}" fill="var(--ink)" font-size="11">{escape(shown)}</text>'


def _axis(span: tuple[float, float], foot: float) -> Iterable[str]:
    step = next((each for each in STEPS_S if (span[1] - span[0]) / each <= TICKS), STEPS_S[-1])
    # Rounded up to a multiple of `step`; + 0.0 turns -0.0 into 0.0.
    at = -(-span[0] // step) * step + 0.0
    while at <= span[1]:
        x = x_of(at, span)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{foot}" stroke="var(--line)"/>'
        yield f'<text x="{x:.1f}" y="{foot + 16}" text-anchor="middle" fill="var(--muted)">{at:g} s</text>'
        # Rounded, so that errors of floats do not add up.
        at = round(at + step, 6)


def _row(name: str, bars: Sequence[_TransactionBar], y: float, ident: str) -> Iterable[str]:
    middle = y + ROW / 2 + 3
    shown = name if len(name) <= 20 else name[:19] + "\u2026"
    yield f'<text x="{LEFT - 10}" y="{middle + 4:.0f}" text-anchor="end" fill="var(--ink)">{escape(shown)}'
    yield f"<title>{escape(name)}</title></text>"
    yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{middle}" y2="{middle}" stroke="var(--line)"/>'
    labelled = _labelled(bars)
    # What is drawn last is on top.
    for bar in sorted(bars, key=lambda bar: (bar.grave, bar.number > 0)):
        yield _drawn(bar, middle, ident, bar.number in labelled)


def _labelled(bars: Sequence[_TransactionBar]) -> set[int]:
    """Return the numbers of the transactions whose number is drawn above the bar. A number that would overlap another
    one is left out. Transactions with findings (`grave`) come first, so theirs are kept.
    """
    taken: list[float] = []
    chosen = set()
    for bar in sorted(bars, key=lambda bar: (not bar.grave, bar.number)):
        middle = (bar.left + max(bar.right, bar.left + LEAST)) / 2
        if bar.number and all(abs(middle - each) >= NUMBER_W for each in taken):
            taken.append(middle)
            chosen.add(bar.number)
    return chosen


def _bar(txn: ObservedTxn, chosen: NotableTransaction | None, span: tuple[float, float]) -> _TransactionBar:
    end = ended_at(txn)
    until = last_sign_of(txn) if end is None else end
    outcome = outcome_of(txn)
    why = f": {chosen.why}" if chosen is not None else ""
    title = f"{txn.id}, {txn.began:.3f} to {until:.3f} s, {WORDS[outcome]}, {len(txn.parts)} records{why}"
    number, grave = (chosen.number, chosen.grave) if chosen is not None else (0, False)
    return _TransactionBar(x_of(txn.began, span), x_of(until, span), outcome, grave, title, number)


def _merged(bars: Sequence[_TransactionBar], cell: float) -> list[_TransactionBar]:
    """Merge bars of the same outcome in the same cell of `cell` px into one bar as wide as they reach; chosen bars stay
    separate.
    """
    cells: dict[tuple[int, str], list[_TransactionBar]] = {}
    for bar in bars:
        if not bar.number:
            cells.setdefault((int(bar.left / cell), bar.outcome), []).append(bar)
    merged = []
    for same in cells.values():
        title = same[0].title if len(same) == 1 else f"{len(same)} transactions: {WORDS[same[0].outcome]}"
        right = max(bar.right for bar in same)
        merged.append(same[0]._replace(left=min(bar.left for bar in same), right=right, title=title))
    return [*merged, *(bar for bar in bars if bar.number)]


def _drawn(bar: _TransactionBar, middle: float, ident: str, labelled: bool) -> str:
    top, bottom = _heights(bar)
    width = max(bar.right - bar.left, LEAST)
    fill = "var(--bad)" if bar.grave else f"url(#{ident}-h)" if bar.outcome == UNCERTAIN else COLOURS[bar.outcome]
    edge = f' stroke="{COLOURS[bar.outcome]}" stroke-width="1"' if bar.outcome in (UNCERTAIN, OPEN) else ""
    see_through = ' fill-opacity="0.25"' if bar.outcome == OPEN and not bar.grave else ""
    rect = (
        f'<rect x="{bar.left:.1f}" y="{middle + top:.1f}" width="{width:.1f}" height="{bottom - top:.1f}" '
        f'fill="{fill}"{edge}{see_through}><title>{escape(bar.title)}</title></rect>'
    )
    if not bar.number:
        return rect
    colour = "var(--bad)" if bar.grave else "var(--ink)"
    label = (
        f'<text x="{bar.left + width / 2:.1f}" y="{middle - 13:.1f}" text-anchor="middle" font-size="10" '
        f'fill="{colour}" font-weight="600">{bar.number}</text>'
        if labelled
        else ""
    )
    return f'<a href="#{ident}-{bar.number}">{rect}{label}</a>'


def _heights(bar: _TransactionBar) -> tuple[float, float]:
    """Return a bar's top and bottom, in px from the line; negative is above it."""
    if bar.grave:
        return -12, 12
    return {COMMITTED: (-10, 0), BY_CHOICE: (0, 10), UNASKED: (0, 10)}.get(bar.outcome, (-6, 6))


def _legend(y: float, ident: str, outcomes: Sequence[str], grave: bool) -> Iterable[str]:
    x = float(LEFT)
    places = {COMMITTED: "above the line", BY_CHOICE: "below", UNASKED: "below", OPEN: "across", UNCERTAIN: "across"}
    for outcome in outcomes:
        fill = f"url(#{ident}-h)" if outcome == UNCERTAIN else COLOURS[outcome]
        more = ' fill-opacity="0.25"' if outcome == OPEN else ""
        words = f"{WORDS[outcome]} ({places[outcome]})"
        yield f'<rect x="{x:.1f}" y="{y - 9}" width="12" height="10" fill="{fill}" stroke="{COLOURS[outcome]}"{more}/>'
        yield f'<text x="{x + 17:.1f}" y="{y}" fill="var(--muted)" font-size="11">{words}</text>'
        x += 28 + 5.6 * len(words)
    if grave:
        yield f'<rect x="{x:.1f}" y="{y - 11}" width="6" height="14" fill="var(--bad)"/>'
        yield f'<text x="{x + 11:.1f}" y="{y}" fill="var(--bad)" font-size="11" font-weight="600">a finding</text>'
