"""Decides whether a run is valid, invalid or unknown, and says why.

- `valid`: no evidence is missing (`squall.checkers.coverage`), and each finding is permitted, by a reason whose
  mechanism happened (`squall.checkers.mechanisms`). Each partition must have an acknowledged write and a final read
  that reached its end, with transactions also one at read_committed. Every planned fault must have taken effect.
- `invalid`: something was found that the configuration does not permit, or permits only by a mechanism that did not
  happen. That also holds for a history that was cut short, because finders only report what a prefix proves. A run in
  which a simulator saw an invariant break is invalid, too (`simulated`).
- `unknown`: anything else. The verdict's `reasons` say what is missing or uncertain.

`decide` is the rule, on values; `judge` reads a run directory, decides and writes verdict.json. It never raises for the
content of the directory: a verdict that cannot be reached is `unknown`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from squall.checkers import blame, fault_classes, guarantees, simulated
from squall.checkers.analysis import FINDINGS, METRICS
from squall.checkers.anomalies import dual_ownership, hanging_txn, stuck
from squall.checkers.anomalies.anomaly import PROGRAM, AnomalyFamily
from squall.checkers.anomalies.registry import CATALOG, LOSS, SHOWN_BY_HISTORY, SHOWN_BY_RUN
from squall.checkers.coverage import missing_evidence, removed_early
from squall.checkers.coverage_of_clients import stuck_ones
from squall.checkers.findings import SCHEMA as findings_schema
from squall.checkers.findings import Finding, Witness, from_json, kept
from squall.checkers.guarantees import FaultClass, PermissionCellName, PermittedAnomalies
from squall.checkers.history import seal
from squall.checkers.history.tables import History
from squall.checkers.permissions import PermissionContext, explained, permission_context_of
from squall.checkers.plan_facts import configuration_of
from squall.checkers.verdict_inputs import VerdictInputs, WorkloadFacts, read_inputs

SCHEMA = 1
FILE = "verdict.json"
STOPPED = "the simulation stopped at what it saw: of its plan, later faults and final reads are missing"
VALID, INVALID, UNKNOWN = "valid", "invalid", "unknown"
EXIT_CODES = {VALID: 0, INVALID: 1, UNKNOWN: 2}


@dataclass(frozen=True, slots=True)
class JudgedFinding:
    """Holds findings of one kind that are permitted, or not permitted, for one reason. `permitted` is None if that is
    not known.
    """

    name: str
    evidence: str
    permitted: bool | None
    why: str
    count: int
    processes: tuple[int, ...]
    witnesses: tuple[Witness, ...]
    parts: tuple[tuple[int, int], ...] = ()
    """Holds (partition id in the history, number of witnesses), ascending."""
    cell: PermissionCellName | None = None
    """Is the cell of the guarantee matrix that permits the finding, or the promise that forbids it; None if it is not
    known what was promised.
    """
    blames: str = ""
    """Names the client that caused the finding, for example "the program under test"; empty if the cluster caused it,
    or if it is permitted.
    """


@dataclass(frozen=True, slots=True)
class Verdict:
    """Holds the verdict on a run, the reasons for it, the judged findings and the metrics, as verdict.json has them."""

    run: str
    verdict: str
    expect: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    guarantee: PermittedAnomalies | None
    anomalies: tuple[JudgedFinding, ...]
    metrics: Mapping[str, Any]
    workload: Mapping[str, Any] = field(default_factory=dict)
    not_run: Mapping[str, str] = field(default_factory=dict)
    """Maps each anomaly that was not looked for to the reason (`VerdictInputs.not_run`)."""
    ran_on_little: Mapping[str, str] = field(default_factory=dict)
    """Maps each anomaly that was looked for in too small a part of the run to the reason
    (`VerdictInputs.ran_on_little`).
    """
    blames: str = ""
    """Names the client that caused all findings which are not permitted. Empty if there are none, or if the cluster or
    a second client caused some of them.
    """
    engine: str = ""
    """Names the engine that searched the history, as `VerdictInputs.engine`."""

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0 valid, 1 invalid, 2 unknown."""
        return EXIT_CODES[self.verdict]


# ------------------------------------------------------------------------------------------------------------ the rule


def decide(case: VerdictInputs) -> Verdict:
    """Judge the findings of a run, and return its verdict. It is invalid if a finding is not permitted, or if a
    simulator saw a failure. Otherwise it is unknown if anything is missing or uncertain, and else valid.
    """
    expect = case.expect or (case.plan.expect if case.plan else "config")
    unknown_because = [*case.troubles]
    promised, at_worst = _promises(case, expect, unknown_because)
    left_out = case.workload.left_out()
    findings = [each for each in blame.attributed(case) if each.anomaly not in left_out]
    unproven = {} if case.whole else dict.fromkeys(SHOWN_BY_HISTORY, "the history is damaged, nobody knows where")
    if not case.run_json_intact:
        unproven |= dict.fromkeys(SHOWN_BY_RUN, "run.json is not as it was written")
    # Heartbeats prove two owners only while brokers hear each other, and an unknown fault may have kept them apart.
    if not case.nemesis_read or (case.plan and len(case.faults) < case.plan.faults):
        unproven.setdefault(dual_ownership.NAME, "a fault that nobody told of may have kept brokers apart")
    context = (
        permission_context_of(case)
        if promised
        else PermissionContext(frozenset(), None, case.circumstances, case.nemesis_read)
    )
    no_ack = blame.no_acknowledgement(case)
    unknown_because += [no_ack] if no_ack else []
    anomalies = tuple(
        _blaming(each, case, no_ack)
        for each in _judged(findings, promised, at_worst, unproven, case.harness_troubles, context)
    )
    if expect == "safe":
        # The reasons compare with what the configuration alone would permit, so it is judged a second time.
        anomalies = _asked_for(anomalies, decide(replace(case, expect="config")).anomalies)
    unknown_because += [
        _say(each) for each in anomalies if promised and each.permitted is None and each.why not in unknown_because
    ]
    missing = missing_evidence(case)
    # A simulation ends at its first failure, and all that is missing follows from that.
    unknown_because += [STOPPED] if case.simulator_failures and missing else missing
    forbidden = [each for each in anomalies if each.permitted is False]
    # What the simulator saw is the brokers' doing, so no client is to blame for the whole verdict.
    blames = {"" if case.simulator_failures else each.blames for each in forbidden}
    if expect == "loss" and not any(each.name in LOSS for each in anomalies):
        unknown_because.append("a loss was expected, and none was found")
    wrong = [*case.simulator_failures, *map(_say, forbidden)]
    harness_troubles = [each for each in case.harness_troubles if each not in case.troubles]
    notes = [
        *case.notes,
        *removed_early(case.partitions),
        *stuck_ones(case),
        *harness_troubles,
        *(unknown_because if wrong else ()),
    ]
    everything = promised[None] if promised else None
    return Verdict(
        run=case.run,
        verdict=INVALID if wrong else UNKNOWN if unknown_because else VALID,
        expect=expect,
        reasons=tuple(dict.fromkeys(wrong or unknown_because)),
        notes=tuple(dict.fromkeys(notes)),
        guarantee=everything,
        anomalies=anomalies,
        metrics=case.metrics,
        workload=case.workload.figures,
        not_run=case.not_run,
        ran_on_little=case.ran_on_little,
        blames=blames.pop() if len(blames) == 1 else "",
        engine=case.engine,
    )


def _blaming(judged: JudgedFinding, case: VerdictInputs, no_ack: str) -> JudgedFinding:
    """Return the finding with the name of the client that caused it. The finding is unchanged if it is not forbidden,
    or if the cluster caused it.

    `no_ack` is a sentence if no send of a foreign client was acknowledged or definitely failed
    (`blame.no_acknowledgement`), else empty. If there is such a sentence, it is not known whether a finding about the
    load's progress is permitted, and the sentence becomes the finding's reason.
    """
    if judged.permitted is not False:
        return judged
    if no_ack and judged.evidence in (stuck.LOAD, stuck.CLIENT):
        return replace(judged, permitted=None, why=no_ack)
    did = blame.proven_by_reports(
        case, (judged.name, judged.evidence), judged.processes, [part for part, _ in judged.parts]
    )
    if did:
        name, promise = (
            blame.client_in_words(PROGRAM),
            PermissionCellName("members' own reports", "any faults", blame.REPORTS),
        )
        return replace(judged, why=f"not permitted: {name} did this: {did}", cell=promise, blames=name)
    name = blame.name_of(judged.evidence, judged.processes, case.processes)
    if not name:
        return judged
    cell = replace(judged.cell, row=f"progress of {name}") if judged.cell else None
    why = f"{name} stood still while fresh clients were served"
    return replace(judged, why=f"not permitted: {why}", cell=cell, blames=name)


GuaranteesByProcess = Mapping["int | None", PermittedAnomalies]
"""Maps each process to its guarantee, and None to the guarantee for findings of no single process; empty if it is not
known what was promised.
"""


def _promises(
    case: VerdictInputs, expect: str, unknown_because: list[str]
) -> tuple[GuaranteesByProcess, GuaranteesByProcess]:
    """Return two maps of guarantees. The first has the guarantees in force. The second has those that would be in force
    if each power loss for which no ISR was recorded had hit all in-sync replicas of a partition (class WM); it is empty
    if there is no such power loss, or if WM is already among the faults. If the class of a fault is not known, both are
    empty, and a sentence is appended to `unknown_because`.
    """
    try:
        classes = fault_classes.classes_of(case.faults)
        if case.plan and not case.nemesis_read:
            # Planned faults that nemesis.jsonl does not report may have happened, so what they permit is permitted.
            said = {fault.action: fault.fault_class for fault in case.faults}
            planned = [fault_classes.class_of(action, said.get(action, "")) for action in case.plan.actions]
            classes = tuple(each for each in FaultClass if each in classes or each in planned)
    except fault_classes.UnknownFault as unknown:
        unknown_because.append(str(unknown))
        return {}, {}
    promised = _promised(case, expect, classes)
    if FaultClass.WM in classes or not fault_classes.losses_without_isr(case.faults):
        return promised, {}
    return promised, _promised(case, expect, (*classes, FaultClass.WM))


def _promised(case: VerdictInputs, expect: str, classes: tuple[FaultClass, ...]) -> GuaranteesByProcess:
    if expect == "safe":
        # No anomaly is permitted, so the configuration does not matter.
        return {None: guarantees.guarantee_for(guarantees.RunConfiguration(), classes, expect)}
    if case.plan is None:
        return {}
    plan = case.plan.configuration
    by_process: dict[int | None, PermittedAnomalies] = {
        process.proc: guarantees.guarantee_for(configuration_of(process, plan), classes, expect)
        for process in case.processes
    }
    producers = [by_process[process.proc] for process in blame.load_producers(case.processes)]
    by_process[None] = guarantees.union_of(producers or [guarantees.guarantee_for(plan, classes, expect)])
    return by_process


def _judged(
    findings: Iterable[Finding],
    promised: GuaranteesByProcess,
    at_worst: GuaranteesByProcess,
    unproven: Mapping[str, str],
    harness_troubles: Sequence[str],
    context: PermissionContext,
) -> tuple[JudgedFinding, ...]:
    """Return the findings grouped by anomaly, evidence and judgement. The groups that are not permitted come first,
    then the others; both are in the order of `CATALOG`.

    `promised` and `at_worst` are the first and the second map of guarantees that `_promises` returns. `unproven` maps
    each anomaly that this run cannot prove to the reason: if it was found and is not permitted, its judgement becomes
    "not known". If there are `harness_troubles`, the same holds for findings that something took too long.
    """
    groups: dict[tuple[str, str, bool | None, str, PermissionCellName | None], list[Finding]] = {}
    for finding in findings:
        permitted, why, cell = _judgement(finding, promised, at_worst, context)
        if permitted is False and finding.anomaly in unproven:
            permitted, why = None, f"{unproven[finding.anomaly]}, so this is not proven"
        # A machine that stood still makes everything late, whatever the cluster did.
        if permitted is False and harness_troubles and _by_time(finding.anomaly):
            permitted, why = None, f"it may be the harness's doing: {harness_troubles[0]}"
        groups.setdefault((finding.anomaly, finding.evidence, permitted, why, cell), []).append(finding)
    judged = [
        JudgedFinding(
            name=name,
            evidence=evidence,
            permitted=permitted,
            why=why,
            count=sum(finding.count for finding in group),
            processes=tuple(sorted({finding.proc for finding in group})),
            witnesses=kept(witness for finding in group for witness in finding.witnesses),
            parts=tuple(sorted(sum((Counter(dict(finding.parts)) for finding in group), Counter()).items())),
            cell=cell,
        )
        for (name, evidence, permitted, why, cell), group in groups.items()
    ]
    order = list(CATALOG)
    return tuple(sorted(judged, key=lambda each: (each.permitted is not False, order.index(each.name), each.evidence)))


def _by_time(name: str) -> bool:
    """Return whether an anomaly means that something took too long, as `stuck-producer` does."""
    return name == hanging_txn.NAME or CATALOG[name].family is AnomalyFamily.LIVENESS


def _judgement(
    finding: Finding, promised: GuaranteesByProcess, at_worst: GuaranteesByProcess, context: PermissionContext
) -> tuple[bool | None, str, PermissionCellName | None]:
    if not promised:
        return None, "it is not known what was promised", None
    # -1, and any process that is not in the history, gets what some producer of the load permits.
    guarantee = promised.get(finding.proc, promised[None])
    permitted, why, cell = explained(guarantee, finding, context)
    if permitted is not False or not at_worst:
        return permitted, why, cell
    if (worst := explained(at_worst.get(finding.proc, at_worst[None]), finding, context))[0] is not False:
        why = "a power loss did not tell who was in sync: if nobody else was, this is permitted"
        return None, why, worst[2]
    return permitted, why, cell


def _asked_for(anomalies: Iterable[JudgedFinding], alone: Sequence[JudgedFinding]) -> tuple[JudgedFinding, ...]:
    """Return the findings, with a new reason for each that --expect safe forbids. The reason says that the user asked
    for --expect safe, and whether the configuration alone would permit the finding. A finding that blames a client
    keeps its reason. `alone` holds the findings as the configuration alone judges them.
    """
    judged = {so: {(each.name, each.evidence) for each in alone if each.permitted is so} for so in (True, False, None)}
    rows = "; ".join(dict.fromkeys(each.cell.row for each in alone if each.cell and each.permitted is not None))
    asked = []
    for each in anomalies:
        permits, forbids, doubts = ((each.name, each.evidence) in judged[so] for so in (True, False, None))
        which = "some of it" if forbids or doubts else "it"
        would = f"would permit {which}" if permits else "does not permit it either"
        does = f"; the configuration alone ({rows}) {would}" if permits or forbids else ""
        why = f"not permitted: you asked for --expect safe, which permits no anomaly{does}"
        asked.append(replace(each, why=why) if each.permitted is False and not each.blames else each)
    return tuple(asked)


def _say(judged: JudgedFinding) -> str:
    evidence = f" ({judged.evidence})" if judged.evidence else ""
    return f"{judged.name}{evidence}: {judged.count}, {judged.why}"


# ------------------------------------------------------------------------------------------------------- run directory


def judge(
    run_dir: Path,
    findings: Sequence[Finding] | None,
    metrics: Mapping[str, Any] | None,
    *,
    expect: str | None = None,
    troubles: Sequence[str] = (),
    harness_troubles: Sequence[str] = (),
    workload: WorkloadFacts | None = None,
    history: History | None = None,
    engine: str = "",
) -> Verdict:
    """Decide on a run, and write `run_dir`/verdict.json.

    `findings` and `metrics` are the results of an analysis, None if it did not finish. `expect` is one of
    `guarantees.EXPECTATIONS`, for example "safe" if no anomaly is permitted; None: as the plan says. `troubles` says
    what else went wrong, in words; each makes a run without findings `unknown`. `harness_troubles` says what went wrong
    with the harness or the machine: then no finding about progress is certain. `history` is the run's history if it is
    in memory; None: the converted history is read. `engine` names the engine that searched the history.
    """
    if expect and expect not in guarantees.EXPECTATIONS:
        raise ValueError(f"expect={expect!r}: one of {', '.join(guarantees.EXPECTATIONS)}")
    case = read_inputs(run_dir, findings, metrics, expect or "", list(troubles), workload or WorkloadFacts(), history)
    verdict = decide(replace(case, harness_troubles=tuple(harness_troubles), engine=engine))
    _write(run_dir, verdict)
    return verdict


def give_up(run_dir: Path, *troubles: str) -> Verdict:
    """Write the verdict of a run that could not be judged: `unknown`, or `invalid` if a simulator saw a failure.
    `troubles` says why, in words.
    """
    seen = simulated.read(run_dir, seal.read_info(run_dir), {})
    troubles = (*troubles, *seen.troubles)
    verdict = decide(VerdictInputs(run=run_dir.name, troubles=troubles, simulator_failures=seen.wrong))
    if verdict.verdict == UNKNOWN:
        verdict = replace(verdict, reasons=troubles)  # reasons about missing evidence would say nothing new
    _write(run_dir, verdict)
    return verdict


def _write(run_dir: Path, verdict: Verdict) -> None:
    # Renamed when it is complete: a judge that is killed must not leave half of a verdict.json.
    fresh = run_dir / f"{FILE}.new"
    fresh.write_text(json.dumps(written(run_dir, verdict), indent=1) + "\n")
    fresh.replace(run_dir / FILE)


def judge_run(
    run_dir: Path,
    *,
    expect: str | None = None,
    troubles: Sequence[str] = (),
    harness_troubles: Sequence[str] = (),
    workload: WorkloadFacts | None = None,
    history: History | None = None,
) -> Verdict:
    """Judge a run from the findings and metrics that an engine left in `run_dir`, and write verdict.json. `judge`
    explains the parameters.
    """
    said, engine = list(troubles), ""
    findings: list[Finding] | None = None
    metrics: dict[str, Any] | None = None
    try:
        stored = json.loads((run_dir / FINDINGS).read_text())
        trouble = _of_another(stored, run_dir, history)
        if trouble:
            said.append(trouble)
        else:
            findings = from_json(stored["findings"])
            metrics, engine = json.loads((run_dir / METRICS).read_text()), str(stored.get("engine", ""))
    except FileNotFoundError as error:
        said.append(f"the analysis left no {Path(str(error.filename)).name}")
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        said.append(f"what the analysis left cannot be read: {type(error).__name__}: {error}")
    how: dict[str, Any] = {
        "harness_troubles": harness_troubles,
        "workload": workload,
        "history": history,
        "engine": engine,
    }
    return judge(run_dir, findings, metrics, expect=expect, troubles=said, **how)


def _of_another(stored: Mapping[str, Any], run_dir: Path, history: History | None) -> str:
    """Return why findings.json belongs to another history; empty if it does not, or if the history cannot be read."""
    from squall.checkers.history import conversion

    if stored["schema"] != findings_schema:
        return f"{FINDINGS} is of schema {stored['schema']}, and this program reads {findings_schema}: analyse it again"
    try:
        run = conversion.read_conversion(run_dir).run if history is None else history.run
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return ""  # `read_inputs` reports it
    if stored["run"] == run:
        return ""
    return f"{FINDINGS} is about the run {stored['run']!r}, and the history about {run!r}"


def written(run_dir: Path, verdict: Verdict) -> dict[str, Any]:
    """Return the content of verdict.json for a run directory. It includes the size and CRC-32 of the history, so that a
    later change of the history shows.
    """
    return {**to_json(verdict), seal.JUDGED: seal.stamp(run_dir / seal.FILE)}


def to_json(verdict: Verdict) -> dict[str, Any]:
    """Return the content of verdict.json, except for the size and CRC-32 of the history, which `written` adds."""
    names = {entry["part"]: name for name, entry in verdict.metrics.get("partitions", {}).items()}
    return {
        "schema": SCHEMA,
        "run": verdict.run,
        "verdict": verdict.verdict,
        "engine": verdict.engine or None,
        "blames": verdict.blames,
        "expect": verdict.expect,
        "reasons": list(verdict.reasons),
        "notes": list(verdict.notes),
        "guarantee": _guarantee_json(verdict.guarantee),
        "anomalies": [
            {
                "name": each.name,
                "evidence": each.evidence,
                "count": each.count,
                "permitted": each.permitted,
                "why": each.why,
                "blames": each.blames,
                "cell": None if each.cell is None else asdict(each.cell),
                "definition": CATALOG[each.name].definition,
                "jepsen": CATALOG[each.name].jepsen,
                "other": CATALOG[each.name].other,
                "processes": list(each.processes),
                "partitions": {names.get(part, str(part)): count for part, count in each.parts},
                "witnesses": [_witness_json(witness, names) for witness in each.witnesses],
            }
            for each in verdict.anomalies
        ],
        "not_run": dict(verdict.not_run),
        "ran_on_little": dict(verdict.ran_on_little),
        "metrics": dict(verdict.metrics),
        "workload": dict(verdict.workload),
    }


def _guarantee_json(guarantee: PermittedAnomalies | None) -> dict[str, Any] | None:
    if guarantee is None:
        return None
    return {
        "row": guarantee.row,
        "fault_classes": list(guarantee.classes),
        "permitted": dict(guarantee.permitted),
        "sources": list(guarantee.sources),
    }


def _witness_json(witness: Witness, names: Mapping[int, str]) -> dict[str, Any]:
    fields = {name: value for name, value in witness._asdict().items() if name not in ("anomaly", "evidence")}
    return {"partition": names.get(witness.part, str(witness.part)), **fields}
