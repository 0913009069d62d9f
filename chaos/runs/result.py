"""Holds the result of a simulation, and names its failure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from squall.chaos.plans.plan import Plan
from squall.checkers import simulated

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.violation import InvariantViolation
    from squall.checkers.in_memory import RunJudgement

Kind = Literal["invariant", "anomaly", "liveness", "deadlock", "crash"]
VIOLATIONS, TRACEBACK, COUNTS = simulated.FILE, "harness-traceback.txt", "counts.json"


@dataclass(frozen=True, slots=True)
class FailureSignature:
    """Identifies how a run failed. A shrunk plan must fail with the same signature."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass
class SimResult:
    """Holds the result of one simulated run. To compare two results, compare their `digest`."""

    plan: Plan
    """Is the plan with its load written out as operations."""
    digest: str
    trace: list[dict[str, Any]]
    messages: list[Any] | None
    violations: list[InvariantViolation]
    anomalies: tuple[str, ...]
    """Names the anomalies that were found and that the guarantees do not permit."""
    verdict: str
    """Says whether a bug of the broker was found: invalid (yes), valid (no), or unknown (the run cannot be judged)."""
    failure: FailureSignature | None
    reasons: tuple[str, ...]
    """Describes the failure in sentences, or says why the verdict is unknown."""
    counts: Counter[str]
    """Counts how often each of the broker's rare code paths was taken (`rare_paths`)."""
    sim_s: float
    cpu_s: float
    """Gives the CPU seconds that simulating and judging took."""
    trouble: str | None
    """Holds the traceback of a failure of the harness, which says nothing about the broker; None if there was none."""
    mutant: str | None = None
    judgement: RunJudgement | None = None
    judging_cpu_s: float = 0.0
    """Gives how many CPU seconds of `cpu_s` judging took."""
    run_files: Callable[[], Mapping[str, bytes]] = field(default=dict, repr=False)
    """Returns the plan, run.json, the history, nemesis.jsonl and the nodes' files, by path."""

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Returns the contents of all files of the run, by their paths in a run directory."""
        files = dict(self.run_files())
        if self.violations:
            files[VIOLATIONS] = _json([violation_json(each) for each in self.violations])
        if self.trouble is not None:
            files[TRACEBACK] = self.trouble.encode()
        files[COUNTS] = _json(dict(sorted(self.counts.items())))
        return files


def violation_json(v: InvariantViolation) -> dict[str, Any]:
    """Return the violation's entry in violations.json."""
    place = {"node": v.node, "topic": v.topic, "partition": v.partition}
    from squall.chaos.runtimes.sim.invariants.table import INVARIANTS

    known = INVARIANTS.get(v.name)
    what = {"definition": known.definition, "source": known.source} if known else {}
    return {"name": v.name, "message": v.message, "t": v.t, **place, "details": dict(v.details), **what}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, default=str) + "\n").encode()
