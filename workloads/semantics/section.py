"""Makes the report's section about delivery semantics: the promise of each application, and its lost and duplicated
outputs. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall.workloads.group_section import rebalances_of, strip_of
from squall.workloads.section import SectionTable, WorkloadSection

FORBIDDEN = {"at most once": ("doubled",), "at least once": ("lost",), "exactly once": ("lost", "doubled")}
"""Maps an application's semantics to what it forbids: `lost` inputs have no output, `doubled` inputs more than one."""
PROMISES = {"at most once": "nothing doubled", "at least once": "nothing lost", "exactly once": "neither"}
COLUMNS = ("application", "promises", ">inputs", ">outputs", ">lost", ">doubled", ">waiting", "kept")


def section_of(figures: Mapping[str, Any]) -> WorkloadSection | None:
    """Return the report's section that shows these figures of the applications; None if there are none. Raise KeyError
    or TypeError if the figures are not those of `SemanticsLoad.measured`.
    """
    applications: Mapping[str, Mapping[str, Any]] = figures.get("applications", {})
    if not applications:
        return None
    rows = [_row(name, each) for name, each in applications.items()]
    table = SectionTable("Inputs that were lost and doubled, by when an application commits", COLUMNS, rows)
    groups = {name: figures["groups"][name] for name in applications if name in figures["groups"]}
    sentence = " ".join(_sentence(name, each) for name, each in applications.items())
    return WorkloadSection("Delivery semantics", sentence, strip_of(groups), [table, *rebalances_of(groups)])


def kept(name: str, application: Mapping[str, Any]) -> bool | None:
    """Return whether an application kept the promise of its semantics `name`, such as "at most once", by its figures
    `application`. None means not known: there were no inputs, or the final reads did not read all outputs.
    """
    if any(application[each] for each in FORBIDDEN[name]):
        return False
    # `lost` is null where not all outputs were read: then not all doubled ones were seen either.
    return True if application["inputs"] and application["lost"] is not None else None


def _row(name: str, application: Mapping[str, Any]) -> list[str]:
    counts = [_count(application[each]) for each in ("inputs", "outputs", "lost", "doubled", "waiting")]
    return [name, PROMISES[name], *counts, {True: "yes", False: "no", None: "not known"}[kept(name, application)]]


def _sentence(name: str, application: Mapping[str, Any]) -> str:
    lost, doubled = _count(application["lost"]), _count(application["doubled"])
    return f"{name.capitalize()}: {lost} of {application['inputs']:,} inputs lost, {doubled} doubled."


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
