"""Defines those passes of the search that leave something out: faults, operations, time, settings, nodes, topics,
partitions, clients.

After each pass the search's best plan still fails as it did before, and is not larger than before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from squall.chaos.faults.triggers import renumbered_faults
from squall.chaos.plans.plan import make_plan
from squall.chaos.runtimes.broker_settings import INTERNAL
from squall.chaos.shrinking.ddmin import ddmin
from squall.chaos.shrinking.search import ShrinkSearch, Values
from squall.workloads.client.cluster import Place
from squall.workloads.registry import SCENARIOS
from squall.workloads.scenario import AT, Scenario

Operation = list[Any]
"""Is one operation of a workload as a list, in the form that a plan's file has, such as [0.1, 0, "send", 0, 200]. The
first item is its time in s; the meaning of the others depends on the workload.
"""
RATE = "rate"
"""Names the workload setting with the rate of the load, which some workloads do not have. Shrinking reduces the rate if
the plan lists no operations.
"""
_ONE_IN, _FEW = (251, 61, 17, 5, 2), 50
"""Give the divisors n for keeping each nth operation, and how many operations must be left at least. The divisors are
primes. Operations use partitions and producers round-robin: if n shared a factor with the number of partitions or
producers, some of them would get no operation.
"""
_OTHER_SEEDS = 4
"""Gives how many other seeds are tried. If each seed shows the failure with a probability of 1/4, at least one of four
shows it with a probability of 68 %. More seeds would leave less time for other passes.
"""
_ONE_IN_A_FEW = (17, 5, 2)
_PARTS_OF_TIME = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)


def operations_of(values: Values) -> list[Operation]:
    """Return the operations in a plan's values, each as a list, although a plan may hold an operation as a dict. Empty
    if the plan lists no operations and has only a rate.
    """
    listed = values.get("operations") or ()
    return [list(each.values()) if isinstance(each, dict) else list(each) for each in listed]


def scenario_of(values: Values) -> type[Scenario]:
    """Return the class of the workload in a plan's values."""
    return SCENARIOS[values["workload"]["name"]]


def fewer_faults(search: ShrinkSearch[Any]) -> None:
    """Leave out the faults that the failure does not need."""
    values = search.values()
    faults = values["faults"]
    ddmin(range(len(faults)), lambda which: search.still_fails({**values, "faults": renumbered_faults(faults, which)}))


def fewer_operations(search: ShrinkSearch[Any]) -> None:
    """Keep only the operations that the failure needs. If the load has a rate instead of listed operations, reduce the
    rate.
    """
    values = search.values()
    if values.get("operations") is not None:
        listed = operations_of(values)
        ddmin(listed, lambda kept: search.still_fails({**values, "operations": list(kept)}))
        return
    if RATE in values["workload"]:
        _smallest(search, ("workload", RATE), (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000))


def thinner_load(search: ShrinkSearch[Any]) -> None:
    """Keep only each nth operation of a large load, with as large an n as possible, so that later passes run faster."""
    listed = operations_of(search.values())
    for one_in in _ONE_IN:
        values = search.values()
        if len(listed) >= one_in * _FEW and search.attempt({**values, "operations": listed[::one_in]}):
            return


def thinner_load_under_another_seed(search: ShrinkSearch[Any]) -> None:
    """Keep only each nth operation, and run the plan under one of the next seeds. Leaving operations out changes the
    delays that are drawn for links and disks. So a failure that depends on chance may disappear although it does not
    need these operations; another seed may bring it back.
    """
    values = search.values()
    listed, seed = operations_of(values), values["seed"]
    for one_in in _ONE_IN_A_FEW:
        if len(listed) < 2 * one_in:
            continue
        for other in range(seed + 1, seed + 1 + _OTHER_SEEDS):
            if search.attempt({**values, "operations": listed[::one_in], "seed": other}):
                return


def shorter_load(search: ShrinkSearch[Any]) -> None:
    """End the load earlier. Faults and operations that would begin later are left out."""
    for part in _PARTS_OF_TIME:
        values = search.values()
        if search.attempt(_cut(values, _plain_up(part * values["time_s"]))):
            break
    values = search.values()
    last = max([0.0, *(f["at_s"] for f in values["faults"]), *(op[AT] for op in operations_of(values))])
    ends = max([last, *(f["at_s"] + f["duration_s"] for f in values["faults"])])
    for wanted in sorted({_plain_up(last + 0.1), math.ceil(last + 0.1), _plain_up(ends), math.ceil(ends), 1.0}):
        if last < wanted < values["time_s"] and search.attempt({**values, "time_s": float(wanted)}):
            return


def _plain_up(seconds: float) -> float:
    """Round seconds up to a tenth."""
    return math.ceil(round(seconds * 10, 6)) / 10


def _cut(values: Values, end_s: float) -> Values:
    which = [number for number, f in enumerate(values["faults"]) if f["at_s"] < end_s]
    cut = {**values, "time_s": end_s, "faults": renumbered_faults(values["faults"], which)}
    if values.get("operations") is not None:
        cut["operations"] = [op for op in operations_of(values) if op[AT] < end_s]
    return cut


def no_warm_up(search: ShrinkSearch[Any]) -> None:
    """Remove the warm-up and add its seconds to the load. The run itself stays the same: faults and operations happen
    at the same moments, whose times are now counted from the beginning of the former warm-up.
    """
    values = search.values()
    later = values["warmup_s"]
    if not later or values.get("operations") is None:
        return
    moved = {
        **values,
        "warmup_s": 0.0,
        "time_s": values["time_s"] + later,
        "faults": [{**f, "at_s": round(f["at_s"] + later, 6)} for f in values["faults"]],
        "operations": [[round(op[AT] + later, 6), *op[AT + 1 :]] for op in operations_of(values)],
    }
    search.attempt(moved)


# ---------------------------------------------------------------------------------------------------------- settings


def defaults_again(search: ShrinkSearch[Any]) -> None:
    """Reset every setting to its default, except the settings that the failure needs."""
    values = search.values()
    plain = make_plan({"workload": {"name": values["workload"]["name"]}}).model_dump(mode="json")
    plain["warmup_s"] = 0.0
    # The counted settings (topics, partitions, clients) have a pass of their own, which renumbers what uses them.
    own = {("workload", name) for name in scenario_of(values).COUNTED}
    strange = [path for path in _paths(values, plain) if path not in own and _at(values, path) != _at(plain, path)]

    def with_only(kept: Sequence[tuple[str, ...]]) -> bool:
        return search.still_fails(_reset(values, plain, [path for path in strange if path not in kept]))

    ddmin(strange, with_only)


_NO_SETTINGS = ("seed", "runtime", "schema_version", "faults", "operations", "time_s", "draws")
_OWN_PASS = {("cluster", "nodes"), ("workload", "replication_factor"), ("workload", "min_isr")}


def _paths(values: Values, plain: Values) -> Iterable[tuple[str, ...]]:
    """Yield the path of each setting in `values` or in `plain`, such as ("workload", "rate"). A table of settings has
    one path for each entry. Settings that another pass reduces are left out.

    values: the failing plan, or a table in it; plain: the same part of a plan with default settings.
    """
    for name in dict.fromkeys([*values, *plain]):
        if name in _NO_SETTINGS:
            continue
        mine, theirs = values.get(name), plain.get(name)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            yield from ((name, *rest) for rest in _paths(mine, theirs) if (name, *rest) not in _OWN_PASS)
        else:
            yield (name,)


def _at(values: Values, path: Sequence[str]) -> Any:
    found: Any = values
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _reset(values: Values, plain: Values, paths: Iterable[tuple[str, ...]]) -> Values:
    for path in paths:
        values = _with(values, path, _at(plain, path))
    return values


def _with(values: Values, path: Sequence[str], value: Any) -> Values:
    """Return a copy of a plan's values in which the setting at `path` is `value`; None removes it."""
    name, rest = path[0], path[1:]
    copy = dict(values)
    if rest:
        copy[name] = _with(copy.get(name) or {}, rest, value)
    elif value is None and name in copy:
        del copy[name]
    else:
        copy[name] = value
    return copy


# ------------------------------------------------------------------------------------------------------------- sizes


def fewer_nodes(search: ShrinkSearch[Any]) -> None:
    """Reduce the number of brokers, and with it the replication factor and min ISR as far as necessary. Then reduce
    these two by themselves.
    """
    values = search.values()
    for nodes in range(1, values["cluster"]["nodes"]):
        workload = values["workload"]
        factor = min(workload["replication_factor"], nodes)
        smaller = _with(values, ("cluster", "nodes"), nodes)
        settings = smaller["cluster"]["settings"]
        smaller["cluster"]["settings"] = {name: value for name, value in settings.items() if name not in INTERNAL}
        smaller["workload"] = {
            **workload,
            "replication_factor": factor,
            "min_isr": min(workload["min_isr"], factor),
        }
        if search.attempt(smaller):
            break
    for path in (("workload", "replication_factor"), ("workload", "min_isr")):
        _smallest(search, path, range(1, 9))


def fewer_of_each(search: ShrinkSearch[Any]) -> None:
    """Reduce the numbers of topics, partitions and clients. First, those that operations use are renumbered from 0, so
    that only unused ones have higher numbers.
    """
    scenario = scenario_of(search.values())
    for renumber in scenario.RENUMBERINGS:
        values = search.values()
        listed = operations_of(values)
        found = renumber(values["workload"], listed) if listed else None
        if found is not None:
            faults = [{**f, "target": _renamed(f["target"], found.places)} for f in values["faults"]]
            search.attempt({**values, "workload": found.table, "operations": found.operations, "faults": faults})
    for name in scenario.COUNTED:
        _smallest(search, ("workload", name), (0, 1, 2, 3, 4, 6, 8, 12))


def _smallest(search: ShrinkSearch[Any], path: tuple[str, ...], candidates: Iterable[int]) -> None:
    values = search.values()
    now = _at(values, path)
    for wanted in candidates:
        if wanted >= now:
            return
        if search.attempt(_with(values, path, wanted)):
            return


def _renamed(target: str, places: Mapping[Place, Place]) -> str:
    kind, _, argument = target.partition(":")
    name, _, index = argument.rpartition("-")
    now = places.get((name, int(index))) if index.isdigit() else None
    return target if now is None or kind == "node" else f"{kind}:{now[0]}-{now[1]}"
