"""Reads a saved run: what it was, how it failed, and how to run it again."""

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
"""Limits the CPU seconds of each simulation while a plan is shrunk. A longer simulation counts as one without the
failure.
"""


@dataclass(frozen=True)
class RecordedRun:
    """Holds what a run directory records about its run."""

    directory: RunDirectory
    plan: Plan
    failure: FailureSignature | None
    """Identifies the failure of a simulated run; None if the run did not fail, or was not simulated."""
    digest: str | None
    """Is the digest of a simulated run's trace; None if the run was not simulated."""
    mutant: str | None
    anomalies: tuple[str, ...]
    """Names the anomalies in the run's verdict that are not permitted."""
    engine: str = SPARK
    """Names the engine (Spark or reference) that searches the history if the run is repeated: the same as in this run;
    Spark for a simulated run.
    """

    @property
    def simulated(self) -> bool:
        """Is True if the run was a simulation."""
        return self.digest is not None


def recorded(path: Path) -> RecordedRun:
    """Read the run in `path`. Raise PreconditionError if the path is no run directory, if its plan is unreadable, or if
    run.json does not say how a simulation ended.
    """
    directory = RunDirectory.open(path)
    try:
        plan = read_plan(directory.plan)
    except PlanError as wrong:
        raise PreconditionError(str(wrong)) from None
    entry = directory.read_info().get("simulated")
    if plan.runtime == "sim" and not isinstance(entry, dict):
        raise PreconditionError(
            f"{directory.path}: run.json is missing or does not say how the simulation ended; the plan alone can be "
            f"simulated anew: {typed('sim', '--plan', directory.plan)}"
        )
    simulated: dict[str, Any] = entry if isinstance(entry, dict) else {}
    failed = simulated.get("failure")
    failure = FailureSignature(failed["kind"], failed["name"]) if isinstance(failed, dict) else None
    mutant, digest = simulated.get("mutant"), simulated.get("digest")
    anomalies, engine = _judged(directory)
    return RecordedRun(directory, plan, failure, digest, mutant, anomalies, engine if digest is None else SPARK)


def _judged(directory: RunDirectory) -> tuple[tuple[str, ...], str]:
    """Return the names of the anomalies that are not permitted, and the engine that searched the history (Spark or
    reference).
    """
    try:
        verdict = json.loads(directory.verdict.read_text())
        anomalies = tuple(dict.fromkeys(str(a["name"]) for a in verdict["anomalies"] if a["permitted"] is False))
        return anomalies, REFERENCE if verdict.get("engine") == REFERENCE else SPARK
    except (OSError, ValueError, LookupError, TypeError):
        return (), SPARK


def tried(
    mutant: str | None, wanted: str | None = None, over: Callable[[], bool] = lambda: False
) -> Callable[[Plan], FailureSignature | None]:
    """Return a function that simulates a plan and returns its failure, or None. If `wanted` is given, only the anomaly
    or broken invariant of this name counts, and the simulation runs to its end. Otherwise it stops at the first broken
    invariant.

    With a mutant (a planted bug), a failure counts only if the correct broker does not fail in the same way. over:
    called during each simulation; once it returns True, the simulation ends, and its result means nothing.
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
    """Return the plan that the correct broker must pass. This is `plan` itself, unless the mutant is an unsafe setting,
    such as acks=1. For such a mutant, `expect` becomes "config", which permits the losses that the setting causes.
    """
    from squall.chaos.mutants import find
    from squall.chaos.mutants.hunt import sound

    return sound(find(mutant), plan)


def save_at(result: SimResult, path: Path, command: str) -> RunDirectory:
    """Save a simulated run into `path`, replacing its content.

    If the run's network messages were collected, each becomes a line of messages.jsonl. Their times are monotonic
    seconds, as in the traces.
    """
    fresh = save(result, path.parent, command, latest=False).path
    if result.messages:
        lines = (json.dumps(_line(message), default=str) + "\n" for message in result.messages)
        (fresh / MESSAGES).write_text("".join(lines))
    # Only now: an interruption while the new run is written leaves the old one complete.
    if path.exists():
        shutil.rmtree(path)
    fresh.rename(path)
    return RunDirectory(path)


def _line(message: Any) -> dict[str, Any]:
    fields = getattr(message, "_asdict", None)
    return dict(fields()) if fields is not None else asdict(message)
