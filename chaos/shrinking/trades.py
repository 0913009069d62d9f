"""Fewer operations, paid for with a larger number: what a slow link does to ten records, a slower one does to three.

Leaving out alone is stuck where a failure needs so many operations only for the time that they take. A trade is made
only where steps become fewer, so trades come to an end; the numbers become plain again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from squall.chaos.shrinking.search import ShrinkSearch, Values
from squall.chaos.shrinking.structure import Operation, fewer_operations, operations_of

_TIMES = (2, 4, 8)


def fewer_operations_for_more(search: ShrinkSearch[Any]) -> None:
    """Half of the operations, where one parameter of a fault, so many times as large, makes up for the others."""
    while _traded(search):
        fewer_operations(search)


def _traded(search: ShrinkSearch[Any]) -> bool:
    values = search.values()
    listed = operations_of(values)
    return any(search.attempt({**dearer, "operations": rest}) for dearer in _dearer(values) for rest in _halves(listed))


def _dearer(values: Values) -> Iterator[Values]:
    """The same plan with one parameter of one fault larger. What exceeds its bounds is no plan, and not tried."""
    faults = values["faults"]
    for index, fault in enumerate(faults):
        for name, value in fault["params"].items():
            if not isinstance(value, (int, float)) or value <= 0:
                continue
            for times in _TIMES:
                larger = {**fault, "params": {**fault["params"], name: value * times}}
                yield {**values, "faults": [*faults[:index], larger, *faults[index + 1 :]]}


def _halves(listed: list[Operation]) -> Iterator[list[Operation]]:
    """Yield every second operation, the earlier ones, and the later ones; nothing where there is only one operation."""
    if len(listed) > 1:
        middle = len(listed) // 2
        yield from (listed[::2], listed[:middle], listed[middle:])
