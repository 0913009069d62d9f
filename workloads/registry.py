"""Lists the packages of all workloads, and finds a workload by its name."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

from squall.workloads.scenario import Scenario

FOLDERS = (
    "squall.workloads.appends",
    "squall.workloads.steady",
    "squall.workloads.transactions",
    "squall.workloads.groups",
    "squall.workloads.pipeline",
    "squall.workloads.semantics",
    "squall.workloads.load",
    "squall.workloads.command",
)  # fmt: skip
"""Lists the packages of the workloads. Each exports its scenario class as `SCENARIO`. The first package has the default
workload.
"""


def _scenario(folder: str) -> type[Scenario]:
    found = import_module(folder).SCENARIO
    assert isinstance(found, type), folder
    assert issubclass(found, Scenario), folder
    return found


SCENARIOS: dict[str, type[Scenario]] = {
    str(each.model_fields["name"].default): each for each in map(_scenario, FOLDERS)
}
"""Maps the name of a workload to its scenario."""
DEFAULT = next(iter(SCENARIOS))


def suited_brokers(table: dict[str, Any]) -> dict[str, str]:
    """Return the broker settings that suit this `[workload]` table, for use if the plan gives no others."""
    scenario = SCENARIOS[table["name"]]
    return {**scenario.BROKERS, **scenario.suited_brokers(table)}


def unknown(name: str) -> str:
    """Return the error message for an unknown workload name, with the nearest known name."""
    near = difflib.get_close_matches(name, SCENARIOS, n=1, cutoff=0.7)
    meant = f": did you mean {near[0]!r}?" if near else ""
    return f"there is no workload {name!r}{meant or ':'} ({', '.join(SCENARIOS)})"
