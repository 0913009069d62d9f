"""Holds what all acts of the nemesis share: the fault being played, the runtime, the clock, and probes of links."""

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
from squall.chaos.errors import HarnessError, trouble_of
from squall.chaos.faults.deadline import ExtendableDeadline
from squall.chaos.faults.kind import Fault, FaultTrait
from squall.chaos.faults.shapes import Hit
from squall.chaos.faults.targets import ClusterSnapshot, UnresolvedTargetError
from squall.chaos.faults.timeouts import HEALED_WITHIN_S, MIDDLE, POLL_S
from squall.chaos.runtimes.contract import Evidence, Link, LinkFault, NodeState, ProbeResult, Runtime
from squall.chaos.runtimes.layout import choose_controllers
from squall.checkers import fault_traits
from squall.checkers.nemesis_log import SCHEMA
from squall.workloads.client.client import Client
from squall.workloads.control import LoadControls

T = TypeVar("T", int, Link)


@dataclass
class FaultExecution:
    """The course of one fault. Times are ns of the run's monotonic clock; None if that moment has not come yet."""

    fault: Fault
    resolved: tuple[int, ...] = ()
    zone: str = ""
    """The client zone that the fault hits; empty if it hits brokers."""
    link: Link | None = None
    """The one link that it hits instead of brokers."""
    view: ClusterSnapshot | None = None
    """What `resolved` was read from."""
    asked: int | None = None
    began: int | None = None
    on: int | None = None
    """Since when it is on everywhere; None where it takes effect as it begins."""
    ended: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    landed: bool = False
    error: str | None = None
    trigger: dict[str, Any] | None = None
    """The condition that the fault waited for, and what was seen when it became true."""

    @property
    def hit(self) -> tuple[Hit, ...]:
        """Targets whose links this fault affects: broker ids, a client zone, or one link."""
        if self.link is not None:
            return (self.link,)
        return (self.zone,) if self.zone else self.resolved

    def line(self) -> dict[str, Any]:
        """The fault's line of nemesis.jsonl."""
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
        """Leaders, ISRs, controller."""

    def lookout(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[ClusterSnapshot]]]:
        """While the block runs, all brokers are asked. Yields what `view` is, from whichever of them answer."""


class FaultContext:
    """Holds what faults are played on, and records which fault holds which node or link.

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
        """The workload's clients, once there are any."""
        self._claims: dict[int, dict[int, Fault]] = {}
        self._starting: dict[int, trio.Event] = {}
        """Nodes that a fault is starting now. The event is set when the start is over."""
        self._leaving: dict[int, trio.Event] = {}
        """Nodes that a fault is taking down now. The event is set when that is over."""
        self._down: dict[int, set[int]] = {}
        """Node id -> ids of the faults that hold it down. The last of them to end starts the node."""
        self._on_links: dict[Link, dict[str, int]] = {}
        """Link -> name of each fault that is on it -> id of that fault."""
        self._forgetful: set[int] = set()
        """Nodes whose disks may have forgotten what was synced."""
        self._proving: Counter[Link] = Counter()
        """Links -> how many faults are about to show themselves on it, or that it answers again."""
        self._env, self._seed, self._record = env, seed, record

    def now_ns(self) -> int:
        """The run's monotonic clock."""
        return now_ns(self._env)

    def rng(self, p: FaultExecution, purpose: str) -> Random:
        """The random stream of one fault for one purpose. Streams do not influence each other."""
        return rng_for(self._seed, purpose, p.fault.id)

    async def sleep(self, seconds: float) -> None:
        """Wait this long on the run's clock."""
        await trio.sleep(seconds)

    def within(self, seconds: float) -> trio.CancelScope:
        """A scope that is cancelled after this long, without an error."""
        return trio.move_on_after(seconds)

    def shielded(self) -> trio.CancelScope:
        """A scope for undoing a fault: the end of the run does not cancel it."""
        return trio.CancelScope(shield=True)

    def note(self, p: FaultExecution) -> None:
        """Write the fault's present state to nemesis.jsonl."""
        self._record(p.line())

    def begun(self, p: FaultExecution) -> None:
        """The fault begins now."""
        p.began = self.now_ns()
        if FaultTrait.FORGETS_SYNCS in p.fault.traits:
            self._forgetful.update(p.resolved)
        self.note(p)

    async def begin_on_running_nodes(
        self, p: FaultExecution, *, joins: NodeState = NodeState.RUNNING
    ) -> tuple[int, ...]:
        """Begin the fault on its nodes, which must run. Raise UnresolvedTargetError if a node is down or paused
        already: hitting that node again would prove nothing.

        If an earlier fault is starting a node, wait for the end of the start, which is part of the earlier fault's
        evidence.

        joins: PAUSED or DOWN. A node that other faults hold in this state is accepted, and is held for longer. With
        DOWN, a node that is going down is waited for, too. Returns the accepted nodes.
        """
        turning = (self._starting, self._leaving) if joins is NodeState.DOWN else (self._starting,)
        while busy := [each[node] for each in turning for node in p.resolved if node in each]:
            await busy[0].wait()
        joined = []
        for node in p.resolved:
            state = self.runtime.state(node)
            if state is NodeState.RUNNING:
                if node not in self._leaving:
                    self._down.pop(node, None)  # who has it down is mistaken: it was started meanwhile
                continue
            if state is not joins or not self.holders(p, node, state):
                by = ", ".join(f"fault {number} ({action})" for number, action in self.others(p, node).items())
                raise UnresolvedTargetError(f"node {node} is {state.value} already" + (f", by {by}" if by else ""))
            joined.append(node)
        self.claim(p)
        for node in joined if joins is NodeState.DOWN else ():
            self._down.setdefault(node, set()).update((p.fault.id, *self.holders(p, node, joins)))
        self.begun(p)
        return tuple(joined)

    def check_metadata_survives(self, nodes: Sequence[int]) -> None:
        """Raise UnresolvedTargetError if a power loss of these nodes could destroy committed metadata, because a
        majority of the quorum's voters would lose what their disks may have forgotten. No cluster survives that, and no
        verdict could tell.
        """
        voters = choose_controllers(self.runtime.nodes)
        lost = self._forgetful.intersection(nodes, voters)
        if len(lost) > len(voters) // 2:
            which = ", ".join(map(str, sorted(lost)))
            raise UnresolvedTargetError(
                f"an fsync of node {which} has failed: of the metadata there may be no other durable copy"
            )

    def is_turning(self, node: int) -> bool:
        """Return whether a fault is starting the node or taking it down at this moment."""
        return node in self._starting or node in self._leaving

    def holders(self, p: FaultExecution, node: int, state: NodeState) -> dict[int, str]:
        """Fault id -> action of the other faults that hold the node down, or paused.

        A broker ends by itself when its disk fails or at its crash point. The fault behind that has not claimed it
        yet; if no other fault claims the node, it is that one.
        """
        if state is NodeState.PAUSED:
            return self.others(p, node, FaultTrait.PAUSES)
        known = self._down.get(node, set()) - {p.fault.id}
        return {n: action for n, action in self.others(p, node).items() if n in known} or (
            self.others(p, node, FaultTrait.ENDS_BY_ITSELF)
        )

    def claim(self, p: FaultExecution, nodes: Sequence[int] | None = None) -> None:
        """From now on the fault is on at its nodes. nodes: only at these of them."""
        for node in p.resolved if nodes is None else nodes:
            self._claims.setdefault(node, {})[p.fault.id] = p.fault

    def others(self, p: FaultExecution, node: int, trait: FaultTrait | None = None) -> dict[int, str]:
        """Fault id -> action of the other faults that are on at the node. trait: only faults with this trait.

        The end of one fault must not end another one.
        """
        claims = self._claims.get(node, {})
        found = {number: fault for number, fault in claims.items() if number != p.fault.id}
        return {number: fault.action for number, fault in found.items() if trait is None or trait in fault.traits}

    def others_alike(self, p: FaultExecution, node: int) -> dict[int, str]:
        """The faults of `others` that have the same action as this one."""
        return {number: action for number, action in self.others(p, node).items() if action == p.fault.action}

    def release(self, p: FaultExecution, nodes: Sequence[int] | None = None) -> None:
        """The fault has ended at these nodes. nodes: None means all of them."""
        for node, claims in self._claims.items():
            if nodes is None or node in nodes:
                claims.pop(p.fault.id, None)
                self._down.get(node, set()).discard(p.fault.id)

    @contextmanager
    def taking_down(self, p: FaultExecution, nodes: Sequence[int]) -> Iterator[None]:
        """Around the act that takes nodes down. From its beginning on, the fault holds them down. Another fault that
        wants to take one of them down waits until the act is over.
        """
        over = trio.Event()
        self._leaving |= dict.fromkeys(nodes, over)
        self.hold_down(p, nodes)
        try:
            yield
        finally:
            for node in nodes:
                if self._leaving.get(node) is over:
                    del self._leaving[node]
            over.set()

    def hold_down(self, p: FaultExecution, nodes: Sequence[int]) -> None:
        """The fault holds these nodes down: no other fault starts them before it has ended."""
        for node in nodes:
            self._down.setdefault(node, set()).add(p.fault.id)

    async def release_down(self, p: FaultExecution, nodes: Sequence[int]) -> list[Any]:
        """The fault no longer holds these nodes down. Those that no other fault holds down are started, all together.

        Returns evidence for each node: of its start, or who holds it down (`held_by`) and its `state`.
        """
        told: dict[int, Any] = {}
        for node in nodes:
            holding = self._down.get(node, set())
            state = self.runtime.state(node).value if p.fault.id in holding else "started meanwhile"
            holding.discard(p.fault.id)
            if holding:
                told[node] = {"node": node, "held_by": sorted(holding), "state": state}
        free = [node for node in nodes if node not in told]
        told.update(zip(free, await self.start_all(free), strict=True))
        return [told[node] for node in nodes]

    async def start_all(self, nodes: Sequence[int]) -> list[Any]:
        """Start nodes together, because one alone may wait for a quorum that needs the others. Evidence of each."""
        return await self.together(self.up, nodes)

    async def up(self, node: int) -> Any:
        """Start a node. No fault holds it down after that. Returns evidence of the start."""
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
        """Return whether every node is up again, or is still held down by another fault."""
        return all(each.get("ready_ns") or each.get("state") == NodeState.DOWN for each in up)

    @asynccontextmanager
    async def started_after_error(self, p: FaultExecution) -> AsyncIterator[None]:
        """Start the nodes that are down if the block, a fault's acts before its end, raises HarnessError. Nothing else
        would start them before the cluster is healed.
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
        """Do an act on all nodes or links at the same time; the answers in their order. Raises the first HarnessError.
        """
        found: dict[T, Any] = {}

        async def one(each: T) -> None:
            found[each] = await act(each)

        try:
            async with trio.open_nursery() as nursery:
                for each in hit:
                    nursery.start_soon(one, each)
        except BaseExceptionGroup as group:
            trouble = trouble_of(group)
            if isinstance(trouble, HarnessError):
                raise trouble from None
            raise
        return [found[each] for each in hit]

    def left_s(self, p: FaultExecution) -> float:
        """Seconds left of the fault's duration, which counts from when it is on; negative after its end."""
        assert p.began is not None
        return p.fault.duration_s - (self.now_ns() - (p.on or p.began)) / 1e9

    async def rest(self, p: FaultExecution, look: Callable[[], Awaitable[None]] | None = None) -> None:
        """Keep the fault on until its duration is over. Raises HarnessError if it took longer than that to land. look:
        as of `outlast`.
        """
        self.check_landed(p, self.now_ns())
        await self.outlast(p, look)

    async def outlast(self, p: FaultExecution, look: Callable[[], Awaitable[None]] | None = None) -> None:
        """Wait for the fault's end. look: is called once in between, at a moment that the plan's seed decides: what
        undoes a fault for a while and puts it on again cannot know the moment.
        """
        if look is not None:
            await trio.sleep(max(0.0, self.left_s(p)) * self.rng(p, "middle").uniform(*MIDDLE))
            await look()
        await trio.sleep(max(0.0, self.left_s(p)))

    async def activities(self, nodes: Sequence[int]) -> list[Any]:
        """`Runtime.activity` of each node, in their order."""
        return await self.together(self.runtime.activity, nodes)

    def check_landed(self, p: FaultExecution, at_ns: int) -> None:
        """Raise HarnessError if the fault, on since `at_ns`, took longer to land than it was to last."""
        assert p.began is not None
        spent_s = (at_ns - (p.on or p.began)) / 1e9
        if spent_s > p.fault.duration_s:
            raise HarnessError(f"it took {spent_s:.1f} s to land, longer than its {p.fault.duration_s:g} s")

    async def put(self, p: FaultExecution, name: str, link: Link, fault: LinkFault) -> Evidence:
        """Put the fault on a link, under a name that is unique on this link."""
        self._on_links.setdefault(link, {})[name] = p.fault.id
        return await self.runtime.fault_link(name, link, fault)

    async def put_all(self, p: FaultExecution, name: str, faults: Mapping[Link, LinkFault]) -> None:
        """Put the fault on all its links at once. From when it is on everywhere, its duration counts."""

        async def one(link: Link) -> Evidence:
            return await self.put(p, name, link, faults[link])

        await self.together(one, list(faults))
        p.on = self.now_ns()

    async def lift_all(self, name: str, links: Sequence[Link]) -> list[Evidence]:
        """Take the fault of this name off all links at once, whatever ends the run. Raises the first HarnessError, but
        tries every link.
        """

        async def one(link: Link) -> Evidence | HarnessError:
            try:
                return await self.lift(name, link)
            except HarnessError as trouble:
                return trouble

        with trio.CancelScope(shield=True):
            told = await self.together(one, links)
        for each in told:
            if isinstance(each, HarnessError):
                raise each
        return told

    async def lift(self, name: str, link: Link) -> Evidence:
        """Take the fault of this name off a link."""
        try:
            return await self.runtime.heal_link(name, link)
        finally:
            self._on_links.get(link, {}).pop(name, None)

    def company(self, p: FaultExecution, link: Link) -> frozenset[int]:
        """Ids of the other faults that are on the link or on its target now. Two measurements over a link can be
        compared only if this set was the same for both.
        """
        on_link = {number for number in self._on_links.get(link, {}).values() if number != p.fault.id}
        return frozenset(on_link | set(self.others(p, link.target)))

    def any_other_on(self, p: FaultExecution) -> bool:
        """Return whether any other fault is on, at a node or at a link."""
        on = [number for claims in self._claims.values() for number in claims]
        on += [number for names in self._on_links.values() for number in names.values()]
        return any(number != p.fault.id for number in on)

    @contextmanager
    def proving(self, links: Sequence[Link]) -> Iterator[None]:
        """Around probes that show a fault on these links, or its end. Faults that wait for these links wait for it."""
        self._proving.update(links)
        try:
            yield
        finally:
            self._proving.subtract(links)

    def is_proving(self, links: Sequence[Link]) -> bool:
        """Return whether some fault is about to show its effect, or its end, on one of these links."""
        return any(self._proving[link] for link in links)

    async def probe(self, link: Link) -> ProbeResult:
        """One probe over a link, with the usual time limit."""
        return await self.runtime.probe(link, timeout_s=self.probe_timeout_s)

    async def probes(self, links: Sequence[Link], timeout_s: float | None = None) -> list[ProbeResult]:
        """Send one probe over each link, all at the same time. timeout_s: None means the usual time limit."""
        return await self.each(links, partial(self.runtime.probe, timeout_s=timeout_s or self.probe_timeout_s))

    async def each(self, links: Sequence[Link], measure: Callable[[Link], Awaitable[ProbeResult]]) -> list[ProbeResult]:
        """Measure each link, all at the same time; the answers in the order of the links."""
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
        """Probe each healed link until it has answered once, or the time is over, which counts anew as long as other
        faults are on it. Returns the last answers, good or bad: what others do to a link afterwards does not count. A
        fault that waits for one of these links waits for this, too. measure: None means a probe.
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
    """An Env's monotonic clock in ns."""
    return int(env.mono() * 1e9)
