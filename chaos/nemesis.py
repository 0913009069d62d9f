"""Plays a plan's faults against a runtime, proves that each landed, and always heals.

Every fault is recorded when it begins and again when it has ended (`nemesis.jsonl`, last line of an id wins): what was
asked, whom it resolved to, when it began and ended by the harness's monotonic clock, and the evidence. A fault whose
evidence is missing makes the run `unknown`; it is never skipped in silence. Faults may overlap: each has its own name
on every link, and a node that is already down or paused is a reason why a later fault did not land.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from typing import Any

import trio

from chaos.errors import HarnessError
from chaos.faults import Fault
from chaos.runtimes.contract import Cut, Latency, Link, Manner, NodeState, Probe, Runtime, Stream
from chaos.schedule import rng_for
from chaos.targets import ClusterView, Unresolved, resolve

PROBE_TIMEOUT_S = 0.7
HEALED_WITHIN_S = 10.0
_POLL_S = 0.1


@dataclass
class Played:
    """One fault as it went. Times in ns of the harness's monotonic clock; None while it has not come to that."""

    fault: Fault
    resolved: tuple[int, ...] = ()
    asked: int | None = None
    began: int | None = None
    ended: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    landed: bool = False
    error: str | None = None

    def line(self) -> dict[str, Any]:
        """For nemesis.jsonl."""
        f = self.fault
        return {
            "id": f.id,
            "action": f.action,
            "fault_class": f.fault_class,
            "target": {"asked": f.target, "resolved": list(self.resolved)},
            "params": dict(f.params),
            "planned": {"at_s": f.at_s, "duration_s": f.duration_s},
            "asked": self.asked,
            "began": self.began,
            "ended": self.ended,
            "evidence": self.evidence if self.landed else None,
            "seen": None if self.landed else self.evidence,
            "error": self.error,
        }


class Nemesis:
    """Plays faults. `view` asks the cluster who leads what."""

    def __init__(
        self,
        runtime: Runtime,
        faults: Sequence[Fault],
        seed: int,
        path: Path,
        view: Callable[[], Awaitable[ClusterView]],
    ) -> None:
        self._runtime, self._seed, self._view = runtime, seed, view
        self._file = path.open("a", encoding="utf-8")
        self.played = [Played(fault) for fault in faults]

    def under_way(self) -> list[Played]:
        """Faults that have begun and not ended."""
        return [p for p in self.played if p.began is not None and p.ended is None]

    async def play(self) -> None:
        """All faults at their times, counted from now. Returns when the last has ended."""
        for p in self.played:
            self._record(p)
        async with trio.open_nursery() as nursery:
            for p in self.played:
                nursery.start_soon(self._play_one, p)

    async def _play_one(self, p: Played) -> None:
        await trio.sleep(p.fault.at_s)
        p.asked = monotonic_ns()
        try:
            with trio.fail_after(HEALED_WITHIN_S):
                p.resolved = resolve(p.fault.target, await self._view(), rng_for(self._seed, "target", p.fault.id))
            await ACTS[p.fault.action](self, p)
        except (Unresolved, HarnessError, trio.TooSlowError) as trouble:
            p.error = f"{type(trouble).__name__}: {trouble}"
            p.landed = False
        finally:
            p.ended = p.ended or monotonic_ns()
            self._record(p)

    def _begun(self, p: Played) -> None:
        p.began = monotonic_ns()
        self._record(p)

    def _begin_on_running_nodes(self, p: Played) -> None:
        """Unresolved where a node is down or paused already: hitting it again would prove nothing."""
        for node in p.resolved:
            state = self._runtime.state(node)
            if state is not NodeState.RUNNING:
                raise Unresolved(f"node {node} is {state.value} already")
        self._begun(p)

    def _record(self, p: Played) -> None:
        self._file.write(json.dumps(p.line(), separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close nemesis.jsonl."""
        self._file.close()

    # ------------------------------------------------------------------ acts on nodes

    async def _down_and_up(self, p: Played, *, kill: bool) -> None:
        runtime = self._runtime
        self._begin_on_running_nodes(p)
        down = [await (runtime.kill(node) if kill else runtime.stop_node(node)) for node in p.resolved]
        await self._rest(p)
        up = [await runtime.start_node(node) for node in p.resolved]
        p.evidence = {"down": down, "up": up}
        proof = "gone" if kill else "controlled"
        p.landed = all(d.get(proof) for d in down) and all(u.get("ready_ns") for u in up)
        if not p.landed:
            p.error = f"no evidence that every node was {proof}"

    async def _kill(self, p: Played) -> None:
        await self._down_and_up(p, kill=True)

    async def _stop(self, p: Played) -> None:
        await self._down_and_up(p, kill=False)

    async def _pause(self, p: Played) -> None:
        runtime = self._runtime
        self._begin_on_running_nodes(p)
        held: list[Any] = []
        resumed: list[Any] = []
        try:
            held = [await runtime.pause(node) for node in p.resolved]
            await self._rest(p)
        finally:
            with trio.CancelScope(shield=True):
                for node in p.resolved:
                    if runtime.state(node) is NodeState.PAUSED:
                        resumed.append(await runtime.resume(node))
            p.ended = monotonic_ns()
        p.evidence = {"paused": held, "resumed": resumed}
        stopped = all(e.get("state") == "T" and not e["probe"]["ok"] for e in held)
        p.landed = stopped and len(resumed) == len(p.resolved)
        if not p.landed:
            p.error = "a node was not held, or answered while it should have been"

    # ------------------------------------------------------------------ acts on links

    async def _partition(self, p: Played) -> None:
        manner = Manner(p.fault.params["manner"])
        cuts = partition_cuts(p.fault.params["shape"], p.resolved, self._runtime.nodes, manner)
        links = [link for link, _ in cuts]
        name = f"fault-{p.fault.id}"
        self._begun(p)
        try:
            for link, cut in cuts:
                await self._runtime.fault_link(name, link, cut)
            during = await self._probes(links)
            await self._rest(p)
        finally:
            with trio.CancelScope(shield=True):
                for link in links:
                    await self._runtime.heal_link(name, link)
            p.ended = monotonic_ns()  # what follows proves that it is over
        after = await self._probes_until_ok(links)
        p.evidence = {
            "links": [str(link) for link in links],
            "during": [probe.evidence() for probe in during],
            "after": [probe.evidence() for probe in after],
        }
        p.landed = bool(links) and not any(probe.ok for probe in during) and all(probe.ok for probe in after)
        if not p.landed:
            p.error = "a cut link answered, or a healed one did not"

    async def _latency(self, p: Played) -> None:
        delay, jitter = int(p.fault.params["latency_ms"]), int(p.fault.params["jitter_ms"])
        links = [k for k in self._peer_links() if k.source in p.resolved or k.target in p.resolved]
        name = f"fault-{p.fault.id}"
        before = await self._probes(links)
        self._begun(p)
        try:
            for link in links:
                await self._runtime.fault_link(name, link, Latency(delay, jitter))
            during = await self._probes(links, PROBE_TIMEOUT_S + 6 * (delay + jitter) / 1000)
            await self._rest(p)
        finally:
            with trio.CancelScope(shield=True):
                for link in links:
                    await self._runtime.heal_link(name, link)
            p.ended = monotonic_ns()  # what follows proves that it is over
        p.evidence = {
            "links": [str(link) for link in links],
            "before": [probe.evidence() for probe in before],
            "during": [probe.evidence() for probe in during],
        }
        floor_ms = max(1.0, delay - jitter)
        p.landed = bool(links) and all(probe.ok and probe.round_trip_ms >= floor_ms for probe in during)
        if not p.landed:
            p.error = f"a round trip over a slow link took less than {floor_ms:g} ms, or had no answer"

    def _peer_links(self) -> list[Link]:
        return [link for link in self._runtime.links() if isinstance(link.source, int)]

    async def _probes(self, links: Sequence[Link], timeout_s: float = PROBE_TIMEOUT_S) -> list[Probe]:
        """One probe over each link, all at once."""
        found: dict[Link, Probe] = {}

        async def one(link: Link) -> None:
            found[link] = await self._runtime.probe(link, timeout_s=timeout_s)

        async with trio.open_nursery() as nursery:
            for link in links:
                nursery.start_soon(one, link)
        return [found[link] for link in links]

    async def _probes_until_ok(self, links: Sequence[Link]) -> list[Probe]:
        """Probes after healing; a link may need a moment. The last answers, good or bad."""
        probes = await self._probes(links)
        with trio.move_on_after(HEALED_WITHIN_S):
            while not all(probe.ok for probe in probes):
                await trio.sleep(_POLL_S)
                probes = await self._probes(links)
        return probes

    async def _rest(self, p: Played) -> None:
        """Keep the fault on until its duration is over. One that took longer to land is evidence of nothing."""
        assert p.began is not None
        spent_s = (monotonic_ns() - p.began) / 1e9
        if spent_s > p.fault.duration_s:
            raise HarnessError(f"it took {spent_s:.1f} s to land, longer than its {p.fault.duration_s:g} s")
        await trio.sleep(max(0.0, p.fault.duration_s - spent_s))


def partition_cuts(shape: str, targets: Sequence[int], nodes: Sequence[int], manner: Manner) -> list[tuple[Link, Cut]]:
    """Which links a partition cuts, and how.

    A TCP connection carries bytes both ways, so "no byte from A reaches B" cuts the requests of A's connections to B
    and the answers on B's connections to A. REFUSE knows no direction: a one-way refusal ends A's connections to B.
    """
    hit = set(targets)
    if shape == "halves":
        first = (len(nodes)) // 2
        hit = set([*targets, *(n for n in nodes if n not in targets)][: max(1, first)])
    ours, others = sorted(hit), [n for n in nodes if n not in hit]
    pairs = [(a, b) for a in ours for b in others]
    if shape == "one-way":
        if manner is Manner.REFUSE:
            return [(Link(a, b), Cut(manner)) for a, b in pairs]
        there = [(Link(a, b), Cut(manner, Stream.THERE)) for a, b in pairs]
        back = [(Link(b, a), Cut(manner, Stream.BACK)) for a, b in pairs]
        return there + back
    return [(link, Cut(manner)) for a, b in pairs for link in (Link(a, b), Link(b, a))]


ACTS: dict[str, Callable[[Nemesis, Played], Awaitable[None]]] = {
    "kill": Nemesis._kill,
    "stop": Nemesis._stop,
    "pause": Nemesis._pause,
    "partition": Nemesis._partition,
    "latency": Nemesis._latency,
}
