"""Reads all that a verdict depends on from a run directory into plain values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall.checkers import agreement, leaderships, nemesis_agreement, nemesis_log, run_facts, signs, simulated
from squall.checkers.anomalies import not_converged, replica_divergence, stuck
from squall.checkers.anomalies.registry import CATALOG, EvidenceCounts, looked_for, not_run, ran_on_little
from squall.checkers.findings import Finding
from squall.checkers.history import conversion, seal
from squall.checkers.history.group_activity import GroupActivity, from_json
from squall.checkers.history.tables import (
    ClientProcess,
    History,
    HistoryProblem,
    ObservedPartition,
    PartitionFinalRead,
    RecordedFault,
)
from squall.checkers.metrics import StuckLimits
from squall.checkers.plan_facts import UNLIMITED, BadPlan, PlanFacts, read_plan


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """Holds what the run's workload says of itself: its figures, and the anomalies that it can show."""

    figures: Mapping[str, Any] = field(default_factory=dict)
    """Holds the name of the workload and the figures that it measured in the history (`Scenario.measured`), as plain
    JSON. They become `workload` in verdict.json. Empty if the workload measures nothing.
    """
    checks: Collection[str] | None = None
    """Names the anomalies that can show in the workload; None: all. Other anomalies are not looked for, and do not
    count if found.
    """
    meant_for: Collection[str] = ()
    """Names the anomalies that the workload is meant to reveal. The verdict cannot be valid if one of them was not
    looked for, or only in too small a part of the run.
    """

    def left_out(self) -> dict[str, str]:
        """Return the anomalies that the workload cannot show, each with the reason."""
        names = () if self.checks is None else set(CATALOG) - set(self.checks)
        return dict.fromkeys(sorted(names), "this workload cannot show it")


@dataclass(frozen=True, slots=True)
class VerdictInputs:
    """Holds all that the verdict depends on. A field is None if its value could not be read; `troubles` then says why.
    """

    run: str = ""
    findings: Sequence[Finding] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    workload: WorkloadFacts = field(default_factory=lambda: WorkloadFacts())
    plan: PlanFacts | None = None
    partitions: Sequence[ObservedPartition] = ()
    processes: Sequence[ClientProcess] = ()
    faults: Sequence[RecordedFault] = ()
    groups: Mapping[str, GroupActivity] = field(default_factory=dict)
    """Maps the name of each consumer group to counts of what the group did, such as how often a partition changed its
    owner.
    """
    whole: bool = True
    """Is False if the history is damaged at an unknown place: then it is not a prefix of what happened."""
    nemesis_read: bool = True
    """Is False if nemesis.jsonl could not be read to its end, or belongs to another run."""
    run_json_intact: bool = True
    """Is False if run.json was changed after the history was closed."""
    troubles: Sequence[str] = ()
    """Says, in words, what did not work: inputs that cannot be parsed, or a checker that stopped."""
    notes: Sequence[str] = ()
    expect: str = ""
    """Is what the run is held to: "config", "safe" or "loss" (`guarantees.EXPECTATIONS`). Empty: the plan's own
    `expect` counts.
    """
    not_run: Mapping[str, str] = field(default_factory=dict)
    """Maps each anomaly that was not looked for to the reason, for example that the history has no transactions."""
    ran_on_little: Mapping[str, str] = field(default_factory=dict)
    """Maps each anomaly that was looked for in too small a part of the run to the reason, for example that no final
    read of a partition reached its end.
    """
    harness_troubles: Sequence[str] = ()
    """Says what went wrong with the harness or the machine during the run. Such trouble may have stopped progress, so
    no liveness finding is certain then. `troubles` has these entries as well.
    """
    simulator_failures: Sequence[str] = ()
    """Lists the failures that a simulator saw, a line each; no history shows them, and nothing permits them."""
    circumstances: signs.RunCircumstances = signs.RunCircumstances()
    """Holds the events of the run that may have caused anomalies, such as leader changes and power losses. Most
    anomalies are permitted only if such an event explains them.
    """
    engine: str = ""
    """Names the engine that searched the history, as in `squall.checkers.engines`; empty if none did, or if it is not
    known.
    """


@dataclass(frozen=True, slots=True)
class _HistorySummary:
    """Holds a history without its large tables. It is empty if the history could not be read."""

    run: str = ""
    """Is the run's name in the history's header."""
    partitions: Sequence[ObservedPartition] = ()
    processes: Sequence[ClientProcess] = ()
    outcomes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    counted: EvidenceCounts = EvidenceCounts()
    whole: bool = True
    """Is False if the history is damaged at an unknown place, as in `VerdictInputs.whole`."""
    seals: Mapping[str, int] = field(default_factory=dict)
    clock: tuple[int, int] = (-1, -1)
    """Holds the header's wall clock in ms and its monotonic clock in ns."""
    finals: Sequence[PartitionFinalRead] = ()
    problem: HistoryProblem | None = None
    """Says why reading the history stopped early, as `History.problem`."""
    declared: int = 0
    """Is the CRC-32 of the lines that declare partitions and topic settings, as `History.declared`."""


def _converted(run_dir: Path, troubles: list[str], notes: list[str]) -> _HistorySummary:
    """Return the summary of a history from the Parquet files into which it was converted. What is wrong with the
    history is appended to `troubles`, remarks to `notes`. Raises nothing.
    """
    try:
        reported = conversion.read_conversion(run_dir)
        kept, _ = conversion.load(run_dir, large=False)
        groups = from_json(reported.groups)
    except FileNotFoundError:
        troubles.append("the history was not converted")
        return _HistorySummary()
    except Exception as error:  # the verdict reports whatever is wrong with these files
        troubles.append(f"the converted history cannot be read: {type(error).__name__}: {error}")
        return _HistorySummary()
    troubles += map(str, reported.problems)
    notes += seal.notes(reported.ends, reported.torn_bytes)
    whole, clock = not any(each.untrusted for each in reported.problems), (reported.wall_ms, reported.mono_ns)
    members = reported.holds, reported.outputs, reported.owned, reported.owners, reported.resumed
    counted = EvidenceCounts(reported.read_inside, *members, groups, reported.grants, lookups=reported.lookups)
    about = reported.run, kept.partitions, kept.processes, reported.outcomes
    return _HistorySummary(*about, counted, whole, reported.seals, clock, kept.finals, kept.problem, reported.declared)


def _parsed(history: History, run_dir: Path, troubles: list[str], notes: list[str]) -> _HistorySummary:
    """Return the summary of a history that was parsed and is still in memory. What is wrong with the history is
    appended to `troubles`, remarks to `notes`.
    """
    unsealed = seal.broken_seal(history, seal.read_info(run_dir))
    troubles += (str(each) for each in (history.problem, unsealed) if each is not None)
    notes += seal.notes(history.ends, history.torn_bytes)
    whole = not any(each.untrusted for each in (history.problem, unsealed) if each is not None)
    counted = EvidenceCounts.of(history)
    clock = history.wall_ms, history.mono_ns
    kept = history.run, history.partitions, history.processes, history.outcomes
    lines = history.finals, history.problem or unsealed, history.declared
    return _HistorySummary(*kept, counted, whole, history.seals, clock, *lines)


def read_inputs(
    run_dir: Path,
    findings: Sequence[Finding] | None,
    metrics: Mapping[str, Any] | None,
    expect: str,
    troubles: list[str],
    workload: WorkloadFacts,
    history: History | None = None,
) -> VerdictInputs:
    """Return all that a verdict depends on. If files of `run_dir` contradict each other or cannot be parsed, append a
    sentence to `troubles`. `history`: the run's history; None: it is read from its Parquet files.
    """
    notes: list[str] = []
    plan = None
    try:
        plan = read_plan(run_dir)
    except BadPlan as bad:
        troubles.append(str(bad))
    reported = run_facts.read(run_dir)
    faults, trouble = conversion.read_faults(run_dir)
    unlike = nemesis_agreement.read(run_dir, plan.planned if plan else None, reported.info, notes)
    kept = _converted(run_dir, troubles, notes) if history is None else _parsed(history, run_dir, troubles, notes)
    run, partitions = kept.run or run_dir.name, kept.partitions
    changed = seal.changed_files(kept.seals, kept.run, plan.seal if plan else None, _nemesis(run_dir), reported.info)
    other_plan, edited = plan.of_another_run(run) if plan else [], agreement.edited(kept, reported.info)
    apart = agreement.disagreements(kept, reported.info, None if other_plan else plan, faults, metrics or {})
    seen, there = simulated.read(run_dir, reported.info, kept.seals), plan.brokers if plan else ()
    troubles += [*unlike, *reported.troubles, *edited, *apart, *changed.values(), *other_plan, *seen.troubles]
    if trouble is not None and str(trouble) not in troubles:
        troubles.append(str(trouble))
    wanted = replica_divergence.RequiredReplicaComparison(
        run, partitions, plan.configuration.replication_factor if plan else 2
    )
    compared, replicas = replica_divergence.read(run_dir, wanted, troubles, notes)
    led = leaderships.read(run_dir, partitions, kept.clock, reported.info, kept.finals, there, faults)
    circumstances = signs.circumstances_of(led, faults, partitions, outputs=kept.counted.outputs > 0)
    looked, lacking = not_converged.read(run_dir, partitions)
    after = stuck.read(run_dir, partitions, plan.limits if plan else StuckLimits(), kept.processes)
    # None remains None: an analysis that did not finish must not pass for one that found nothing.
    if findings is not None:
        findings = [*findings, *replicas, *lacking, *after.findings]
    notes += [*([UNLIMITED] if plan and plan.limits.stuck_producer_s is None else []), *after.notes]
    troubles += after.behind
    passed_over = {**after.passed_over, **workload.left_out()}
    passed_over |= {} if compared else {replica_divergence.NAME: replica_divergence.NOT_COMPARED}
    passed_over |= {} if looked else {not_converged.NAME: not_converged.NOT_LOOKED}
    counted = kept.counted._replace(placed=placed_of(metrics or {}))
    unlooked = not_run(kept.outcomes, kept.processes, partitions, passed_over, counted)
    notes.append(looked_for(unlooked))
    return VerdictInputs(
        run=run,
        findings=findings,
        metrics=metrics or {},
        workload=workload,
        plan=None if plan is None or other_plan or seal.PLAN in changed else plan.in_force(partitions),
        partitions=partitions,
        processes=kept.processes,
        faults=faults,
        groups=counted.groups,
        whole=kept.whole and not edited,
        nemesis_read=trouble is None and not unlike and seal.NEMESIS not in changed,
        run_json_intact=seal.RUN not in changed,
        troubles=troubles,
        notes=notes,
        expect=expect,
        not_run=unlooked,
        ran_on_little=ran_on_little(partitions, kept.processes, unlooked, counted, acked_of(metrics or {})),
        simulator_failures=seen.wrong,
        circumstances=circumstances,
    )


def acked_of(metrics: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of acknowledged records of each partition, by its name. `metrics` is the content of
    metrics.json.
    """
    return {name: figures.get("acked", 0) for name, figures in metrics.get("partitions", {}).items()}


def placed_of(metrics: Mapping[str, Any]) -> int:
    """Return how many acknowledged records have an offset; -1 if that was not counted."""
    each = [figures for figures in metrics.get("partitions", {}).values() if "acked_without_offset" in figures]
    return sum(figures["acked"] - figures["acked_without_offset"] for figures in each) if each else -1


def _nemesis(run_dir: Path) -> bytes:
    path = run_dir / nemesis_log.FILE
    return path.read_bytes() if path.exists() else b""
