"""Plays a plan's faults against a runtime, proves that each fault landed, and always undoes it.

The nemesis writes a line for every fault to `nemesis.jsonl` before the first fault, when the fault begins, and when it
has ended. Of the lines with the same id, the last one counts. A line holds the plan's request, the nodes to which its
target resolved, begin and end by the run's monotonic clock, and the evidence. A fault without evidence makes the run
`unknown`; no fault is skipped in silence.

Faults may overlap. Each fault on a link or a disk has a name there, so that it can be removed while others stay. A node
that several faults hold down or paused stays so until the last of them ends. Any other fault that would hit such a node
does not land, and its line says why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import trio

from squall.broker.env import Env
from squall.chaos.errors import HarnessError
from squall.chaos.faults import triggers
from squall.chaos.faults.context import ClusterMonitor, FaultContext, FaultExecution
from squall.chaos.faults.deadline import ExtendableDeadline
from squall.chaos.faults.kind import Fault
from squall.chaos.faults.targets import ClusterSnapshot, UnresolvedTargetError, link_of, of_clients, resolve, zone_of
from squall.chaos.faults.timeouts import HEALED_WITHIN_S, POLL_S, probe_timeout_s
from squall.chaos.runtimes.capabilities import counts_calls
from squall.chaos.runtimes.contract import Runtime
from squall.workloads.control import LoadControls


def in_short(words: str) -> str:
    """Shorten an error message of three or more lines, such as a broker's output, to its first and its final line."""
    lines = [line for line in words.strip().splitlines() if line.strip()]
    return words.strip() if len(lines) < 3 else f"{lines[0]} ... {lines[-1].strip()}"


class UpcomingFault(NamedTuple):
    """Is a fault that has not begun. `in_s`: seconds until it is due; 0 or less while it begins or waits for its
    condition.
    """

    fault: Fault
    in_s: float


class Nemesis:
    """Injects the faults of a plan at their times. cluster: reports leaders and ISRs. record: takes each line of
    nemesis.jsonl. probe_ms: how long the slowest probe took before the load, in ms; the time-out of probes depends on
    it.
    """

    def __init__(
        self,
        runtime: Runtime,
        faults: Sequence[Fault],
        seed: int,
        *,
        env: Env,
        cluster: ClusterMonitor,
        record: Callable[[dict[str, Any]], None],
        probe_ms: float | None = None,
    ) -> None:
        self._context = FaultContext(runtime, env, seed, record, cluster, probe_timeout_s(probe_ms))
        self.played = [FaultExecution(fault) for fault in faults]
        self._since_ns: int | None = None
        """Gives when playing began, in ns; None before that."""

    @property
    def clients(self) -> LoadControls | None:
        """Controls the workload's clients, or is None if there is no workload."""
        return self._context.clients

    @clients.setter
    def clients(self, controls: LoadControls) -> None:
        self._context.clients = controls

    def coming(self) -> list[UpcomingFault]:
        """Return the faults that have not begun, the next one first; [] before playing began. May be called at any
        time.
        """
        if self._since_ns is None:
            return []
        past_s = (self._context.now_ns() - self._since_ns) / 1e9
        waiting = [p for p in self.played if p.began is None and p.ended is None]
        return sorted((UpcomingFault(p.fault, p.fault.at_s - past_s) for p in waiting), key=lambda each: each.in_s)

    async def play(self) -> None:
        """Play all faults at their times, counted from now. Return when the last fault has ended."""
        self._since_ns = self._context.now_ns()
        for p in self.played:
            # Every planned fault has a line from the start: one that never begins must not be missing from
            # nemesis.jsonl.
            self._context.note(p)
        async with trio.open_nursery() as nursery:
            for p in self.played:
                nursery.start_soon(self._play_one, p)

    async def _play_one(self, p: FaultExecution) -> None:
        context = self._context
        await trio.sleep(p.fault.at_s)
        p.asked = context.now_ns()
        try:
            if p.fault.when:
                await self._resolve_when_true(p)
            else:
                await self._resolve(p, context.cluster.view)
            await p.fault.kind.play(context, p)
        except (UnresolvedTargetError, HarnessError, trio.TooSlowError) as trouble:
            why = in_short(str(trouble)) or f"the cluster did not say within {HEALED_WITHIN_S:g} s who leads what"
            p.error = why
            p.landed = False
        finally:
            context.release(p)
            p.ended = p.ended or context.now_ns()
            context.note(p)

    async def _resolve_when_true(self, p: FaultExecution) -> None:
        """Wait for the fault's condition, then find its target. The cluster's state is merged from the answers of all
        brokers, so a paused broker delays nothing.
        """
        parts = triggers.parse(f"fault {p.fault.id}", p.fault.when)
        async with AsyncExitStack() as stack:
            if any(triggers.looks_at_cluster(part) for part in parts):
                newest = await stack.enter_async_context(self._context.cluster.lookout())
                await self._until_true(p, parts, newest)
            else:
                # These parts are no facts of the cluster. Asking all brokers all the time would only add load until
                # they are true.
                await self._until_true(p, parts, self._context.cluster.view)
                newest = await stack.enter_async_context(self._context.cluster.lookout())
            await self._resolve(p, newest)

    async def _resolve(self, p: FaultExecution, view: Callable[[], Awaitable[ClusterSnapshot]]) -> None:
        """Find the target's nodes. Retry for a while, and longer if other faults are active. Raise
        UnresolvedTargetError if no node fits the target's name.
        """
        context, patience = self._context, ExtendableDeadline(lambda: self._context.any_other_on(p))
        p.zone = zone_of(p.fault.target)
        while True:
            with trio.fail_after(HEALED_WITHIN_S):
                p.view = await view()
            if p.zone or of_clients(p.fault.target):
                return
            try:
                # A fresh stream in each attempt: the draw must not depend on how often the cluster was asked.
                p.link = link_of(p.fault.target, p.view, context.rng(p, "target"))
                if p.link is not None:
                    return
                p.resolved = resolve(p.fault.target, p.view, context.rng(p, "target"))
                return
            except UnresolvedTargetError:
                if patience.is_over():
                    raise
            await trio.sleep(POLL_S)

    async def _until_true(
        self, p: FaultExecution, parts: Sequence[triggers.Condition], view: Callable[[], Awaitable[ClusterSnapshot]]
    ) -> None:
        """Wait until all parts of the fault's condition are true in one look at the cluster. Raise HarnessError if that
        takes too long.
        """
        context, fault = self._context, p.fault
        p.trigger = {"when": fault.when, "within_s": fault.within_s, "seen": None, "true_ns": None}
        with trio.move_on_after(fault.within_s):
            while True:
                seen = await view() if any(map(triggers.looks_at_cluster, parts)) else None
                found = [self._evaluate(part, seen) for part in parts]
                p.trigger["seen"] = found[0][0] if len(found) == 1 else [what for what, _ in found]
                if all(true for _, true in found):
                    p.trigger["true_ns"] = context.now_ns()
                    return
                await trio.sleep(triggers.poll_s(parts))
        raise HarnessError(f"{fault.when!r} did not come true within {fault.within_s:g} s")

    def _evaluate(self, part: triggers.Condition, view: ClusterSnapshot | None) -> tuple[int | str | None, bool]:
        """Return the current value that one part of a condition tests, and whether that part is true. view: the
        cluster's state; None if no part of the condition needs it.
        """
        if isinstance(part, triggers.AfterFaultCondition):
            other = next(each for each in self.played if each.fault.id == part.fault)
            at = other.ended if part.ended else other.began
            return at, at is not None
        if isinstance(part, triggers.StateCondition):
            assert view is not None, "the cluster is looked at for states"
            state = view.states.get(part.id)
            return state, part.holds(state)
        runtime = self._context.runtime
        seen = triggers.seen_of(part, view, runtime.calls if counts_calls(runtime) else None)
        return seen, part.holds(seen)
