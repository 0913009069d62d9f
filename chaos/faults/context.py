"""Defines what all actions of the nemesis share: the fault being played, the runtime, the clock, probes of links."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar

import trio

from squall.broker.env import Env
from squall.chaos.draws import rng_for
from squall.chaos.errors import HarnessError, gravest_error
from squall.chaos.faults.deadline import ExtendableDeadline
from squall.chaos.faults.kind import Fault, FaultTrait
from squall.chaos.faults.shapes import Hit
from squall.chaos.faults.targets import ClusterSnapshot, UnresolvedTargetError
from squall.chaos.faults.timeouts import HEALED_WITHIN_S, MIDDLE, POLL_S
from squall.chaos.runtimes.contract import Evidence, Link, LinkFault, NodeState, ProbeResult, Runtime
from squall.checkers import fault_traits
from squall.checkers.nemesis_log import SCHEMA
from squall.workloads.client.client import Client
from squall.workloads.control import LoadControls

T = TypeVar("T", int, Link)


@dataclass
class FaultExecution:
    """Records how one fault is played. Times are ns of the run's monotonic clock, or None if not yet reached."""

    fault: Fault
    resolved: tuple[int, ...] = ()
    zone: str = ""
    """Names the client zone that the fault hits; empty if the fault hits brokers."""
    link: Link | None = None
    """Is the single link that the fault hits instead of brokers, or None."""
    view: ClusterSnapshot | None = None
    """Is the cluster's state in which the fault's target was looked up."""
    asked: int | None = None
    began: int | None = None
    on: int | None = None
    """Gives when the fault became active on all targets, in ns; None: it takes effect as soon as it begins."""
    ended: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    landed: bool = False
    error: str | None = None
    trigger: dict[str, Any] | None = None
    """Holds the condition that the fault waited for, and what was observed when the condition became true."""

    @property
    def hit(self) -> tuple[Hit, ...]:
        """Returns the targets whose links this fault affects: broker ids, a client zone, or one link."""
        if self.link is not None:
            return (self.link,)
        return (self.zone,) if self.zone else self.resolved

    def line(self) -> dict[str, Any]:
        """Return the fault's line of nemesis.jsonl."""
        f, kind = self.fault, self.fault.kind
        links = [str(link) for link in self.evidence.get("links", ())]
        hit = [str(each) if isinstance(each, Link) else each for each in self.hit]
        return {
            "schema": SCHEMA,
            "id": f.id,
            "action": f.action,
            "fault_class": kind.fault_class,
            "traits": sorted(trait.value for trait in f.traits if trait in fault_traits.ALL),
            "target": {"asked": f.target, "resolved": hit},
            "params": dict(f.params),
            "planned": {"at_s": f.at_s, "duration_s": f.duration_s},
            "asked": self.asked,
            "began": self.began,
            **({"on": self.on} if self.on is not None else {}),
            "ended": self.ended,
            "evidence": self.evidence if self.landed else None,
            "seen": None if self.landed else self.evidence,
            "error": self.error,
            "words": {
                "fault": f"{f.action}{kind.describe_params(f.params)}",
                "evidence": kind.describe_evidence(self.evidence) if self.evidence else "",
                "nodes": {str(node): kind.describe_effect(f.params, node, links) for node in self.resolved},
            },
            **({"trigger": self.trigger} if self.trigger is not None else {}),
        }


class ClusterMonitor(Protocol):
    """Reports the cluster's state (`squall.chaos.runs.observer.ClusterObserver`)."""

    client: Client

    async def view(self) -> ClusterSnapshot:
        """Return leaders, ISRs and the controller as one broker reports them."""

    def lookout(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[ClusterSnapshot]]]:
        """Query all brokers while the block runs. Yield a function that returns leaders, ISRs and the controller,
        merged from the answers of all brokers that respond.
        """


class FaultContext:
    """Gives a fault the runtime, the run's clock and the cluster's state; records which fault holds which node or link.

    record: writes one line of nemesis.jsonl.
    """

    def __init__(
        self,
        runtime: Runtime,
        env: Env,
        seed: int,
        record: Callable[[dict[str, Any]], None],
        cluster: ClusterMonitor,
        probe_timeout_s: float,
    ) -> None:
        self.runtime, self.cluster, self.probe_timeout_s = runtime, cluster, probe_timeout_s
        self.clients: LoadControls | None = None
        """Controls the workload's clients; None before the workload has clients."""
        self._claims: dict[int, dict[int, Fault]] = {}
        self._starting: dict[int, trio.Event] = {}
        """Maps each node that a fault is starting now to an event, which is set when the start is over."""
        self._leaving: dict[int, trio.Event] = {}
        """Maps each node that a fault is taking down now to an event, which is set when the node is down."""
        self._down: dict[int, set[int]] = {}
        """Maps a node to the ids of the faults that hold it down. The last of these faults to end starts the node."""
        self._on_links: dict[Link, dict[str, int]] = {}
        """Maps a link to the names of the faults that are active on it, and each name to the fault's id."""
        self._forgetful: set[int] = set()
        """Holds the nodes whose disks may have forgotten synced data, because an fsync failed."""
        self._proving: Counter[Link] = Counter()
        """Counts for each link how many faults prove just now that they hit the link, or that it answers again."""
        self._env, self._seed, self._record = env, seed, record

    def now_ns(self) -> int:
        """Return the time of the run's monotonic clock, in ns."""
        return now_ns(self._env)

    def rng(self, p: FaultExecution, purpose: str) -> Random:
        """Return the random stream of one fault for one purpose. Streams do not influence each other."""
        return rng_for(self._seed, purpose, p.fault.id)

    async def sleep(self, seconds: float) -> None:
        """Wait this long on the run's clock."""
        await trio.sleep(seconds)

    def within(self, seconds: float) -> trio.CancelScope:
        """Return a scope that is cancelled after this many seconds, without an error."""
        return trio.move_on_after(seconds)

    def shielded(self) -> trio.CancelScope:
        """Return a scope in which a fault is undone: the end of the run does not cancel this scope."""
        return trio.CancelScope(shield=True)

    def note(self, p: FaultExecution) -> None:
        """Write the fault's present state to nemesis.jsonl."""
        self._record(p.line())

    def begun(self, p: FaultExecution) -> None:
        """Record that the fault begins now."""
        p.began = self.now_ns()
        if FaultTrait.FORGETS_SYNCS in p.fault.traits:
            self._forgetful.update(p.resolved)
        self.note(p)

    async def begin_on_running_nodes(
        self, p: FaultExecution, *, joins: NodeState = NodeState.RUNNING
    ) -> tuple[int, ...]:
        """Begin the fault on its nodes, which must run. Raise UnresolvedTargetError if a node is down or paused
        already: hitting that node again would prove nothing.

        If an earlier fault is starting a node, first wait: the start is evidence of that earlier fault.

        joins: if PAUSED or DOWN, also accept nodes that other faults keep in this state, and keep them so until this
        fault's end. If DOWN, first wait for nodes that another fault is taking down. Return the nodes that did not run.
        """
        turning = (self._starting, self._leaving) if joins is NodeState.DOWN else (self._starting,)
        while busy := [each[node] for each in turning for node in p.resolved if node in each]:
            await busy[0].wait()
        joined = []
        for node in p.resolved:
            state = self.runtime.state(node)
            if state is NodeState.RUNNING:
                # A node that is going down still runs: its hold is registered already, and must stay.
                if node not in self._leaving:
                    self._down.pop(node, None)  # the node was started meanwhile, so no fault holds it down
                continue
            if state is not joins or not self.holders(p, node, state):
                by = ", ".join(f"fault {number} ({action})" for number, action in self.others(p, node).items())
                raise UnresolvedTargetError(f"node {node} is {state.value} already" + (f", by {by}" if by else ""))
            joined.append(node)
        self.claim(p)
        for node in joined if joins is NodeState.DOWN else ():
            # A fault whose broker ended by itself has registered no hold. Without one, the end of this fault would
            # start the node too early.
            self._down.setdefault(node, set()).update((p.fault.id, *self.holders(p, node, joins)))
        self.begun(p)
        return tuple(joined)

    def check_metadata_survives(self, nodes: Sequence[int]) -> None:
        """Raise UnresolvedTargetError if a power loss of these nodes could destroy committed metadata. It could if an
        fsync has failed on most of the quorum's voters and all of these lose power: their data may not be durable. No
        cluster survives that, so the run would have no verdict.
        """
        voters = self.runtime.controllers
        lost = self._forgetful.intersection(nodes, voters)
        if len(lost) > len(voters) // 2:
            which = ", ".join(map(str, sorted(lost)))
            raise UnresolvedTargetError(
                f"an fsync of node {which} has failed: of the metadata there may be no other durable copy"
            )

    def is_turning(self, node: int) -> bool:
        """Return whether a fault is starting the node, or taking it down, at this moment."""
        return node in self._starting or node in self._leaving

    def holders(self, p: FaultExecution, node: int, state: NodeState) -> dict[int, str]:
        """Return the other faults that hold the node down or paused, as id -> name of the kind. state: down or paused.

        If no fault is registered as holding it down, return the faults that can make a broker's process end by itself.
        """
        if state is NodeState.PAUSED:
            return self.others(p, node, FaultTrait.PAUSES)
        known = self._down.get(node, set()) - {p.fault.id}
        return {n: action for n, action in self.others(p, node).items() if n in known} or (
            self.others(p, node, FaultTrait.ENDS_BY_ITSELF)
        )

    def claim(self, p: FaultExecution, nodes: Sequence[int] | None = None) -> None:
        """Register the fault as active at its nodes. nodes: only these of its nodes; None: all."""
        for node in p.resolved if nodes is None else nodes:
            self._claims.setdefault(node, {})[p.fault.id] = p.fault

    def others(self, p: FaultExecution, node: int, trait: FaultTrait | None = None) -> dict[int, str]:
        """Return the other faults active at the node, as id -> name of the kind. trait: only those with this trait.

        A fault calls this before it undoes something: the end of one fault must not end another fault.
        """
        claims = self._claims.get(node, {})
        found = {number: fault for number, fault in claims.items() if number != p.fault.id}
        return {number: fault.action for number, fault in found.items() if trait is None or trait in fault.traits}

    def others_alike(self, p: FaultExecution, node: int) -> dict[int, str]:
        """Return the other faults of the same kind that are active at the node, as id -> name of the kind."""
        return {number: action for number, action in self.others(p, node).items() if action == p.fault.action}

    def release(self, p: FaultExecution, nodes: Sequence[int] | None = None) -> None:
        """Record that the fault has ended at these nodes. nodes: None means all nodes."""
        for node, claims in self._claims.items():
            if nodes is None or node in nodes:
                claims.pop(p.fault.id, None)
                self._down.get(node, set()).discard(p.fault.id)

    @contextmanager
    def taking_down(self, p: FaultExecution, nodes: Sequence[int]) -> Iterator[None]:
        """Surround the action that takes nodes down. As soon as the block begins, the fault holds these nodes down.
        Another fault that wants to take down such a node waits until the block has ended.
        """
        over = trio.Event()
        self._leaving |= dict.fromkeys(nodes, over)
        self.hold_down(p, nodes)
        try:
            yield
        finally:
            for node in nodes:
                # A fault that does not wait for leaving nodes, such as power_loss, may have replaced the event
                # meanwhile.
                if self._leaving.get(node) is over:
                    del self._leaving[node]
            over.set()

    def hold_down(self, p: FaultExecution, nodes: Sequence[int]) -> None:
        """Record that the fault holds these nodes down: no other fault starts them before this fault has ended."""
        for node in nodes:
            self._down.setdefault(node, set()).add(p.fault.id)

    async def release_down(self, p: FaultExecution, nodes: Sequence[int]) -> list[Any]:
        """End this fault's hold on these nodes, and start those that no other fault holds down, all together.

        Return evidence for each node: of its start, or which faults still hold the node (`held_by`) and its `state`.
        """
        evidence: dict[int, Any] = {}
        for node in nodes:
            holding = self._down.get(node, set())
            # `up` drops all holds. A node that was started and taken down again since is no proof of this fault:
            # `came_back` accepts a held node only in the state "down".
            state = self.runtime.state(node).value if p.fault.id in holding else "started meanwhile"
            holding.discard(p.fault.id)
            if holding:
                evidence[node] = {"node": node, "held_by": sorted(holding), "state": state}
        free = [node for node in nodes if node not in evidence]
        evidence.update(zip(free, await self.start_all(free), strict=True))
        return [evidence[node] for node in nodes]

    async def start_all(self, nodes: Sequence[int]) -> list[Any]:
        """Start nodes together, because one alone may wait for a quorum. Return evidence for each node."""
        return await self.together(self.up, nodes)

    async def up(self, node: int) -> Any:
        """Start a node, and forget all faults that held it down. Return evidence of the start."""
        self._down.pop(node, None)
        over = self._starting[node] = trio.Event()
        try:
            return await self.runtime.start_node(node)
        finally:
            if self._starting.get(node) is over:
                del self._starting[node]
            over.set()

    @staticmethod
    def came_back(up: Sequence[Any]) -> bool:
        """Return whether each node is up again, or held down by another fault. up: the result of `release_down`."""
        return all(each.get("ready_ns") or each.get("state") == NodeState.DOWN for each in up)

    @asynccontextmanager
    async def started_after_error(self, p: FaultExecution) -> AsyncIterator[None]:
        """Surround the time in which the fault's nodes are down. If the block raises HarnessError, start the nodes that
        are down: nothing else would start them before the cluster is healed.
        """
        try:
            yield
        except HarnessError:
            await self.release_down(p, [node for node in p.resolved if self.runtime.state(node) is NodeState.DOWN])
            raise

    async def until_in_sync(self, nodes: Sequence[int]) -> None:
        """Wait until every partition with a replica on these nodes has a leader and a full ISR."""
        while not await self._in_sync(nodes):
            await trio.sleep(POLL_S)

    async def _in_sync(self, nodes: Sequence[int]) -> bool:
        view = await self.cluster.view()
        held = [name for name, replicas in view.replicas.items() if set(nodes) & set(replicas)]
        return all(view.leaders[name] >= 0 and set(view.replicas[name]) == set(view.isr[name]) for name in held)

    async def together(self, act: Callable[[T], Awaitable[Any]], hit: Sequence[T]) -> list[Any]:
        """Run an action on all nodes or links at once. Return the results in order; raise the first HarnessError."""
        found: dict[T, Any] = {}

        async def one(each: T) -> None:
            found[each] = await act(each)

        try:
            async with trio.open_nursery() as nursery:
                for each in hit:
                    nursery.start_soon(one, each)
        except BaseExceptionGroup as group:
            trouble = gravest_error(group)
            if isinstance(trouble, HarnessError):
                raise trouble from None
            raise
        return [found[each] for each in hit]

    def left_s(self, p: FaultExecution) -> float:
        """Return the seconds left of the fault's duration, from when it became active; negative after its end."""
        assert p.began is not None
        return p.fault.duration_s - (self.now_ns() - (p.on or p.began)) / 1e9

    async def rest(self, p: FaultExecution, look: Callable[[], Awaitable[None]] | None = None) -> None:
        """Raise HarnessError if the fault became active too late; else wait for its end. look: is called once during
        the wait, at a random moment, to check that the fault is still active.
        """
        self.check_landed(p, self.now_ns())
        await self.outlast(p, look)

    async def outlast(self, p: FaultExecution, look: Callable[[], Awaitable[None]] | None = None) -> None:
        """Wait for the fault's end. look: is called once before that, to check that the fault is still active. The
        plan's seed draws the moment, so that a fault that is active only at its begin and end is noticed.
        """
        if look is not None:
            await trio.sleep(max(0.0, self.left_s(p)) * self.rng(p, "middle").uniform(*MIDDLE))
            await look()
        await trio.sleep(max(0.0, self.left_s(p)))

    async def activities(self, nodes: Sequence[int]) -> list[Any]:
        """Return how much each node's OS process has done so far, such as its CPU time, in the order of the nodes."""
        return await self.together(self.runtime.activity, nodes)

    def check_landed(self, p: FaultExecution, at_ns: int) -> None:
        """Raise HarnessError if the fault, active since `at_ns`, took longer to become active than it should last."""
        assert p.began is not None
        spent_s = (at_ns - (p.on or p.began)) / 1e9
        if spent_s > p.fault.duration_s:
            raise HarnessError(f"it took {spent_s:.1f} s to land, longer than its {p.fault.duration_s:g} s")

    async def put(self, p: FaultExecution, name: str, link: Link, fault: LinkFault) -> Evidence:
        """Put the fault on a link, under a name that is unique on this link."""
        # First, so that a measurement of another fault that runs meanwhile knows that it has company.
        self._on_links.setdefault(link, {})[name] = p.fault.id
        return await self.runtime.fault_link(name, link, fault)

    async def put_all(self, p: FaultExecution, name: str, faults: Mapping[Link, LinkFault]) -> None:
        """Put the fault on all its links at once. The fault's duration counts from when it is active on all links."""

        async def one(link: Link) -> Evidence:
            return await self.put(p, name, link, faults[link])

        await self.together(one, list(faults))
        p.on = self.now_ns()

    async def lift_all(self, name: str, links: Sequence[Link]) -> list[Evidence]:
        """Remove the named fault from all links at once, even after a cancellation. Raise the first HarnessError."""

        async def one(link: Link) -> Evidence | HarnessError:
            try:
                return await self.lift(name, link)
            # An error here would cancel the healing of all other links.
            except HarnessError as trouble:
                return trouble

        with trio.CancelScope(shield=True):
            results = await self.together(one, links)
        for each in results:
            if isinstance(each, HarnessError):
                raise each
        return results

    async def lift(self, name: str, link: Link) -> Evidence:
        """Remove the fault of this name from a link."""
        try:
            return await self.runtime.heal_link(name, link)
        finally:
            self._on_links.get(link, {}).pop(name, None)

    def company(self, p: FaultExecution, link: Link) -> frozenset[int]:
        """Return the ids of the other faults that are active on the link or at its target now. Two measurements over a
        link can be compared only if this set was the same for both.
        """
        on_link = {number for number in self._on_links.get(link, {}).values() if number != p.fault.id}
        # Not at the source: the harness itself sends the probes over the link.
        return frozenset(on_link | set(self.others(p, link.target)))

    def any_other_on(self, p: FaultExecution) -> bool:
        """Return whether any other fault is active, at a node or on a link."""
        on = [number for claims in self._claims.values() for number in claims]
        on += [number for names in self._on_links.values() for number in names.values()]
        return any(number != p.fault.id for number in on)

    @contextmanager
    def proving(self, links: Sequence[Link]) -> Iterator[None]:
        """Mark these links, while the block runs, as used by probes that prove a fault or its end. A fault that would
        cut one of these links waits meanwhile.
        """
        self._proving.update(links)
        try:
            yield
        finally:
            self._proving.subtract(links)

    def is_proving(self, links: Sequence[Link]) -> bool:
        """Return whether some fault is proving its effect, or its end, on one of these links now."""
        return any(self._proving[link] for link in links)

    async def probe(self, link: Link) -> ProbeResult:
        """Send one probe over a link, with the usual time-out."""
        return await self.runtime.probe(link, timeout_s=self.probe_timeout_s)

    async def probes(self, links: Sequence[Link], timeout_s: float | None = None) -> list[ProbeResult]:
        """Send one probe over each link, all at the same time. timeout_s: None means the usual time-out."""
        return await self.each(links, partial(self.runtime.probe, timeout_s=timeout_s or self.probe_timeout_s))

    async def each(self, links: Sequence[Link], measure: Callable[[Link], Awaitable[ProbeResult]]) -> list[ProbeResult]:
        """Measure each link, all at the same time, and return the results in the order of the links."""
        found: dict[Link, ProbeResult] = {}

        async def one(link: Link) -> None:
            found[link] = await measure(link)

        async with trio.open_nursery() as nursery:
            for link in links:
                nursery.start_soon(one, link)
        return [found[link] for link in links]

    async def probes_until_ok(
        self, p: FaultExecution, links: Sequence[Link], measure: Callable[[Link], Awaitable[ProbeResult]] | None = None
    ) -> list[ProbeResult]:
        """Probe each healed link until it has answered once, or until the time-out. The time-out begins anew as long as
        other faults are active on a link that has not answered. Return the latest result of each link.

        A fault that would cut one of these links waits meanwhile. measure: probes one link; None: send one probe with
        the usual time-out.
        """
        measure, silent, found = measure or self.probe, list(links), dict[Link, ProbeResult]()
        waiting = ExtendableDeadline(lambda: any(self.company(p, link) for link in silent), HEALED_WITHIN_S)
        with self.proving(links):
            while True:
                found |= dict(zip(silent, await self.each(silent, measure), strict=True))
                silent = [link for link in silent if not found[link].ok]
                if not silent or waiting.is_over():
                    return [found[link] for link in links]
                await trio.sleep(POLL_S)


def now_ns(env: Env) -> int:
    """Return the time of an Env's monotonic clock, in ns."""
    return int(env.mono() * 1e9)
