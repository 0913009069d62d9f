"""The rules that say when a test runs: in the gate (every change), at night, or alone on a quiet machine.

1. A test named in `bounds.BOUNDS_S` is quiet: it asserts how long something takes.
2. A test marked `night("reason")` runs at night; one marked `gate` runs in the gate.
3. A test without a row in `costs.json` runs in the gate.
4. All others run in the gate up to the CPU seconds that their folder permits, see `PERMITTED_CPU_S`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from tests.support.gate import bounds
from tests.support.gate.costs import Cost

When = Literal["gate", "night", "quiet"]

UNMEASURED_S = 5.0
"""CPU seconds that a test without a row in `costs.json` is counted with."""

PERMITTED_CPU_S: Mapping[str, float] = {
    "architecture": 5.0,
    "unit": 0.5,
    "scripts": 2.0,
    "property": 2.0,
}
"""CPU seconds that a test of a folder may take to be in the gate without a mark. Of other folders (simulations,
mechanisms, everything that starts processes) only tests marked `gate` are in it.
"""

WHY_AT_NIGHT: Mapping[str, str] = {
    "sim": "simulates; the gate has each kind of fault, each invariant, determinism and the first 30 seeds",
    "sim/mutants": "hunts planted bugs; the gate hunts eleven",
    "sim/plans": "simulates; the gate plays each shrunk plan",
    "mechanisms": "takes a rule out in a process of its own; the gate does one",
    "parity": "starts Spark; the gate has one session",
    "interop": "foreign programs; the gate has one client through one failover",
    "live": "starts processes; the gate has a selection",
}
"""The reason why unmarked tests of a folder below `tests/` run at night. The longest matching path counts."""


def when(node_id: str, marks: frozenset[str], costs: Mapping[str, Cost]) -> When:
    """Return when a test runs, by its node id, the names of its marks, and the measured costs."""
    if bounds.bound_of(node_id) is not None:
        return "quiet"
    if "night" in marks:
        return "night"
    if "gate" in marks or node_id not in costs:
        return "gate"
    folder = node_id.split("/")[1]
    return "gate" if costs[node_id].cpu_s <= PERMITTED_CPU_S.get(folder, -1.0) else "night"


BUDGETS_CPU_S: Mapping[str, float] = {"parity": 200.0, "waiting": 240.0, "": 700.0}
"""CPU seconds that the gate's tests may cost together: those with Spark, those of the waiting lane, and all others."""

MOST_CPU_S = 5.0
"""CPU seconds that one test of the gate may cost, unless it uses Spark or runs in the waiting lane."""


def budget_of(node_id: str) -> str:
    """Return the name of the budget that a test counts for."""
    folder = node_id.split("/")[1]
    return "waiting" if folder in ("interop", "live") else folder if folder in BUDGETS_CPU_S else ""


def over_budget(selected: Iterable[str], costs: Mapping[str, Cost]) -> list[str]:
    """Return a sentence for each budget or limit that the gate's tests exceed."""
    spent = dict.fromkeys(BUDGETS_CPU_S, 0.0)
    wrong = []
    for test in selected:
        cpu_s = costs[test].cpu_s if test in costs else UNMEASURED_S
        budget = budget_of(test)
        spent[budget] += cpu_s
        if not budget and cpu_s > MOST_CPU_S:
            wrong.append(f"{test} takes {cpu_s:.1f} CPU s; a test of the gate may take {MOST_CPU_S:g}")
    for budget, cpu_s in spent.items():
        if cpu_s > BUDGETS_CPU_S[budget]:
            name = {"": "the CPU lanes"}.get(budget, budget)
            wrong.append(
                f"the gate's tests of {name} take {cpu_s:.0f} CPU s; they may take {BUDGETS_CPU_S[budget]:.0f}"
            )
    return wrong
