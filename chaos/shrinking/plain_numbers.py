"""Defines those passes of the search that make a plan easier to read: plain targets, no idle time, round times and
sizes.

A number is only ever replaced by a plainer number (fewer digits, then smaller), so the passes terminate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from squall.chaos.shrinking.search import ShrinkSearch, Values
from squall.chaos.shrinking.structure import operations_of, scenario_of
from squall.workloads.scenario import AT

_GRIDS = (10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
_GAPS_S = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def plainness(value: float) -> tuple[int, float]:
    """Return a sort key by which plainer numbers come first: fewer significant digits, then smaller values."""
    digits = f"{abs(value):.6f}".rstrip("0").rstrip(".").replace(".", "").strip("0")
    return len(digits), abs(value)


def plainer(value: float) -> list[float]:
    """Return the numbers to try in place of `value`: plainer ones near it or below it, the plainest first."""
    found = {0.0, 1.0} if value > 1 else {0.0}
    for grid in _GRIDS:
        for times in (round(value / grid), int(value / grid), int(value / grid) + 1):
            found.add(round(times * grid, 6))
    return sorted((each for each in found if each >= 0 and plainness(each) < plainness(value)), key=plainness)


# ------------------------------------------------------------------------------------------------------------- times


def less_idle_time(search: ShrinkSearch[Any]) -> None:
    """Shorten the gaps in which no fault or operation begins or ends, the latest gap first."""
    for index in range(len(_moments(search.values())) - 1, -1, -1):
        values = search.values()
        moments = _moments(values)
        if index >= len(moments):
            continue
        before, after = (moments[index - 1] if index else 0.0), moments[index]
        for gap in _GAPS_S:
            if gap < round(after - before, 6) and search.attempt(_warped(values, before, after - before - gap)):
                break


def _moments(values: Values) -> list[float]:
    begins = [f["at_s"] for f in values["faults"]]
    ends = [round(f["at_s"] + f["duration_s"], 6) for f in values["faults"]]
    return sorted({*begins, *ends, *(float(op[AT]) for op in operations_of(values))})


def _warped(values: Values, after: float, cut: float) -> Values:
    """Return the plan without `cut` seconds after the time `after`: everything later than `after` happens `cut` seconds
    earlier. A fault that is active at the time `after` gets shorter.
    """

    def moved(at: float) -> float:
        return round(at - cut, 6) if at > after else at

    copy = dict(values)
    copy["faults"] = [
        {
            **f,
            "at_s": moved(f["at_s"]),
            "duration_s": round(moved(round(f["at_s"] + f["duration_s"], 6)) - moved(f["at_s"]), 6),
        }
        for f in values["faults"]
    ]
    if values.get("operations") is not None:
        copy["operations"] = [[moved(op[AT]), *op[AT + 1 :]] for op in operations_of(values)]
    return copy


def round_numbers(search: ShrinkSearch[Any]) -> None:
    """Round times, durations and the parameters of faults, one by one, as long as the plan still fails."""
    for index in range(len(search.values()["faults"])):
        for name in ("at_s", "duration_s"):
            _each(search, "faults", index, name)
        params = search.values()["faults"][index]["params"]
        for name in [name for name, value in params.items() if isinstance(value, (int, float))]:
            _each(search, "faults", index, "params", name)
    for index in range(len(operations_of(search.values()))):
        _each(search, "operations", index, AT)


def _each(search: ShrinkSearch[Any], *path: str | int) -> None:
    """Set one number of the plan to the plainest value with which the plan still fails. path: the keys and indexes that
    lead to the number, such as "faults", 0, "at_s".
    """
    place, key = _place(_listed(search.values()), path)
    for wanted in plainer(float(place[key])):
        values = _listed(search.values())
        place, key = _place(values, path)
        place[key] = wanted
        if search.attempt(values):
            return


def _place(values: Values, path: Sequence[str | int]) -> tuple[Any, Any]:
    """Return the dict or list that contains the value at `path`, and the value's key or index in it."""
    found: Any = values
    for name in path[:-1]:
        found = found[name]
    return found, path[-1]


def _listed(values: Values) -> Values:
    if values.get("operations") is not None:
        values["operations"] = operations_of(values)
    return values


# ------------------------------------------------------------------------------------------------------------ targets


def plain_targets(search: ShrinkSearch[Any]) -> None:
    """Reset the parameters of faults to their defaults, and replace targets such as "leader" by node ids, as long as
    the plan still fails.
    """
    for index, fault in enumerate(search.values()["faults"]):
        for name in fault["params"]:
            values = search.values()
            values["faults"][index]["params"].pop(name, None)
            search.attempt(values)
        if not fault["target"].startswith("node:"):
            _first(search, index, (f"node:{n}" for n in range(1, search.values()["cluster"]["nodes"] + 1)))


def _first(search: ShrinkSearch[Any], index: int, targets: Iterable[str]) -> None:
    for target in targets:
        values = search.values()
        values["faults"][index]["target"] = target
        if search.attempt(values):
            return


# -------------------------------------------------------------------------------------------------------- operations


def plain_operations(search: ShrinkSearch[Any]) -> None:
    """Set the fields of operations to their simplest values, which the workload defines (`Scenario.PLAIN`). A field is
    set in all operations at once; if the plan then no longer fails, in one operation after the other.
    """
    listed = operations_of(search.values())
    for place, wanted in scenario_of(search.values()).PLAIN.items():
        if all(op[place] == wanted for op in listed):
            continue
        values = _listed(search.values())
        values["operations"] = [[*op[:place], wanted, *op[place + 1 :]] for op in values["operations"]]
        if search.attempt(values):
            continue
        for index in range(len(listed)):
            values = _listed(search.values())
            values["operations"][index][place] = wanted
            search.attempt(values)


def smaller_operations(search: ShrinkSearch[Any]) -> None:
    """Simplify each operation step by step, in the ways that its workload names, as long as the plan still fails."""
    simplifications = scenario_of(search.values()).simplifications
    for index in range(len(operations_of(search.values()))):
        while any(
            _with_operation(search, index, less) for less in simplifications(operations_of(search.values())[index])
        ):
            pass


def _with_operation(search: ShrinkSearch[Any], index: int, operation: list[Any]) -> bool:
    values = _listed(search.values())
    values["operations"][index] = operation
    return search.attempt(values)


def plain_seed(search: ShrinkSearch[Any]) -> None:
    """Try the seeds 0 to 2 in place of a larger seed."""
    for seed in range(min(3, search.values()["seed"])):
        if search.attempt({**search.values(), "seed": seed}):
            return
