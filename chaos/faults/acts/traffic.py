"""Cuts one kind of request: replication, or requests to controllers. All other requests still pass on the same links.

The proof has two halves. First, a request of this kind gets no answer during the cut, and gets one before and after.
Second, a request of another kind is answered during the cut; otherwise the whole link was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol, TypeGuard

from squall.chaos.errors import HarnessError
from squall.chaos.faults.context import FaultContext, FaultExecution
from squall.chaos.faults.targets import UnresolvedTargetError
from squall.chaos.faults.timeouts import POLL_S, whole_within_s
from squall.chaos.runtimes.contract import Cut, CutMode, FrameAct, Frames, Link, LinkFault, ProbeResult, StreamDirection
from squall.chaos.runtimes.wire.frames import TRAFFIC, BrokerTrafficKind


class TrafficProber(Protocol):
    """Probes links between brokers with one kind of request. Some runtimes can do so."""

    async def probe_traffic(self, link: Link, traffic: BrokerTrafficKind, *, timeout_s: float = 1.0) -> ProbeResult:
        """Probe a link with a request that belongs to this kind of traffic and changes nothing."""


def can_probe_traffic(runtime: object) -> TypeGuard[TrafficProber]:
    """Return whether a runtime is a `TrafficProber`. The test is not by `isinstance`, which ignores methods that a
    wrapper of a runtime passes on by `__getattr__`.
    """
    return hasattr(runtime, "probe_traffic")


def frames_of(cut: Cut, traffic: BrokerTrafficKind) -> Frames:
    """Return which frames a cut of one kind of traffic hits, and what it does to them. It hits responses if
    `cut.stream` is BACK, otherwise requests. It resets their connection if the cut's manner is `refuse`, and drops them
    otherwise.
    """
    first, *rest = TRAFFIC[traffic]
    act = FrameAct.RESET if cut.manner is CutMode.REFUSE else FrameAct.DROP
    stream = StreamDirection.BACK if cut.stream is StreamDirection.BACK else StreamDirection.THERE
    return Frames(first, act, count=0, stream=stream, also=tuple(rest))


async def cut_traffic(
    context: FaultContext, p: FaultExecution, cuts: Sequence[tuple[Link, Cut]], traffic: BrokerTrafficKind
) -> None:
    """Cut one kind of request, replication or requests to controllers, on links between brokers. cuts: each link, and
    how it is cut.
    """
    if not can_probe_traffic(context.runtime):
        raise HarnessError(f"runtime {context.runtime.name} cannot be asked for {traffic.value} alone")
    links = [link for link, _ in cuts]
    if not links:
        raise UnresolvedTargetError(f"{p.fault.target} has no such links")
    ask = partial(context.runtime.probe_traffic, traffic=traffic, timeout_s=context.probe_timeout_s)
    name, whole = f"fault-{p.fault.id}", list[Link]()
    with context.within(whole_within_s(context.probe_timeout_s)):
        while not whole:
            whole = [link for link, probe in zip(links, await context.each(links, ask), strict=True) if probe.ok]
            await context.sleep(0 if whole else POLL_S)
    if not whole:
        raise UnresolvedTargetError(
            "no link answered before it was cut: what is silent already cannot be seen to be cut"
        )
    company = {link: context.company(p, link) for link in whole}
    faults: dict[Link, LinkFault] = {link: frames_of(how, traffic) for link, how in cuts}
    context.begun(p)
    try:
        await context.put_all(p, name, faults)
        during, other = await context.each(whole, ask), await context.probes(whole)
        # A fault that has ended meanwhile did not silence a link that answered before.
        alone = [link for link in whole if context.company(p, link) <= company[link]]
        middle = list[ProbeResult]()

        async def look() -> None:
            middle[:] = await context.each(whole, ask)

        await context.rest(p, look)
    finally:
        healed = await context.lift_all(name, links)
        p.ended = context.now_ns()
    after = await context.probes_until_ok(p, whole, ask)
    p.evidence = {
        "links": [str(link) for link in links],
        "traffic": traffic.value,
        "before": [str(link) for link in whole],
        **{
            when: [probe.evidence() for probe in probes]
            for when, probes in (("during", during), ("other", other), ("middle", middle), ("after", after))
        },
        "hits": [int(str(each.get("hits") or 0)) for each in healed],
        "proven": [str(link) for link in alone],
    }
    p.error = _wrong([*during, *middle], dict(zip(whole, other, strict=True)), after, alone)
    p.landed = not p.error


def _wrong(
    during: Sequence[ProbeResult], other: dict[Link, ProbeResult], after: Sequence[ProbeResult], alone: Sequence[Link]
) -> str | None:
    """Return what contradicts the cut, or None if the cut is proven. during: probes with the kind of request that was
    cut. other: probes with another kind, during the cut. after: probes of the healed links. alone: the links that no
    other fault can have silenced.
    """
    if not alone:
        return "other faults came to its targets as it began: nobody knows which of them silenced these links"
    if any(probe.ok for probe in during):
        return "a request that was cut got its answer"
    if not all(other[link].ok for link in alone):
        return "other requests over these links got no answer either: all of the link was cut"
    return None if all(probe.ok for probe in after) else "a healed link does not answer"
