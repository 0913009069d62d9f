"""What the acts of the nemesis have in common: one fault as it goes, the runtime, the clock, and probing of links."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol

import trio

from broker.env import Env
from chaos.draws import rng_for
from chaos.errors import HarnessError, trouble_of
from chaos.faults.kind import Fault, Trait
from chaos.faults.pace import HEALED_WITHIN_S, POLL_S, PROBE_TIMEOUT_S
from chaos.faults.targets import ClusterView, Unresolved
from chaos.runtimes.contract import Evidence, Link, LinkFault, NodeState, Probe, Runtime
from checkers import fault_traits
from checkers.nemesis_log import SCHEMA
from workloads.client.client import Client
from workloads.control import Controls


@dataclass
class Played:
    """One fault as it went. Times in ns of the run's monotonic clock; None while it has not come to that."""

    fault: Fault
    resolved: tuple[int, ...] = ()
    zone: str = ""
    """The client zone that it hits instead of brokers."""
    view: ClusterView | None = None
    """What `resolved` was read from."""
    asked: int | None = None
    began: int | None = None
    ended: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    landed: bool = False
    error: str | None = None
    trigger: dict[str, Any] | None = None
    """What it waited for, and what was seen when that was true."""

    @property
    def hit(self) -> tuple[int | str, ...]:
        """Whose links a fault of links is on: brokers', or those of a zone's clients."""
        return (self.zone,) if self.zone else self.resolved

    def line(self) -> dict[str, Any]:
        """For nemesis.jsonl."""
        f, kind = self.fault, self.fault.kind
        links = [str(link) for link in self.evidence.get("links", ())]
        return {
            "schema": SCHEMA,
            "id": f.id,
            "action": f.action,
            "fault_class": kind.fault_class,
            "traits": sorted(trait.value for trait in f.traits if trait in fault_traits.ALL),
            "target": {"asked": f.target, "resolved": list(self.hit)},
            "params": dict(f.params),
            "planned": {"at_s": f.at_s, "duration_s": f.duration_s},
            "asked": self.asked,
            "began": self.began,
            "ended": self.ended,
            "evidence": self.evidence if self.landed else None,
            "seen": None if self.landed else self.evidence,
            "error": self.error,
            "words": {
                "fault": f"{f.action}{kind.called(f.params)}",
                "evidence": kind.tell(self.evidence) if self.evidence else "",
                "nodes": {str(node): kind.done(f.params, node, links) for node in self.resolved},
            },
            **({"trigger": self.trigger} if self.trigger is not None else {}),
        }


class Cluster(Protocol):
    """What the cluster says of itself (`chaos.runs.observer.Observer`)."""

    client: Client

    async def view(self) -> ClusterView:
        """Leaders, ISRs, controller."""


class Stage:
    """Where faults are played. `record` takes a line of nemesis.jsonl."""

    def __init__(
        self, runtime: Runtime, env: Env, seed: int, record: Callable[[dict[str, Any]], None], cluster: Cluster
    ) -> None:
        self.runtime, self.cluster = runtime, cluster
        self.clients: Controls | None = None
        """The workload's clients, once there are any."""
        self._claims: dict[int, dict[int, Fault]] = {}
        self._starting: dict[int, trio.Event] = {}
        """Nodes that a fault starts just now, and what is set when that is over."""
        self._leaving: dict[int, trio.Event] = {}
        """The same of nodes that a fault takes down just now."""
        self._down: dict[int, set[int]] = {}
        """Faults that have a node down, by id: the last one to end starts it."""
        self._on_links: dict[Link, dict[str, int]] = {}
        """Faults that are on a link, by the name that they have on it: their ids."""
        self._env, self._seed, self._record = env, seed, record

    def now_ns(self) -> int:
        """The run's monotonic clock."""
        return now_ns(self._env)

    def rng(self, p: Played, purpose: str) -> Random:
        """A fault's own draws, each purpose by itself."""
        return rng_for(self._seed, purpose, p.fault.id)

    async def sleep(self, seconds: float) -> None:
        """So long on the run's clock."""
        await trio.sleep(seconds)

    def within(self, seconds: float) -> trio.CancelScope:
        """Around what is given up after so long, without an error."""
        return trio.move_on_after(seconds)

    def shielded(self) -> trio.CancelScope:
        """Around what is undone, whatever ends the run."""
        return trio.CancelScope(shield=True)

    def note(self, p: Played) -> None:
        """Record the fault as it stands."""
        self._record(p.line())

    def begun(self, p: Played) -> None:
        """The fault begins now."""
        p.began = self.now_ns()
        self.note(p)

    async def begin_on_running_nodes(self, p: Played, *, joins: NodeState = NodeState.RUNNING) -> tuple[int, ...]:
        """Unresolved where a node is down or paused already: hitting it again would prove nothing. One that an earlier
        fault is just starting is waited for: its start is part of that fault's proof.

        joins: PAUSED or DOWN; a node that other faults hold so may be held for longer. Those are returned. Who joins
        what is down also waits for what is just going down.
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
                raise Unresolved(f"node {node} is {state.value} already" + (f", by {by}" if by else ""))
            joined.append(node)
        self.claim(p)
        for node in joined if joins is NodeState.DOWN else ():
            self._down.setdefault(node, set()).update((p.fault.id, *self.holders(p, node, joins)))
        self.begun(p)
        return tuple(joined)

    def is_turning(self, node: int) -> bool:
        """Some fault is just starting it, or taking it down."""
        return node in self._starting or node in self._leaving

    def holders(self, p: Played, node: int, state: NodeState) -> dict[int, str]:
        """Other faults that hold a node down, or paused, by id: their actions. A node whose disk fails, or that came to
        its crash point, ended by itself: nobody said so yet, but nobody else can have it down.
        """
        if state is NodeState.PAUSED:
            return self.others(p, node, Trait.PAUSES)
        known = self._down.get(node, set()) - {p.fault.id}
        return {n: action for n, action in self.others(p, node).items() if n in known} or (
            self.others(p, node, Trait.ENDS_BY_ITSELF)
        )

    def claim(self, p: Played, nodes: Sequence[int] | None = None) -> None:
        """The fault is on at its nodes from now on; at some of them only, where they are given."""
        for node in p.resolved if nodes is None else nodes:
            self._claims.setdefault(node, {})[p.fault.id] = p.fault

    def others(self, p: Played, node: int, trait: Trait | None = None) -> dict[int, str]:
        """Faults that are on at a node beside this one, by id: their actions; of such a trait only, where one is given.
        What ends one must not end another.
        """
        claims = self._claims.get(node, {})
        found = {number: fault for number, fault in claims.items() if number != p.fault.id}
        return {number: fault.action for number, fault in found.items() if trait is None or trait in fault.traits}

    def others_alike(self, p: Played, node: int) -> dict[int, str]:
        """Of `others` those of this fault's own kind."""
        return {number: action for number, action in self.others(p, node).items() if action == p.fault.action}

    def release(self, p: Played, nodes: Sequence[int] | None = None) -> None:
        """The fault has ended at these nodes; at all of them where none are given."""
        for node, claims in self._claims.items():
            if nodes is None or node in nodes:
                claims.pop(p.fault.id, None)
                self._down.get(node, set()).discard(p.fault.id)

    @contextmanager
    def taking_down(self, p: Played, nodes: Sequence[int]) -> Iterator[None]:
        """Around the act that takes nodes down: the fault has them down from now on. Who would take one of them down as
        well is kept waiting until the act is over.
        """
        over = trio.Event()
        self._leaving |= dict.fromkeys(nodes, over)
        self.has_down(p, nodes)
        try:
            yield
        finally:
            for node in nodes:
                if self._leaving.get(node) is over:
                    del self._leaving[node]
            over.set()

    def has_down(self, p: Played, nodes: Sequence[int]) -> None:
        """The fault has these nodes down: none of them is started before it has ended."""
        for node in nodes:
            self._down.setdefault(node, set()).add(p.fault.id)

    async def up_again(self, p: Played, nodes: Sequence[int]) -> list[Any]:
        """The fault does not have these nodes down any more. Started together are those that no other one has down.

        Evidence of each: of its start, or who has it down (`held_by`) and its `state`.
        """
        told: dict[int, Any] = {}
        for node in nodes:
            holding = self._down.get(node, set())
            state = self.runtime.state(node).value if p.fault.id in holding else "started meanwhile"
            holding.discard(p.fault.id)
            if holding:
                told[node] = {"node": node, "held_by": sorted(holding), "state": state}
        free = [node for node in nodes if node not in told]
        told.update(zip(free, await self.all_up(free), strict=True))
        return [told[node] for node in nodes]

    async def all_up(self, nodes: Sequence[int]) -> list[Any]:
        """Start nodes together: one alone may wait for a quorum that the others are part of. Evidence of each."""
        return await self.together(self.up, nodes)

    async def up(self, node: int) -> Any:
        """Start a node, which nobody has down then. Evidence of it."""
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
        """Whether all nodes are up again, or still down because other faults have them so."""
        return all(each.get("ready_ns") or each.get("state") == NodeState.DOWN for each in up)

    @asynccontextmanager
    async def up_after_trouble(self, p: Played) -> AsyncIterator[None]:
        """Around what comes before the end: where that raises a HarnessError the fault's nodes are started all the
        same. Nobody else would do it before the cluster is healed.
        """
        try:
            yield
        except HarnessError:
            await self.up_again(p, [node for node in p.resolved if self.runtime.state(node) is NodeState.DOWN])
            raise

    async def until_in_sync(self, nodes: Sequence[int]) -> None:
        """Until every partition that one of these holds has a leader, and all its replicas in sync."""
        while not await self._in_sync(nodes):
            await trio.sleep(POLL_S)

    async def _in_sync(self, nodes: Sequence[int]) -> bool:
        view = await self.cluster.view()
        held = [name for name, replicas in view.replicas.items() if set(nodes) & set(replicas)]
        return all(view.leaders[name] >= 0 and set(view.replicas[name]) == set(view.isr[name]) for name in held)

    async def together(self, act: Callable[[int], Awaitable[Any]], nodes: Sequence[int]) -> list[Any]:
        """What an act answers for each of the nodes, all at once. The first HarnessError is raised."""
        found: dict[int, Any] = {}

        async def one(node: int) -> None:
            found[node] = await act(node)

        try:
            async with trio.open_nursery() as nursery:
                for node in nodes:
                    nursery.start_soon(one, node)
        except BaseExceptionGroup as group:
            trouble = trouble_of(group)
            if isinstance(trouble, HarnessError):
                raise trouble from None
            raise
        return [found[node] for node in nodes]

    def left_s(self, p: Played) -> float:
        """Of the fault's duration; negative where it is over."""
        assert p.began is not None
        return p.fault.duration_s - (self.now_ns() - p.began) / 1e9

    async def rest(self, p: Played) -> None:
        """Keep the fault on until its duration is over. One that took longer to land is evidence of nothing."""
        self.check_landed(p, self.now_ns())
        await trio.sleep(max(0.0, self.left_s(p)))

    def check_landed(self, p: Played, at_ns: int) -> None:
        """HarnessError where a fault that is on since `at_ns` took longer to land than it was to last."""
        assert p.began is not None
        spent_s = (at_ns - p.began) / 1e9
        if spent_s > p.fault.duration_s:
            raise HarnessError(f"it took {spent_s:.1f} s to land, longer than its {p.fault.duration_s:g} s")

    async def put(self, p: Played, name: str, link: Link, fault: LinkFault) -> Evidence:
        """Put the fault on a link, under a name of its own there."""
        self._on_links.setdefault(link, {})[name] = p.fault.id
        return await self.runtime.fault_link(name, link, fault)

    async def lift(self, name: str, link: Link) -> Evidence:
        """Take what has this name off a link."""
        try:
            return await self.runtime.heal_link(name, link)
        finally:
            self._on_links.get(link, {}).pop(name, None)

    def company(self, p: Played, link: Link) -> frozenset[int]:
        """Other faults, by id, that are on the link or on its target just now: what is measured over the link with one
        company cannot be compared with what is measured with another.
        """
        on_link = {number for number in self._on_links.get(link, {}).values() if number != p.fault.id}
        return frozenset(on_link | set(self.others(p, link.target)))

    async def probe(self, link: Link) -> Probe:
        """One probe over a link, with the time that a probe has."""
        return await self.runtime.probe(link, timeout_s=PROBE_TIMEOUT_S)

    async def probes(self, links: Sequence[Link], timeout_s: float = PROBE_TIMEOUT_S) -> list[Probe]:
        """One probe over each link, all at once."""
        return await self.each(links, partial(self.runtime.probe, timeout_s=timeout_s))

    async def each(self, links: Sequence[Link], measure: Callable[[Link], Awaitable[Probe]]) -> list[Probe]:
        """What is measured over each link, all at once."""
        found: dict[Link, Probe] = {}

        async def one(link: Link) -> None:
            found[link] = await measure(link)

        async with trio.open_nursery() as nursery:
            for link in links:
                nursery.start_soon(one, link)
        return [found[link] for link in links]

    async def probes_until_ok(self, links: Sequence[Link]) -> list[Probe]:
        """Probes after healing; a link may need a moment. The last answers, good or bad."""
        probes = await self.probes(links)
        with trio.move_on_after(HEALED_WITHIN_S):
            while not all(probe.ok for probe in probes):
                await trio.sleep(POLL_S)
                probes = await self.probes(links)
        return probes


def now_ns(env: Env) -> int:
    """An Env's monotonic clock in ns."""
    return int(env.mono() * 1e9)
