"""Judges a run without files: it runs the reference finders on a history in memory, and decides as for a run directory.

`squall.checkers.verdict` reads its inputs from a directory in which Spark worked; this module makes the same inputs
from the bytes that would be in that directory. The replicas' logs are not compared here: if a run is in memory,
invariants checked them while it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from squall.checkers import agreement, guarantees, leaderships, nemesis_agreement, nemesis_log, run_facts, signs
from squall.checkers.analysis import Analysis, find
from squall.checkers.anomalies import not_converged, stuck
from squall.checkers.anomalies.registry import EvidenceCounts, looked_for, not_run, ran_on_little
from squall.checkers.anomalies.replica_divergence import NAME as DIVERGENCE
from squall.checkers.anomalies.replica_divergence import NOT_COMPARED
from squall.checkers.findings import Finding
from squall.checkers.history.parser import parse
from squall.checkers.history.seal import NEMESIS, NOTE, PLAN, RUN, broken_seal, changed_files
from squall.checkers.history.tables import History, HistoryProblem, RecordedFault
from squall.checkers.leaderships import Leaderships
from squall.checkers.metrics import context_of
from squall.checkers.plan_facts import UNLIMITED, facts_of
from squall.checkers.verdict import Verdict, decide
from squall.checkers.verdict_inputs import VerdictInputs, WorkloadFacts, acked_of, placed_of


@dataclass(frozen=True, slots=True)
class RunJudgement:
    """Holds the verdict on a run, and the history, findings and measures on which it is based."""

    verdict: Verdict
    history: History
    findings: tuple[Finding, ...]
    analysis: Analysis
    """Holds the findings in the history, and the measures."""
    faults: tuple[RecordedFault, ...]
    troubles: tuple[str, ...] = ()
    """Lists what went wrong in the run, in words, as it was passed to `judge_bytes`."""


def judge_bytes(
    run: str,
    history: bytes,
    nemesis: bytes,
    plan: Mapping[str, Any],
    *,
    info: Mapping[str, Any] | None = None,
    expect: str = "",
    troubles: Sequence[str] = (),
    workload: WorkloadFacts | None = None,
    traces: Mapping[str, Iterable[Mapping[str, Any]]] | None = None,
) -> RunJudgement:
    """Judge a run from the contents of its history.jsonl and nemesis.jsonl. `run` is its name, which is used if the
    history has none.

    `plan` is the parsed plan.toml (BadPlan is raised if it is incomplete). `info` is the content of run.json, which
    lacks keys if the run was cut short. `expect` replaces the plan's expectation unless it is empty. `troubles` says
    what went wrong, in words. `workload` holds the workload's own figures, and the anomalies that can show in it.
    `traces` holds the trace events of each broker; None: there are none, and the leaders are not known.
    """
    if expect and expect not in guarantees.EXPECTATIONS:
        raise ValueError(f"expect={expect!r}: one of {', '.join(guarantees.EXPECTATIONS)}")
    facts = facts_of(plan)
    faults, trouble = nemesis_log.parse_faults(nemesis.splitlines(keepends=True))
    skew_ms = nemesis_log.skew_ms(faults, info or {})
    parsed = parse(history.splitlines(keepends=True), nemesis_log.apart(faults), skew_ms)
    reported = run_facts.facts_of(info or {})
    disagreeing, torn = nemesis_agreement.disagreements(nemesis.splitlines(keepends=True), facts.planned, reported.info)
    unsealed = broken_seal(parsed, reported.info)
    changed = changed_files(parsed.seals, parsed.run, facts.seal, nemesis, info or {})
    wrong_plan = [*facts.of_another_run(parsed.run)]
    said = [*([] if parsed.ends else [NOTE]), *([torn] if torn else [])]
    said += [UNLIMITED] if facts.limits.stuck_producer_s is None else []
    lacking = not_converged.findings_in(reported.info.get("converged"), parsed.partitions)
    after = stuck.progress_after_healing(reported.info, parsed.partitions, facts.limits, parsed.processes)
    edited = agreement.edited(parsed, reported.info)
    circumstances = _circumstances(parsed, faults, traces, facts.brokers, reported.info)
    analysis = find(parsed, context_of(parsed, faults), circumstances, facts.limits)
    findings = [*analysis.findings, *(lacking or ()), *after.findings]
    workload = workload or WorkloadFacts()
    passed_over = {**after.passed_over, **workload.left_out(), DIVERGENCE: NOT_COMPARED}
    if lacking is None:
        passed_over[not_converged.NAME] = not_converged.NOT_LOOKED
    shaped = analysis.metrics
    apart = agreement.disagreements(parsed, reported.info, None if wrong_plan else facts, faults, shaped)
    wrong = [*reported.troubles, *edited, *apart]
    unlooked, little = _unlooked(parsed, passed_over, shaped)
    unread = _told(parsed.problem, unsealed, *disagreeing, trouble)
    case = VerdictInputs(
        run=parsed.run or run,
        engine=analysis.engine,
        workload=workload,
        findings=findings,
        metrics=shaped,
        plan=None if wrong_plan or PLAN in changed else facts.in_force(parsed.partitions),
        partitions=parsed.partitions,
        processes=parsed.processes,
        faults=faults,
        groups=parsed.group_activities.by_group(parsed.names),
        whole=not edited and not any(each.untrusted for each in (parsed.problem, unsealed) if each is not None),
        nemesis_read=trouble is None and not disagreeing and NEMESIS not in changed,
        run_json_intact=RUN not in changed,
        troubles=[*troubles, *wrong_plan, *changed.values(), *unread, *wrong, *after.behind],
        notes=[*said, *after.notes, looked_for(unlooked)],
        not_run=unlooked,
        ran_on_little=little,
        expect=expect,
        circumstances=circumstances,
    )
    return RunJudgement(decide(case), parsed, tuple(findings), analysis, tuple(faults), tuple(troubles))


def _circumstances(
    history: History,
    faults: Sequence[RecordedFault],
    traces: Mapping[str, Iterable[Mapping[str, Any]]] | None,
    brokers: Sequence[int],
    info: Mapping[str, Any],
) -> signs.RunCircumstances:
    until, led = leaderships.last_read(history.finals), Leaderships()
    if traces is not None:
        down = leaderships.down_at(until, faults, info)
        led = leaderships.of_events(traces, history.partitions, until, brokers, down)
    return signs.circumstances_of(led, faults, history.partitions, outputs=bool(history.outputs))


def _unlooked(
    history: History, passed_over: Mapping[str, str], metrics: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return two maps from anomalies to reasons: the anomalies that were not looked for, and those whose checks saw
    only a part of the run. `passed_over` maps anomalies that show outside of the history to why they were not looked
    for.
    """
    counted = EvidenceCounts.of(history)._replace(placed=placed_of(metrics))
    unlooked = not_run(history.outcomes, history.processes, history.partitions, passed_over, counted)
    return unlooked, ran_on_little(history.partitions, history.processes, unlooked, counted, acked_of(metrics))


def _told(*problems: HistoryProblem | None) -> list[str]:
    return [str(each) for each in problems if each is not None]
