"""Simulates many seeds, each by itself, in several processes."""

from __future__ import annotations

import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import FrameType

from squall.chaos.errors import traceback_text
from squall.chaos.garbage import garbage_stays
from squall.chaos.mutants.swarm import drawn_plan
from squall.chaos.plans.plan import Plan, read_plan
from squall.chaos.runs import branch_coverage, rare_paths
from squall.chaos.runs.result import FailureSignature, SimResult
from squall.chaos.runs.workers import forked
from squall.chaos.typed import absolute_command
from squall.checkers.anomalies.registry import LOSS
from squall.workloads.registry import SCENARIOS

CPU_LIMIT_S = 240
"""Limits the CPU seconds of one seed: a simulation that takes longer is ended, and says nothing about its broker."""

STRIKE_AGAIN_S = 20
"""Gives the interval, in CPU seconds, at which the signal of the time limit is repeated. The first signal ends the
simulation at its next event. The second ends it at once: in an endless loop there is no next event.
"""


@dataclass(frozen=True, slots=True)
class SeedBatch:
    """Defines what a batch simulates for each seed. plan: the file of a plan that every seed simulates, with its own
    seed instead of the plan's; None: each seed gets a random plan (swarm). mutant: the id of a known bug that is
    planted in Squall's broker or client; None: no bug.
    """

    plan: Path | None
    mutant: str | None
    root: Path
    """Is the folder in which failing runs are saved."""
    stop_at_first: bool = True
    cpu_limit_s: float = CPU_LIMIT_S
    workload: str | None = None
    """Names the workload of all random plans; None: each seed draws its own."""
    coverage: bool = False
    """Says whether to measure which branches of the brokers the seeds take."""

    def plan_of(self, seed: int) -> Plan:
        """Return the plan of one seed. Raise PlanError if the plan's file is wrong."""
        if self.plan is None:
            return drawn_plan(seed, workload=self.workload, mutant=self.mutant)
        return _read(self.plan).model_copy(update={"seed": seed, "runtime": "sim"})

    def is_whole_swarm(self) -> bool:
        """Return whether the seeds draw their whole plans, and no known bug (mutant) is planted. Only then the seeds
        together should take every rare code path of the broker.
        """
        return self.plan is None and self.workload is None and self.mutant is None

    def impossible(self) -> frozenset[str]:
        """Return the broker's rare code paths that no seed of this batch can take, whatever it draws. Raise PlanError
        if the plan's file is wrong.
        """
        if self.plan is not None:
            plan = _read(self.plan)
            return rare_paths.impossible(plan.workload, plan.faults)
        if self.workload is None:
            return frozenset()  # another seed draws another workload
        return rare_paths.impossible(SCENARIOS[self.workload].model_validate({}))

    def command(self, seed: int) -> str:
        """Return the command that repeats one seed."""
        of = ("--swarm",) if self.plan is None else ("--plan", self.plan)
        workload = ("--workload", self.workload) if self.plan is None and self.workload is not None else ()
        mutant = ("--mutant", self.mutant) if self.mutant else ()
        return absolute_command("sim", "--seed", str(seed), *of, *workload, *mutant)


@dataclass(frozen=True, slots=True)
class SeedResult:
    """Holds the result of one simulated seed: its verdict, its costs, counts of its faults, and the run directory if it
    was saved.
    """

    seed: int
    verdict: str
    failure: FailureSignature | None
    reasons: tuple[str, ...]
    trouble: str | None
    sim_s: float
    cpu_s: float
    digest: str
    counts: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    landed: int = 0
    saved: Path | None = None
    lost: int = 0
    """Counts the acknowledged records whose loss is permitted."""
    arcs: Mapping[str, set[branch_coverage.Arc]] = field(default_factory=dict)
    """Maps a file to the arcs (jumps from line to line) that this seed's process took and did not report before. Empty
    if the batch does not measure coverage.
    """


def run_batch(order: SeedBatch, seeds: Iterable[int], jobs: int) -> Iterator[SeedResult]:
    """Simulate the seeds in at most `jobs` processes at a time, and yield results as they come. Each process is forked
    with all imports done, simulates up to `workers.SHARE` seeds without collecting garbage, and ends.
    """
    from squall.chaos.runs import simulation  # noqa: F401  # not for this process
    from squall.chaos.runtimes.sim.preload import preload_modules

    preload_modules()
    if order.coverage:
        branch_coverage.preload_coverage()
    with garbage_stays():
        yield from forked(partial(_one, order), seeds, jobs, _died)


def _died(seed: int, why: str) -> SeedResult:
    return SeedResult(seed, "unknown", None, (), f"{why}, nobody knows of what", 0.0, 0.0, "")


def _one(order: SeedBatch, seed: int) -> SeedResult:
    recorder = branch_coverage.recorder() if order.coverage else None
    try:
        plan = order.plan_of(seed)
        with recorder.recording() if recorder else nullcontext():
            result = limited(plan, order)
        saved = _saved(order, seed, result) if result.failure or result.trouble else None
    except Exception as error:
        return SeedResult(seed, "unknown", None, (), traceback_text(error), 0.0, 0.0, "")
    faults = result.judgement.faults if result.judgement else ()
    found = result.judgement.verdict.anomalies if result.judgement else ()
    return SeedResult(
        seed=seed,
        verdict=result.verdict,
        failure=result.failure,
        reasons=result.reasons[:5],
        trouble=result.trouble,
        sim_s=result.sim_s,
        cpu_s=result.cpu_s,
        digest=result.digest,
        counts=result.counts,
        faults=len(faults),
        landed=sum(1 for fault in faults if fault.evidence and not fault.error),
        saved=saved,
        lost=sum(each.count for each in found if each.permitted and each.name in LOSS),
        arcs=recorder.take_new() if recorder else {},
    )


def limited(plan: Plan, order: SeedBatch, over: Callable[[], bool] = lambda: False) -> SimResult:
    """Simulate with a limit on CPU time. A signal interrupts a simulation that exceeds it. over: called again and
    again; it returns True if the simulation should end early. Raise RuntimeError if the simulation was ended for either
    reason.
    """
    from squall.chaos.runs.simulation import SimulationTimeout, simulate

    strikes: list[int] = []

    def strike(signum: int, frame: FrameType | None) -> None:
        # Any code may catch this exception and take it for its own error. So the kernel learns of it first.
        strikes.append(signum)
        if len(strikes) > 1:
            raise SimulationTimeout

    def enough() -> bool:
        return bool(strikes) or over()

    used = resource.getrusage(resource.RUSAGE_SELF)
    before = signal.signal(signal.SIGPROF, strike)
    signal.setitimer(signal.ITIMER_PROF, order.cpu_limit_s, STRIKE_AGAIN_S)
    try:
        return simulate(plan, mutant=order.mutant, stop_at_first=order.stop_at_first, enough=enough)
    except SimulationTimeout:
        now = resource.getrusage(resource.RUSAGE_SELF)
        took = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        raise RuntimeError(f"seed {plan.seed} did not come to its end in {took:.0f} s of CPU") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _saved(order: SeedBatch, seed: int, result: SimResult) -> Path:
    from squall.chaos.runs.saved import save

    directory = save(result, order.root, order.command(seed), latest=False)
    return directory.path


@cache
def _read(path: Path) -> Plan:
    return read_plan(path)
