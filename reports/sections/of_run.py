"""Makes a section of a run's report that the run's workload defines, from the workload's figures in verdict.json."""

from __future__ import annotations

from squall.reports.run_files import RunFiles, mapping
from squall.workloads.registry import SCENARIOS
from squall.workloads.section import WorkloadSection


def section_of(files: RunFiles) -> tuple[WorkloadSection | None, str]:
    """Return (section, reason). The section is the one that the run's workload adds to the report; None if it adds
    none. The reason is empty, or says why the workload's figures cannot be shown.
    """
    figures = mapping(files.verdict.get("workload"))
    if not figures:
        return None, ""
    scenario = SCENARIOS.get(str(figures.get("name")))
    if scenario is None:
        return None, f"This Squall does not know the workload {figures.get('name')!r}."
    try:
        return scenario.section(figures), ""
    except Exception as error:  # the page says so, and all the rest of it stands
        return None, f"Its figures cannot be read: {type(error).__name__}: {error}."
