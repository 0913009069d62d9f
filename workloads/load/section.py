"""Makes the report's section about a load. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall.workloads.section import SectionTable, WorkloadSection

COLUMNS = ("load", ">batches", ">rows", ">drivers", ">executors", ">read", ">read again")


def section_of(figures: Mapping[str, Any]) -> WorkloadSection | None:
    """Return the report's section that shows these figures; None if there are none. Raise KeyError or TypeError if the
    figures are not those of `figures.measured`.
    """
    loads: Mapping[str, Mapping[str, int]] = figures.get("loads", {})
    if not loads:
        return None
    names = ("batches", "rows", "drivers", "executors", "read", "read_again")
    rows = [[level, *(f"{each[name]:,}" for name in names)] for level, each in loads.items()]
    sentence = " ".join(
        f"At {level}, {each['rows']:,} rows in {each['batches']:,} batches; {each['read_again']:,} were read again."
        for level, each in loads.items()
    )
    table = SectionTable("What the load committed, and what it read for that", COLUMNS, rows)
    return WorkloadSection("Load", sentence, None, [table])
