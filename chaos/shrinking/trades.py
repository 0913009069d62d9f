"""Replaces many operations by fewer operations and a stronger fault: ten records over a slow link have the same effect
as three over a slower link.

Some failures need many operations only because these take a long time, so leaving operations out makes the failure
disappear; a stronger fault takes that time with fewer operations. A replacement is kept only if it leaves fewer
operations, so the search terminates. Later passes make the numbers plain again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from squall.chaos.shrinking.search import ShrinkSearch, Values
from squall.chaos.shrinking.structure import Operation, fewer_operations, operations_of

_TIMES = (2, 4, 8)


def fewer_operations_for_more(search: ShrinkSearch[Any]) -> None:
    """Halve the operations and make a numeric parameter of one fault larger, and repeat this as long as the plan still
    fails.
    """
    while _traded(search):
        fewer_operations(search)


def _traded(search: ShrinkSearch[Any]) -> bool:
    values = search.values()
    listed = operations_of(values)
    return any(search.attempt({**dearer, "operations": rest}) for dearer in _dearer(values) for rest in _halves(listed))


def _dearer(values: Values) -> Iterator[Values]:
    """Yield plans in which one fault is stronger: one of its numeric parameters is 2, 4 or 8 times as large."""
    faults = values["faults"]
    for index, fault in enumerate(faults):
        for name, value in fault["params"].items():
            if not isinstance(value, (int, float)) or value <= 0:
                continue
            for times in _TIMES:
                larger = {**fault, "params": {**fault["params"], name: value * times}}
                yield {**values, "faults": [*faults[:index], larger, *faults[index + 1 :]]}


def _halves(listed: list[Operation]) -> Iterator[list[Operation]]:
    """Yield three halves of the operations: every second operation, the earlier half, and the later half. Yields
    nothing if there is only one operation.
    """
    if len(listed) > 1:
        middle = len(listed) // 2
        yield from (listed[::2], listed[:middle], listed[middle:])
