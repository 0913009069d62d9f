"""Replaces many operations by few and a larger number: the effect of a slow link on ten records is that of a slower
link on three.

Leaving out alone does not help if a failure needs many operations only for the time that they take. A replacement is
kept only if there are fewer steps afterwards, so this terminates; then the numbers become plain again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from squall.chaos.shrinking.search import ShrinkSearch, Values
from squall.chaos.shrinking.structure import Operation, fewer_operations, operations_of

_TIMES = (2, 4, 8)


def fewer_operations_for_more(search: ShrinkSearch[Any]) -> None:
    """Keep half of the operations if the plan still fails when one parameter of a fault is larger by the same factor.
    """
    while _traded(search):
        fewer_operations(search)


def _traded(search: ShrinkSearch[Any]) -> bool:
    values = search.values()
    listed = operations_of(values)
    return any(search.attempt({**dearer, "operations": rest}) for dearer in _dearer(values) for rest in _halves(listed))


def _dearer(values: Values) -> Iterator[Values]:
    """Yield plans in which one parameter of one fault is larger, as far as its bounds allow."""
    faults = values["faults"]
    for index, fault in enumerate(faults):
        for name, value in fault["params"].items():
            if not isinstance(value, (int, float)) or value <= 0:
                continue
            for times in _TIMES:
                larger = {**fault, "params": {**fault["params"], name: value * times}}
                yield {**values, "faults": [*faults[:index], larger, *faults[index + 1 :]]}


def _halves(listed: list[Operation]) -> Iterator[list[Operation]]:
    """Yield every second operation, the earlier half, and the later half; nothing if there is only one operation."""
    if len(listed) > 1:
        middle = len(listed) // 2
        yield from (listed[::2], listed[:middle], listed[middle:])
