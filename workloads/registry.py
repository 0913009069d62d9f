"""The workloads there are: one line each."""

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
    "squall.workloads.command",
)  # fmt: skip
"""Each has a SCENARIO. The first one is the default."""


def _scenario(folder: str) -> type[Scenario]:
    found = import_module(folder).SCENARIO
    assert isinstance(found, type), folder
    assert issubclass(found, Scenario), folder
    return found


SCENARIOS: dict[str, type[Scenario]] = {
    str(each.model_fields["name"].default): each for each in map(_scenario, FOLDERS)
}
"""By name."""
DEFAULT = next(iter(SCENARIOS))


def suited_brokers(table: dict[str, Any]) -> dict[str, str]:
    """Settings of brokers that suit this `[workload]` table, where nobody gives others."""
    scenario = SCENARIOS[table["name"]]
    return {**scenario.BROKERS, **scenario.suited_brokers(table)}


def unknown(name: str) -> str:
    """Says that there is no such workload, and which one was meant."""
    near = difflib.get_close_matches(name, SCENARIOS, n=1, cutoff=0.7)
    meant = f": did you mean {near[0]!r}?" if near else ""
    return f"there is no workload {name!r}{meant or ':'} ({', '.join(SCENARIOS)})"
