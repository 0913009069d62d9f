"""Runs an engine over a history, and holds the reference engine: the finders of `squall.checkers.anomalies`, in plain
Python.

Two engines search the history of a run directory and write the same files. Spark (`spark_analysis`) reads tables; the
reference engine reads the lines themselves. The reference engine is also the oracle of Spark's queries
(`tests/parity`), and judges simulations in memory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall.checkers import leaderships, metrics, run_facts, signs
from squall.checkers.anomalies import stuck, wrong_offset
from squall.checkers.anomalies.anomaly import OWN
from squall.checkers.anomalies.registry import find_all
from squall.checkers.engines import REFERENCE
from squall.checkers.findings import SCHEMA, Finding, findings_of, to_json
from squall.checkers.history.conversion import FOLDER, read_lines
from squall.checkers.history.tables import PRODUCER, ClientProcess, History, RecordedFault
from squall.checkers.measures import measure
from squall.checkers.metrics import CALM_GAP, CALM_READER_GAP, MeasurementContext, MeasurementRow, StuckLimits
from squall.checkers.plan_facts import BadPlan, read_plan

FINDINGS, METRICS, SERIES, ANOMALIES = "findings.json", "metrics.json", "series.json", "anomalies"


@dataclass(frozen=True, slots=True)
class Analysis:
    """Holds the result of one engine for one run."""

    engine: str
    run: str
    findings: list[Finding]
    measures: Sequence[MeasurementRow]
    context: MeasurementContext

    @property
    def metrics(self) -> dict[str, Any]:
        """Return the content of metrics.json: counts of results, latencies, and the times in which nothing succeeded.
        """
        return metrics.shape(self.measures, self.context)

    def write(self, folder: Path) -> None:
        """Write findings.json, metrics.json and series.json."""
        (folder / METRICS).write_text(json.dumps(self.metrics, indent=1) + "\n")
        (folder / SERIES).write_text(json.dumps(metrics.series(self.measures, self.context)) + "\n")
        stored = {"schema": SCHEMA, "engine": self.engine, "run": self.run, "findings": to_json(self.findings)}
        (folder / FINDINGS).write_text(json.dumps(stored, indent=1) + "\n")


def remove(folder: Path) -> None:
    """Remove the files of an earlier analysis, so that a findings.json that exists is complete and belongs to this
    history.
    """
    for name in (FINDINGS, METRICS, SERIES):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / ANOMALIES, ignore_errors=True)


def facts_of_run(
    run_dir: Path, history: History, faults: Sequence[RecordedFault], *, outputs: bool
) -> tuple[signs.RunCircumstances, StuckLimits]:
    """Return what the findings of a run are judged by: the circumstances that may explain them, and the plan's limits
    on time without progress.

    The limits are empty if the plan cannot be read; the verdict then reports that. `outputs` is True if group members
    made output records of their inputs.
    """
    try:
        plan = read_plan(run_dir)
        limits, brokers = plan.limits, plan.brokers
    except BadPlan:
        limits, brokers = StuckLimits(), ()
    clock, info = (history.wall_ms, history.mono_ns), run_facts.read(run_dir).info
    led = leaderships.read(run_dir, history.partitions, clock, info, history.finals, brokers, faults)
    return signs.circumstances_of(led, faults, history.partitions, outputs=outputs), limits


def find(
    history: History, context: MeasurementContext, circumstances: signs.RunCircumstances, limits: StuckLimits
) -> Analysis:
    """Search a history with the reference engine, and return the anomalies and measures that it finds.

    `context` has what the measures need beside the history. `circumstances` are events of the run that may explain an
    anomaly. `limits` are the plan's limits on time without progress.
    """
    measures = measure(history, context)
    findings = findings_of(signs.signed(history, circumstances, find_all(history)))
    findings += of_measures(measures, history.processes, context, limits)
    return Analysis(REFERENCE, history.run, findings, measures, context)


def of_measures(
    measures: Sequence[MeasurementRow],
    processes: Sequence[ClientProcess],
    context: MeasurementContext,
    limits: StuckLimits,
) -> list[Finding]:
    """Return the findings that follow from the measures, such as gaps without an acknowledgement; no finder is needed.

    A foreign client (a client library or a program under test) that makes no progress may have stopped by itself. Only
    clients that the harness starts after the last fault can show that the cluster was fine meanwhile. So the gaps
    before and between faults, and in a run without faults, are findings only for Squall's own client. The gaps of a
    single producer are never findings if the producer is foreign.
    """
    foreign = {each.proc for each in processes if each.client != OWN}
    writes = any(each.proc in foreign and each.role == PRODUCER for each in processes)

    def judged(each: MeasurementRow) -> bool:
        if each.name == CALM_GAP:
            return not writes
        return each.name not in (*stuck.OF_ONE, CALM_READER_GAP) or each.a not in foreign

    return [*stuck.liveness(filter(judged, measures), limits), *wrong_offset.unplaced(measures, processes)]


def find_in_run(run_dir: Path) -> History:
    """Search a run's history with the reference engine, write findings.json, metrics.json and series.json into the run
    directory, and return the history.

    Parquet tables of an earlier conversion are removed. A report page that needs them converts history.jsonl again.
    """
    remove(run_dir)
    shutil.rmtree(run_dir / FOLDER, ignore_errors=True)
    history, faults = read_lines(run_dir)
    circumstances, limits = facts_of_run(run_dir, history, faults, outputs=bool(history.outputs))
    find(history, metrics.context_of(history, faults), circumstances, limits).write(run_dir)
    return history
