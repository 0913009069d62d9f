"""Computes the measured figures that a run's workload defines, and the checks that apply to the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from squall.chaos.errors import error_message
from squall.chaos.plans.plan import PlanError, read_plan
from squall.chaos.runs.directory import RunDirectory
from squall.checkers.history.conversion import load, read_faults
from squall.checkers.history.tables import History, RecordedFault
from squall.checkers.verdict_inputs import WorkloadFacts
from squall.workloads.scenario import Scenario


def figures_of_history(
    scenario: Scenario, history: Callable[[], History], faults: Sequence[RecordedFault], troubles: list[str]
) -> WorkloadFacts:
    """Return the figures of a history. If measuring fails, append the reason to `troubles`, and the verdict is unknown.
    """
    try:
        figures = scenario.measured(history, faults)
    except Exception as error:  # a checker that stops is a trouble of this run, whatever stopped it
        troubles.append(f"measuring the workload {scenario.name} stopped: {error_message(error)}")
        figures = {}
    return WorkloadFacts({"name": scenario.name, **figures} if figures else {}, scenario.CHECKS, scenario.meant_for())


def figures_of(directory: RunDirectory, troubles: list[str], history: History | None = None) -> WorkloadFacts:
    """Return the figures of a run directory; no figures if its plan is unreadable, which the verdict reports. troubles:
    gets a sentence if measuring fails; then the verdict is unknown. history: None means that the history is loaded from
    the directory's Parquet files.
    """
    try:
        scenario = read_plan(directory.plan).workload
        faults = read_faults(directory.path)[0] if history else load(directory.path, large=False)[1]
    except (PlanError, OSError):
        return WorkloadFacts()
    return figures_of_history(scenario, lambda: history or load(directory.path)[0], faults, troubles)
