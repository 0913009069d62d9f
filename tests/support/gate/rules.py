"""The rules that say when a test runs: in the gate (every change), at night, or alone on a quiet machine.

1. A test named in `BOUNDS_S` is quiet: it asserts how long something takes.
2. A test marked `night("reason")` runs at night; one marked `gate` runs in the gate.
3. A test without a row in `costs.json` runs in the gate.
4. All others run in the gate up to the CPU seconds that their folder permits, see `PERMITTED_CPU_S`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from tests.support.gate.costs import Cost

When = Literal["gate", "night", "quiet"]

UNMEASURED_S = 5.0
"""What a test without a row counts."""

PERMITTED_CPU_S: Mapping[str, float] = {
    "architecture": 5.0,
    "unit": 0.5,
    "scripts": 2.0,
    "property": 2.0,
}
"""CPU seconds that a test of a folder may take in the gate without a mark. Folders that are not named here have only
tests marked `gate` in it: simulations, mechanisms and everything that starts processes."""

WHY_AT_NIGHT: Mapping[str, str] = {
    "sim": "simulates; the gate has each kind of fault, each invariant, determinism and the first 30 seeds",
    "sim/mutants": "hunts planted bugs; the gate hunts ten",
    "sim/plans": "simulates; the gate plays each shrunk plan",
    "mechanisms": "takes a rule out in a process of its own; the gate does one",
    "parity": "starts Spark; the gate has one session",
    "interop": "foreign programs; the gate has one client through one failover",
    "live": "starts processes; the gate has a selection",
}
"""Why tests of these folders, below `tests/`, run at night unless they are marked. The longest name decides."""

_LONGEST_TURNS_S: Mapping[str, float] = {
    "describe groups": 0.033,
    "describe transactions": 0.094,
    "describe consumer groups": 0.026,
    "delete groups": 0.024,
    "describe producers": 0.030,
    "settings of one broker": 0.112,
    "one logger": 0.086,
    "long patterns": 0.015,
    "patterns that are costly to compile": 0.375,
    "more than is allowed": 0.003,
    "unknown topics": 0.273,
    "plain topics": 0.395,
    "topics of default width": 0.140,
    "topics with settings": 0.975,
    "topics with unknown settings": 0.589,
    "look up through hundreds of batches": 0.025,
    "look up through thousands of headers": 0.004,
    "look up one partition often": 0.006,
    "look into packed zeroes": 0.001,
    "look into many small records": 0.001,
    "first batches": 0.010,
    "parked fetches": 0.104,
    "a wide topic": 0.027,
    "directories": 0.004,
    "one group often": 0.080,
    "positions of one group": 0.001,
    "positions of many groups": 0.118,
    "stable positions of many groups": 0.128,
    "unread answers": 0.144,
    "list thousands of groups": 0.094,
    "a costly expression": 0.056,
    "costly patterns": 0.008,
    "markers": 0.105,
}
"""`squall_longest_turn_seconds` of rows of `tests/live/broker`: the larger one of two measurements on 2026-11-28. It is
CPU time, so although the two cores had a load of 10 to 16, most of these differed by less than a third."""
_TURNS = "tests/live/broker/test_turns.py::test_a_turn_takes_no_longer_than_it_did"
_CLIENTS = "tests/live/broker/test_many_clients.py"

BOUNDS_S: Mapping[str, float] = {
    "tests/live/ground/test_set_up.py::test_the_script_itself_costs_next_to_nothing": 0.25,
    f"{_CLIENTS}::test_the_controller_stays_and_nobody_is_fenced_while_hundreds_of_clients_ask_for_much": 0.26,  # 0.086
    # At least 30 ms: other tasks take 10.
    **{f"{_TURNS}[{row}]": 3 * max(0.01, measured_s) for row, measured_s in _LONGEST_TURNS_S.items()},
}
"""The quiet tests, by node id with or without parameters, with what each asserts: the most seconds that something may
take: three times what was measured. The fixture `bound_s` has a test's own bound."""


def function_of(node_id: str) -> str:
    """The node id without parameters."""
    return node_id.partition("[")[0]


def bound_of(node_id: str) -> float | None:
    """The bound of a quiet test; None for any other test."""
    return BOUNDS_S.get(node_id, BOUNDS_S.get(function_of(node_id)))


def when(node_id: str, marks: frozenset[str], costs: Mapping[str, Cost]) -> When:
    """When a test runs, by its node id, the names of its marks, and the measured costs."""
    if bound_of(node_id) is not None:
        return "quiet"
    if "night" in marks:
        return "night"
    if "gate" in marks or node_id not in costs:
        return "gate"
    folder = node_id.split("/")[1]
    return "gate" if costs[node_id].cpu_s <= PERMITTED_CPU_S.get(folder, -1.0) else "night"


BUDGETS_CPU_S: Mapping[str, float] = {"parity": 120.0, "waiting": 240.0, "": 700.0}
"""What the gate's tests may cost together: Spark's session, the waiting lane, and all others."""

MOST_CPU_S = 5.0
"""What one test of the gate may cost, outside of Spark's session and the waiting lane."""


def budget_of(node_id: str) -> str:
    """The name of the budget that pays for a test."""
    folder = node_id.split("/")[1]
    return "waiting" if folder in ("interop", "live") else folder if folder in BUDGETS_CPU_S else ""


def over_budget(selected: Iterable[str], costs: Mapping[str, Cost]) -> list[str]:
    """Say what is wrong with the costs of the gate's tests: nothing, if they stay within the budgets."""
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
