"""Finds where a series of nights changed: the method of the trends. Pure.

A series is cut in two where the sum of distances to the two medians is least. The cut is a change if there are at least
`LEAST` nights on both sides, and if the medians differ by more than `SPREADS` typical deviations of a night from its
side's median and by more than `SHARE` of the smaller one. Then both sides are looked at again in the same way. Medians,
because one slow night is no change; a share, because in nights that are all alike any difference would be one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

LEAST = 3
"""Nights on each side of a change."""
SPREADS = 3.0
SHARE = 0.2


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """From index `at` on, what was typically `before` is typically `after`."""

    at: int
    before: float
    after: float

    @property
    def rises(self) -> bool:
        """Return whether the value became more."""
        return self.after > self.before


def changes(values: Sequence[float]) -> list[ChangePoint]:
    """The changes in a series, in order. Fewer than twice LEAST values have none."""
    return _within(values, 0)


def _within(values: Sequence[float], offset: int) -> list[ChangePoint]:
    cuts = range(LEAST, len(values) - LEAST + 1)
    if not cuts:
        return []
    cut = min(cuts, key=lambda at: (_distance(values[:at]) + _distance(values[at:]), at))
    left, right = values[:cut], values[cut:]
    before, after = median(left), median(right)
    typical = max(_spread(left), _spread(right))
    if abs(after - before) <= max(SPREADS * typical, SHARE * min(abs(before), abs(after))):
        return []
    return [*_within(left, offset), ChangePoint(offset + cut, before, after), *_within(right, offset + cut)]


def _distance(values: Sequence[float]) -> float:
    middle = median(values)
    return sum(abs(value - middle) for value in values)


def _spread(values: Sequence[float]) -> float:
    """Median absolute deviation, scaled so that it is the standard deviation of what is normally distributed."""
    middle = median(values)
    return 1.4826 * median(abs(value - middle) for value in values)
