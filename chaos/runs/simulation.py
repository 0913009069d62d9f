"""Carries out a whole run in virtual time, from a plan to a result, with the same harness, client and broker as in the
process runtime.

Nothing here touches a real file, socket or clock; the result's `files` may be exported to a run directory afterwards.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import trio

from squall.broker.overriding import override
from squall.chaos.errors import HarnessError, gravest_error, traceback_text
from squall.chaos.faults.audit import audit
from squall.chaos.faults.kind import FaultTrait
from squall.chaos.plans.operations import concrete
from squall.chaos.plans.plan import Plan, write_plan
from squall.chaos.runs import rare_paths
from squall.chaos.runs.progress import NullProgress
from squall.chaos.runs.result import VIOLATIONS, FailureSignature, SimResult, violation_json
from squall.chaos.runs.run import Run
from squall.chaos.runs.run_store import MemoryRunStore
from squall.chaos.runtimes.layout import choose_controllers, zone_names
from squall.chaos.runtimes.sim.core import MONO_S
from squall.chaos.runtimes.sim.coverage_probes import count_paths
from squall.chaos.runtimes.sim.interruptions import interruption_of
from squall.chaos.runtimes.sim.invariants.broker_calls import BrokerCallObserver
from squall.chaos.runtimes.sim.invariants.connections import ConnectionOrderWatch
from squall.chaos.runtimes.sim.invariants.stuck import coordinators_write
from squall.chaos.runtimes.sim.invariants.watch import InvariantChecker
from squall.chaos.runtimes.sim.invariants.writes import Written, note_writes
from squall.chaos.runtimes.sim.kernel import Deadlock
from squall.chaos.runtimes.sim.offsets import OffsetTracer
from squall.chaos.runtimes.sim.preload import preload_modules
from squall.chaos.runtimes.sim.runtime import SimRuntime
from squall.chaos.runtimes.sim.world import SimWorld
from squall.checkers.in_memory import RunJudgement, judge_bytes
from squall.checkers.plan_facts import facts_of
from squall.checkers.simulated import seal_of
from squall.checkers.verdict import INVALID, UNKNOWN, Verdict
from squall.checkers.verdict_inputs import WorkloadFacts
from squall.workloads import payload

MUST_SUCCEED = (
    "start the cluster",
    "create topics",
    "heal",
    "converge",
    "writes after healing",
    "reads after healing",
    "final reads",
)
"""Lists the phases in which no fault is active. If one of them fails, the broker has a bug."""
START_S, STOP_S = 120.0, 120.0
"""Give the virtual seconds that starting and stopping may take, beside the plan's own time."""


ENOUGH_EVERY = 16
"""Gives how many events lie between two calls of `enough`, by which the caller can end a simulation early."""

QUIET_TRIES, QUIET_S = 5, 2.0
"""Give the most pauses before the final checks, and the length of one, in s. Followers learn the final high watermark
in one of them. More are needed only while a coordinator writes to its log.
"""


class _SimulatedRun:
    """Represents one simulation in progress."""

    def __init__(
        self,
        plan: Plan,
        written: Written,
        connections: ConnectionOrderWatch,
        calls: BrokerCallObserver,
        *,
        messages: bool,
        stop_at_first: bool,
        enough: Callable[[], bool],
    ) -> None:
        self.plan, self.stop_at_first, self.enough = plan, stop_at_first, enough
        self.acks = plan.workload.traffic().acks
        self.min_isr = facts_of(plan.model_dump(mode="json", exclude={"operations"})).configuration.min_isr
        self.world = SimWorld(plan.seed)
        self.world.window = plan.cluster.window_kib * 1024
        self.world.frames_matter = messages or any(FaultTrait.NEEDS_FRAMES in fault.traits for fault in plan.timeline())
        if messages:
            self.world.messages = []
            self.world.kernel.after_event.append(OffsetTracer(self.world).look)
        zones = zone_names(plan.workload.zones)
        settings, voters = dict(plan.cluster.settings), choose_controllers(plan.nodes, plan.cluster.voters)
        self.runtime = SimRuntime(self.world, nodes=plan.nodes, zones=zones, settings=settings, controllers=voters)
        self.watch = InvariantChecker(self.world, written=written, connections=connections, calls=calls)
        self.store = _DamageReportingRunStore(f"sim-seed{plan.seed}", plan, self.watch.damaged)
        self.run: Run | None = None
        self.scope = trio.CancelScope()
        self.looks = 0
        self.stuck: list[str] = []
        self.deadlock: str | None = None
        self.endless = self.over = False
        self.cut: str | None = None
        """Describes a step that the simulated cluster did not carry out, such as a start. Usually a bug of the broker
        is the reason, and not one of the harness.
        """
        self.trouble: str | None = None

    # Reports of the run, as `squall.chaos.runs.run.RunObserver`.

    def acknowledged(self, topic: str, partition: int, offset: int, value: int) -> None:
        """Pass an acknowledged record to the invariants."""
        self.watch.acknowledged(topic, partition, offset, payload.beginning(value), self.acks, self.min_isr)

    def stuck_now(self) -> list[str]:
        """Return why the cluster does not converge, as the invariants see it."""
        self.stuck = list(self.watch.stuck())
        return self.stuck

    def after_event(self) -> None:
        """Check, after each event, the invariants of the nodes that the event may have changed."""
        kernel = self.world.kernel
        dirty_nodes = None if kernel.all_dirty else kernel.dirty_nodes
        # First of all: after SimulationTimeout the simulation still has to come to its end.
        kernel.all_dirty, kernel.dirty_nodes = False, set()
        self.looks += 1
        if not self.looks % ENOUGH_EVERY and self.enough():
            raise SimulationTimeout
        self.watch.look(dirty_nodes)
        if self.world.violations and self.stop_at_first:
            # Cancelled, not raised: the run then still closes its history, which is judged.
            self.scope.cancel()

    async def main(self) -> None:
        """Carry out the run, until it ends or an invariant is broken."""
        limits = self.plan.limits
        # A final reader has at least `stuck_s`, and so have all live readers together.
        reads_s = 5 * (limits.final_read_s + limits.stuck_s)
        most_s = START_S + self.plan.warmup_s + self.plan.time_s + 3 * limits.converge_s + limits.stuck_s + reads_s
        self.run = Run(self.plan, self.store, self.runtime, NullProgress(), "", invariants=_InvariantObserver(self))
        with self.scope:
            with trio.move_on_after(most_s + STOP_S) as whole:
                await self.run.go()
            self.endless = whole.cancelled_caught
        self.over = True

    def simulate(self) -> None:
        """Simulate to the end, however it ends. Raise nothing but an interruption."""
        self.world.kernel.after_event.append(self.after_event)
        try:
            self.world.kernel.simulate(self.plan.seed, self.main)
        except BaseException as error:
            interruption = interruption_of(error)
            if interruption is None:
                self._failed(error)  # a failure of the harness says nothing of the broker
        else:
            interruption = None
        # Not raised inside the `except`: its context would be an error that contains it.
        if interruption is not None:
            raise interruption

    def _failed(self, error: BaseException) -> None:
        dead = _find(error, Deadlock)
        if dead is not None:
            if self.over:
                return  # nothing is left to happen
            self.deadlock = str(dead)
        elif self.world.violations and self.stop_at_first:
            return  # after a cancellation any error may follow
        elif isinstance(trouble := gravest_error(error), HarnessError):
            self.cut = str(trouble)
        else:
            self.trouble = traceback_text(error)


class _InvariantObserver:
    """Passes the run's reports to the simulation's invariants, as a `RunObserver`."""

    def __init__(self, sim: _SimulatedRun) -> None:
        self.acknowledged, self.stuck = sim.acknowledged, sim.stuck_now
        self.served = sim.watch.served
        self._watch, self._world = sim.watch, sim.world

    async def settle(self) -> None:
        """Let the invariants check the converged cluster."""
        for _ in range(QUIET_TRIES):
            await trio.sleep(QUIET_S)
            # Time-outs of transactions and offsets pass even now, and coordinators write that down.
            if not coordinators_write(self._watch.partitions.values()):
                break
        self._watch.final()

    def seals(self) -> Mapping[str, int]:
        """Return the CRC-32 of the violations' file, if there are violations."""
        violations = self._world.violations
        return {VIOLATIONS: seal_of([violation_json(each) for each in violations])} if violations else {}


class _DamageReportingRunStore(MemoryRunStore):
    """Stores the run's files. If a fault has damaged a node's disk, it also reports this node to the invariants."""

    def __init__(self, run_id: str, plan: Plan, damaged: Callable[..., None]) -> None:
        super().__init__(run_id)
        self._faults = {fault.id: fault for fault in plan.timeline()}
        self._damaged = damaged

    @override
    def fault(self, line: dict[str, Any]) -> None:
        super().fault(line)
        fault = self._faults[line["id"]]
        # A line is also written before the fault begins, when its nodes are not known yet.
        if line["began"] is not None and fault.traits & {FaultTrait.DAMAGES_FILES, FaultTrait.FORGETS_SYNCS}:
            for node in line["target"]["resolved"]:
                self._damaged(node, rotten=FaultTrait.DAMAGES_FILES in fault.traits)


class SimulationTimeout(BaseException):
    """Ends a simulation that takes too long by the real clock: the caller's `enough` (see `simulate`) returned True.
    This is no finding about the broker.
    """


def simulate(
    plan: Plan,
    *,
    mutant: str | None = None,
    messages: bool = False,
    stop_at_first: bool = True,
    enough: Callable[[], bool] = lambda: False,
) -> SimResult:
    """Run a plan in virtual time, and judge the run.

    mutant: a known bug to plant (id or name). messages: collect what was sent over the network, for diagrams.
    stop_at_first: end at the first broken invariant; otherwise collect all of them, and continue. enough: called now
    and then; once it returns True, SimulationTimeout is raised. Raise PreconditionError for an unknown mutant.
    Interruptions are raised; all other errors are in the result.
    """
    plan = concrete(plan.model_copy(update={"runtime": "sim"}))
    preload_modules()
    began = time.process_time()
    connections, calls = ConnectionOrderWatch(), BrokerCallObserver()
    # The mutant first: observers and `count_paths` wrap the functions that are in place, and must see the mutant's.
    with planted(mutant), note_writes() as written, connections.observing(), calls.observing():
        sim = _SimulatedRun(
            plan, written, connections, calls, messages=messages, stop_at_first=stop_at_first, enough=enough
        )
        with count_paths(sim.world.counts):
            sim.simulate()
    simulated = time.process_time()
    world, store = sim.world, sim.store
    if sim.run is not None:
        store.take_history(sim.run.fs)
    judgement, troubles = None, _troubles(sim)
    if sim.trouble is None:
        try:
            judgement = _judge(sim, troubles)
        except Exception as error:  # a checker that stops is no finding either
            sim.trouble = traceback_text(error)
    failure, reasons = failure_of(sim, judgement)
    verdict = INVALID if failure is not None else judgement.verdict.verdict if judgement else UNKNOWN
    if judgement is not None and failure is not None:
        judgement = replace(judgement, verdict=_as_invalid(judgement.verdict, reasons))
    anomalies = judgement.verdict.anomalies if judgement else ()
    return SimResult(
        plan=plan,
        digest=world.digest(),
        trace=world.trace,
        messages=world.messages,
        violations=list(world.violations),
        anomalies=tuple(dict.fromkeys(each.name for each in anomalies if each.permitted is False)),
        verdict=verdict,
        failure=failure,
        reasons=reasons or (judgement.verdict.reasons if judgement else ()),
        counts=rare_paths.count(world.trace, world.counts, _params_of_landed(sim)),
        sim_s=world.kernel.now,
        cpu_s=(ended := time.process_time()) - began,
        judging_cpu_s=ended - simulated,
        trouble=sim.trouble,
        mutant=mutant,
        judgement=judgement,
        run_files=_run_files(plan, store, sim.runtime.files),
    )


def planted(mutant: str | None) -> AbstractContextManager[None]:
    """Plant a mutant, a known bug, in the broker's code until the block ends. Does nothing for None."""
    if mutant is None:
        return nullcontext()
    from squall.chaos.mutants import find

    return find(mutant).planted()


def _params_of_landed(sim: _SimulatedRun) -> list[Mapping[str, Any]]:
    """Return the parameters of the faults that landed (took effect, with evidence)."""
    return [played.fault.params for played in sim.run.played if played.landed] if sim.run else []


def _run_files(
    plan: Plan, store: MemoryRunStore, nodes: Callable[[], Mapping[str, bytes]]
) -> Callable[[], Mapping[str, bytes]]:
    def files() -> Mapping[str, bytes]:
        store.plan(write_plan(plan))
        return {**store.files(), **nodes()}

    return files


def _judge(sim: _SimulatedRun, troubles: list[str]) -> RunJudgement:
    info = sim.run.info if sim.run else {}
    plan = sim.plan.model_dump(mode="python", exclude={"operations"})
    lines = [line.encode() for line in sim.store.faults]
    traces: dict[str, list[Mapping[str, Any]]] = {}
    for event in sim.world.trace:
        traces.setdefault(event["n"], []).append(event)
    return judge_bytes(
        sim.store.run_id,
        sim.store.history_bytes,
        b"".join(lines),
        plan,
        info=info,
        troubles=[*troubles, *audit(lines)],
        workload=WorkloadFacts(checks=sim.plan.workload.CHECKS, meant_for=sim.plan.workload.meant_for()),
        traces=traces,
    )


def _troubles(sim: _SimulatedRun) -> list[str]:
    """Return what ended the run early."""
    info: dict[str, Any] = sim.run.info if sim.run else {}
    found = []
    if "ended_ns" not in info:
        found.append("the run did not come to its end")
    # After a violation the run may have been ended on purpose.
    elif info.get("trouble") and not sim.world.violations:
        found.append(f"the harness had trouble: {info['trouble']}")
    return found


def failure_of(sim: _SimulatedRun, judgement: RunJudgement | None) -> tuple[FailureSignature | None, tuple[str, ...]]:
    """Return the failure that best describes the broker's bug, and sentences that explain it. The failure is None if no
    bug of the broker is known.

    If an invariant was broken and a broker crashed, the earlier of the two is returned: the other may follow from it.
    """
    broken = sim.world.violations
    lines = tuple(each.at(each.t - _load_began_s(sim)) for each in broken)
    for gone in sim.runtime.exits():
        if broken and broken[0].t < gone.t_ns / 1e9 - MONO_S:
            break
        # A broker whose end was meant by a fault, such as a failing disk, has not crashed.
        if not any(each["expected"] and each["t"] == gone.t_ns for each in _exits(sim)):
            name, said = _crash(gone.last_words)
            return FailureSignature("crash", name), (f"broker {gone.node} ended by itself: {said}", *lines)
    if broken:
        return FailureSignature("invariant", broken[0].name), lines
    if sim.deadlock is not None:
        return FailureSignature("deadlock", "nothing can happen any more"), (sim.deadlock, *sim.watch.stuck())
    # After a failure of the harness nothing that follows can be blamed on the broker.
    if sim.trouble is not None:
        return None, (sim.trouble.strip().splitlines()[-1],)
    if sim.endless:
        return FailureSignature("liveness", "the run does not end"), tuple(sim.watch.stuck())
    if sim.cut is not None and _phase(sim) in MUST_SUCCEED:
        return FailureSignature("liveness", f"cannot {_phase(sim)}"), (sim.cut, *sim.stuck)
    wrong = [each for each in judgement.verdict.anomalies if each.permitted is False] if judgement else []
    if any(each.name == "not-converged" for each in wrong):
        return FailureSignature("liveness", "not-converged"), tuple(sim.stuck)
    if wrong and judgement is not None:
        kind: Any = "liveness" if wrong[0].name.startswith("stuck-") else "anomaly"
        return FailureSignature(kind, wrong[0].name), judgement.verdict.reasons
    return None, ()


def _crash(output: str) -> tuple[str, str]:
    """Return the error of a crashed broker, found at the end of its `output`: its type with the innermost function, and
    its full text.
    """
    found = list(re.finditer(r"^[ |+-]*([A-Z][\w.]*)(?::|$)", output, re.MULTILINE))
    frames = re.findall(r'File "[^"]*?broker/[^"]*", line \d+, in (\w+)', output)
    if not found:
        return "without a word", output
    where = f" in {frames[-1]}" if frames else ""
    return f"{found[-1][1]}{where}", output[found[-1].start(1) :].strip()


def _load_began_s(sim: _SimulatedRun) -> float:
    """Return when the load with faults began, in virtual seconds since the start of the run. Plans count their times
    from this moment. Return 0 if the load never began.
    """
    if sim.run is None:
        return 0.0
    info = sim.run.info
    loads = [each["began"] for each in info["phases"] if each["name"] in ("load", "load with faults")]
    return (loads[0] - info["began_ns"]) / 1e9 if loads else 0.0


def _phase(sim: _SimulatedRun) -> str:
    """Return the phase in which the run was cut short."""
    names = [str(each["name"]) for each in sim.run.info["phases"]] if sim.run else []
    return next((name for name in reversed(names) if name != "stop the cluster"), "start the cluster")


def _exits(sim: _SimulatedRun) -> list[dict[str, Any]]:
    return list(sim.run.info.get("node_exits", ())) if sim.run else []


def _as_invalid(verdict: Verdict, reasons: tuple[str, ...]) -> Verdict:
    """Return the verdict, changed to `invalid`. `reasons`, such as broken invariants, are put before the verdict's own.
    """
    return replace(verdict, verdict=INVALID, reasons=tuple(dict.fromkeys([*reasons, *verdict.reasons])))


def _find(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    if isinstance(error, kind):
        return error
    for inside in getattr(error, "exceptions", ()):
        found = _find(inside, kind)
        if found is not None:
            return found
    return None


__all__ = ["FailureSignature", "HarnessError", "SimResult", "SimulationTimeout", "simulate"]
