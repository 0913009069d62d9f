"""A saved run: what it was, how it failed, and how to run it again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from squall.chaos.errors import PreconditionError
from squall.chaos.plans.plan import Plan, PlanError, read_plan
from squall.chaos.runs.batch import SeedBatch, limited
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.result import FailureSignature, SimResult
from squall.chaos.runs.saved import save
from squall.chaos.typed import typed
from squall.checkers.engines import REFERENCE, SPARK

MESSAGES = "messages.jsonl"
TRY_CPU_S = 60
"""Of one try while shrinking: what takes longer is not the failure that is looked for."""


@dataclass(frozen=True)
class RecordedRun:
    """Holds what a run directory records about its run."""

    directory: RunDirectory
    plan: Plan
    failure: FailureSignature | None
    """Of a simulated run; None where it did not fail, or was not simulated."""
    digest: str | None
    """Of a simulated run's trace."""
    mutant: str | None
    anomalies: tuple[str, ...]
    """Names of what is not permitted in its verdict."""
    engine: str = SPARK
    """The engine of a repeated run: the one that searched the history, and for a simulated run Spark."""

    @property
    def simulated(self) -> bool:
        """True if the run was a simulation."""
        return self.digest is not None


def recorded(path: Path) -> RecordedRun:
    """Read the run in `path`. Refused if that is no run directory, if its plan cannot be read, or if run.json does not
    say how a simulation ended.
    """
    directory = RunDirectory.open(path)
    try:
        plan = read_plan(directory.plan)
    except PlanError as wrong:
        raise PreconditionError(str(wrong)) from None
    told = directory.read_info().get("simulated")
    if plan.runtime == "sim" and not isinstance(told, dict):
        raise PreconditionError(
            f"{directory.path}: run.json is missing or does not say how the simulation ended; the plan alone can be "
            f"simulated anew: {typed('sim', '--plan', directory.plan)}"
        )
    simulated: dict[str, Any] = told if isinstance(told, dict) else {}
    failed = simulated.get("failure")
    failure = FailureSignature(failed["kind"], failed["name"]) if isinstance(failed, dict) else None
    mutant, digest = simulated.get("mutant"), simulated.get("digest")
    anomalies, engine = _judged(directory)
    return RecordedRun(directory, plan, failure, digest, mutant, anomalies, engine if digest is None else SPARK)


def _judged(directory: RunDirectory) -> tuple[tuple[str, ...], str]:
    """The names of what is not permitted, and the engine that searched the history."""
    try:
        verdict = json.loads(directory.verdict.read_text())
        anomalies = tuple(dict.fromkeys(str(a["name"]) for a in verdict["anomalies"] if a["permitted"] is False))
        return anomalies, REFERENCE if verdict.get("engine") == REFERENCE else SPARK
    except (OSError, ValueError, LookupError, TypeError):
        return (), SPARK


def tried(
    mutant: str | None, wanted: str | None = None, over: Callable[[], bool] = lambda: False
) -> Callable[[Plan], FailureSignature | None]:
    """Return a function that simulates a plan and returns its failure. wanted: only this anomaly or broken invariant
    counts, and the run continues to its end; otherwise it stops at the first broken invariant.

    With a mutant planted, a failure counts only if the sound broker does not fail in the same way. `over` is asked
    during each simulation. Once it is true, the simulation ends, and what is returned means nothing.
    """
    order = SeedBatch(None, mutant, Path(), stop_at_first=wanted is None, cpu_limit_s=TRY_CPU_S)

    def run(plan: Plan) -> FailureSignature | None:
        failure = _failure(plan, order, wanted, over)
        if failure is None or mutant is None:
            return failure
        sound = _failure(sound_plan(plan, mutant), replace(order, mutant=None), wanted, over)
        return None if sound == failure else failure

    return run


def _failure(plan: Plan, order: SeedBatch, wanted: str | None, over: Callable[[], bool]) -> FailureSignature | None:
    try:
        result = limited(plan, order, over)
    except RuntimeError:
        return None
    if wanted is None:
        return result.failure
    if wanted in result.anomalies:
        return FailureSignature("anomaly", wanted)
    return FailureSignature("invariant", wanted) if any(each.name == wanted for each in result.violations) else None


def sound_plan(plan: Plan, mutant: str) -> Plan:
    """The plan that the sound broker must survive."""
    from squall.chaos.mutants import find
    from squall.chaos.mutants.hunt import sound

    return sound(find(mutant), plan)


def save_at(result: SimResult, path: Path, command: str) -> RunDirectory:
    """Save a simulated run into `path`, in place of what was there, with its messages if they were collected.

    messages.jsonl holds a message a line; its times are the traces' monotonic seconds.
    """
    fresh = save(result, path.parent, command, latest=False).path
    if result.messages:
        lines = (json.dumps(_line(message), default=str) + "\n" for message in result.messages)
        (fresh / MESSAGES).write_text("".join(lines))
    if path.exists():
        shutil.rmtree(path)
    fresh.rename(path)
    return RunDirectory(path)


def _line(message: Any) -> dict[str, Any]:
    fields = getattr(message, "_asdict", None)
    return dict(fields()) if fields is not None else asdict(message)
