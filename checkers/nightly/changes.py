"""Finds the nights at which a series of values changed, for the trends. Pure.

A series is cut where the sum of all values' distances to the median of their side is least. The cut is a change if
three conditions hold:

- There are at least `LEAST` nights on both sides.
- The medians differ by more than `SPREADS` times the typical deviation of a side from its median (`_spread`).
- The medians differ by more than `SHARE` of the smaller median.

Then both sides are searched again in the same way. Medians are used because one slow night is no change; a share is
required because in nights that are all alike any difference would count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

LEAST = 3
"""Is the least number of nights on each side of a change."""
SPREADS = 3.0
SHARE = 0.2


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """Describes a change of a series: from index `at` on, the typical value is `after` instead of `before`."""

    at: int
    before: float
    after: float

    @property
    def rises(self) -> bool:
        """Return whether the typical value is higher after the change than before."""
        return self.after > self.before


def changes(values: Sequence[float]) -> list[ChangePoint]:
    """Return the changes in a series, in order. A series of fewer than twice LEAST values has none."""
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
    """Return the median absolute deviation, scaled so that it equals the standard deviation of normally distributed
    values.
    """
    middle = median(values)
    return 1.4826 * median(abs(value - middle) for value in values)
