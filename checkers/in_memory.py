"""A run judged without a file: the reference finders on a history in memory, and the verdict as for a run directory.

What `checkers.verdict` reads from a directory that Spark worked in, this makes itself of the bytes that would be in it.
The replicas' logs are not compared here: where a run is in memory, invariants looked at them while it went on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checkers import convergence, guarantees, metrics, nemesis_log
from checkers.catalog import FOUND
from checkers.findings import Finding, findings_of
from checkers.history.parser import parse
from checkers.history.tables import Fault, History, Problem
from checkers.measures import measure
from checkers.metrics import Measure, context_of
from checkers.plan_facts import facts_of
from checkers.reference import find_all
from checkers.replica_findings import NAME as DIVERGENCE
from checkers.verdict import Case, Verdict, decide


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and what it rests on."""

    verdict: Verdict
    history: History
    findings: tuple[Finding, ...]
    measures: tuple[Measure, ...]
    faults: tuple[Fault, ...]
    troubles: tuple[str, ...] = ()
    """As they were given."""

    def series(self) -> dict[str, Any]:
        """series.json."""
        return metrics.series(self.measures, context_of(self.history, self.faults))


def judge_bytes(
    run: str,
    history: bytes,
    nemesis: bytes,
    plan: Mapping[str, Any],
    *,
    converged: Mapping[str, Any] | None = None,
    expect: str = "",
    troubles: Sequence[str] = (),
) -> Judgement:
    """Judge a run from the contents of its history.jsonl and nemesis.jsonl.

    `plan`: as parsed from its TOML (BadPlan where it lacks what it must say). `converged`: as in run.json, None where
    the run did not come so far. `expect` goes before the plan's. `troubles`: what went wrong, in words.
    """
    if expect and expect not in guarantees.EXPECTATIONS:
        raise ValueError(f"expect={expect!r}: one of {', '.join(guarantees.EXPECTATIONS)}")
    facts = facts_of(plan)
    parsed = parse(history.splitlines(keepends=True))
    faults, trouble = nemesis_log.parse_faults(nemesis.splitlines(keepends=True))
    context = context_of(parsed, faults)
    measures = tuple(measure(parsed, context))
    lacking = convergence.lacking(converged, parsed.partitions)
    findings = [*findings_of(find_all(parsed)), *metrics.liveness(measures, facts.limits), *(lacking or ())]
    passed_over = {DIVERGENCE: True, convergence.NAME: lacking is None}
    case = Case(
        run=parsed.run or run,
        findings=findings,
        metrics=metrics.shape(measures, context),
        plan=facts,
        partitions=parsed.partitions,
        processes=parsed.processes,
        faults=faults,
        nemesis_read=trouble is None,
        troubles=[*troubles, *_told(parsed.problem, trouble)],
        notes=[f"looked for: {', '.join(name for name in FOUND if not passed_over.get(name))}"],
        expect=expect,
    )
    return Judgement(decide(case), parsed, tuple(findings), measures, tuple(faults), tuple(troubles))


def _told(*problems: Problem | None) -> list[str]:
    return [str(each) for each in problems if each is not None]
