"""Cuts links, counts the frames that a fault hits on links, and resets connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any

import trio

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.chaos.faults.acts.directions import DirectionProbes
from squall.chaos.faults.acts.worse_links import answering
from squall.chaos.faults.context import FaultContext, FaultExecution
from squall.chaos.faults.deadline import ExtendableDeadline
from squall.chaos.faults.proofs import wrong_way
from squall.chaos.faults.shapes import links_of
from squall.chaos.faults.targets import UnresolvedTargetError
from squall.chaos.faults.timeouts import LONGER_S, POLL_S, WHOLE_WITHIN_S
from squall.chaos.runtimes.contract import (
    Cut,
    Evidence,
    FrameAct,
    Frames,
    Link,
    LinkFault,
    ProbeResult,
    StreamDirection,
)
from squall.chaos.runtimes.wire.frames import FETCH, METADATA_FETCH, BrokerTrafficKind

LAST_LOOK_S = 0.5
"""Gives how long before the end of a cut the cut links are probed once more, in s."""
LOOK_S = LAST_LOOK_S - POLL_S
"""Is the time-out of the middle and the last probes of a cut link, in s. The last probes are sent `LAST_LOOK_S` before
the cut ends, so they time out before its end.
"""


async def cut(context: FaultContext, p: FaultExecution, cuts: Sequence[tuple[Link, Cut]]) -> None:
    """Cut links, each in its own manner. Probes over the links must fail during the cut (at its begin, at a random
    moment, and shortly before its end) and succeed afterwards.
    """
    links = [link for link, _ in cuts]
    if not links:
        raise UnresolvedTargetError(f"{p.fault.target} has no such links")
    whole = await answering(context, p, links)
    if not whole:
        raise UnresolvedTargetError(
            "no link answered before it was cut: what is silent already cannot be seen to be cut"
        )
    company = {link: context.company(p, link) for link in whole}
    with (
        # Two sets: a look uses up the next epoch of its fetch session, so each can look only once.
        closing(DirectionProbes(context, p, cuts, whole)) as first,
        closing(DirectionProbes(context, p, cuts, whole)) as second,
    ):
        with context.proving(links):
            await first.open()
            await second.open()
        context.begun(p)
        await _cut(context, p, dict(cuts), whole, company, first, second)


async def _cut(
    context: FaultContext,
    p: FaultExecution,
    cuts: Mapping[Link, Cut],
    whole: Sequence[Link],
    company: Mapping[Link, frozenset[int]],
    first: DirectionProbes,
    second: DirectionProbes,
) -> None:
    """Cut the links and record the evidence. whole: the links that answered before the cut. company: the other faults
    that were active on each of these links before the cut. first, second: test the direction of the cut, at its begin
    and in the middle.
    """
    links, name = list(cuts), f"fault-{p.fault.id}"
    try:
        with context.proving(links):
            await context.put_all(p, name, cuts)
            during = await _probe_with_directions(context, links, first, context.probe_timeout_s)
        # A fault that has ended meanwhile did not silence a link that answered before.
        alone = [link for link in whole if context.company(p, link) <= company[link]]
        context.check_landed(p, context.now_ns())
        middle = await _in_the_middle(context, p, links, second)
        await trio.sleep(max(0.0, context.left_s(p) - LAST_LOOK_S))
        last, then = list[ProbeResult](), {link: context.company(p, link) for link in whole}
        # A look that begins later could end after the cut, and would be answered.
        if context.left_s(p) >= LOOK_S:
            last = await context.probes(links, LOOK_S)
            # Faults that began at the same time may have ended: then this fault still silences the link.
            alone = alone or [link for link in whole if then[link] | context.company(p, link) <= company[link]]
        await trio.sleep(max(0.0, context.left_s(p)))
        with trio.move_on_after(min(p.fault.duration_s, LONGER_S)):
            while not alone:
                await trio.sleep(POLL_S)
                then = {link: context.company(p, link) for link in whole}
                last = await context.probes(links, LOOK_S)
                alone = [link for link in whole if then[link] | context.company(p, link) <= company[link]]
    finally:
        await context.lift_all(name, links)
        p.ended = context.now_ns()  # The probes that follow prove that the cut is over.
    after = await context.probes_until_ok(p, whole)
    p.evidence = {
        "links": [str(link) for link in links],
        "before": [str(link) for link in whole],
        "during": [probe.evidence() for probe in during],
        "middle": [probe.evidence() for probe in middle],
        "last": [probe.evidence() for probe in last],
        "after": [probe.evidence() for probe in after],
        "ways": [way.evidence() for way in (*first.found, *second.found) if way.reached is not None],
        "proven": [str(link) for link in alone],
    }
    if not alone:
        p.error = "other faults came to its targets as it began: nobody knows which of them silenced these links"
    elif any(probe.ok for probe in (*during, *middle, *last)) or not all(probe.ok for probe in after):
        p.error = "a cut link answered, or a healed one did not"
    else:
        p.error = wrong_way(p.evidence) or None
    p.landed = not p.error


async def _probe_with_directions(
    context: FaultContext, links: Sequence[Link], ways: DirectionProbes, limit_s: float
) -> list[ProbeResult]:
    """Probe the links. At the same time, `ways` tests in which direction each link is cut. Return the results of the
    probes. limit_s: the time-out of a probe.
    """
    found = list[ProbeResult]()

    async def probes() -> None:
        found.extend(await context.probes(links, limit_s))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(probes)
        nursery.start_soon(ways.look)
    return found


async def _in_the_middle(
    context: FaultContext, p: FaultExecution, links: Sequence[Link], ways: DirectionProbes
) -> list[ProbeResult]:
    """Probe the links at a random moment between the first and the last probes of a cut. Return [] if there is no time
    for that.
    """
    free_s = context.left_s(p) - LAST_LOOK_S - max(LOOK_S, 2 * context.probe_timeout_s if ways.found else 0.0)
    if free_s <= 0:
        return []
    await trio.sleep(free_s * context.rng(p, "middle").random())
    return await _probe_with_directions(context, links, ways, LOOK_S)


def frames(params: Mapping[str, Any]) -> Frames:
    """Return which frames the parameters select, and what the link does to these frames."""
    api, side = int(ApiKey[api_constant(params["api"])]), params["side"]
    also: tuple[int, ...] = ()
    if api == FETCH and side != BrokerTrafficKind.REPLICATION:  # the metadata log is replicated by Fetch as well
        api, also = (METADATA_FETCH, ()) if side == BrokerTrafficKind.CONTROLLER else (FETCH, (METADATA_FETCH,))
    return Frames(
        api=api,
        also=also,
        act=FrameAct(params["act"]),
        nth=int(params["nth"]),
        count=int(params["count"]),
        delay_ms=int(params["delay_ms"]),
        error=int(ErrorCode[params["error"]]),
        stream=StreamDirection(params["stream"]),
    )


async def count(context: FaultContext, p: FaultExecution, links: Sequence[Link], fault: LinkFault) -> None:
    """Play a link fault that is proven by the number of requests or packets that it has hit. If it has hit none by its
    end, extend it by its own length, but at most by `LONGER_S`: sometimes no request is sent for a while. Do that once
    more if other faults are active then, which may keep requests away.
    """
    name = f"fault-{p.fault.id}"
    if not links:
        raise UnresolvedTargetError(f"{p.fault.target} has no such links")
    context.begun(p)
    # A runtime reports hits only when it removes the fault, so an extension puts the fault on anew.
    longer = partial(trio.sleep, min(p.fault.duration_s, LONGER_S))
    for turn, wait in enumerate((partial(context.rest, p), longer, longer)):
        if turn > 1 and not context.any_other_on(p):
            break
        try:
            await context.put_all(p, name, dict.fromkeys(links, fault))
            await wait()
        finally:
            healed = await context.lift_all(name, links)
        lifted = context.now_ns()
        hits = [int(str(each.get("hits") or 0)) for each in healed]
        if any(hits):
            break
    p.ended = lifted  # Only after the extension: other faults may wait for this fault's end.
    p.evidence = {"links": [str(link) for link in links], "hits": hits}
    struck = [
        {"link": str(link), **each} for link, evidence in zip(links, healed, strict=True) for each in _struck(evidence)
    ]
    if struck:
        p.evidence["struck"] = struck
    p.landed = sum(hits) > 0
    if not p.landed:
        p.error = "nothing came over these links that it could have hit"


def _struck(healed: Evidence) -> list[dict[str, Any]]:
    """Return the frames (requests or responses) that the fault hit on a link, as the runtime reported when it removed
    the fault.
    """
    frames = healed.get("struck")
    return [each for each in frames if isinstance(each, dict)] if isinstance(frames, list) else []


async def reset_connections(context: FaultContext, p: FaultExecution) -> None:
    """Reset the targets' connections at the beginning of the fault, and then at intervals until its end.

    At the beginning the nemesis opens a connection of its own over each link. It must see these connections reset, too.
    The target may be down or just starting, or its links may be slow, so that no connection can be opened. Then the
    nemesis tries again with a longer time-out. It gives up after a while, which is longer if other faults are active.
    """
    every_s = float(p.fault.params["every_ms"]) / 1000
    links = links_of(p.fault.params, p.hit, context.runtime.links())
    if not links:
        raise UnresolvedTargetError(f"{p.fault.target} has no such links")
    waiting, patience_s, resets = (
        ExtendableDeadline(lambda: context.any_other_on(p)),
        context.probe_timeout_s,
        list[Evidence](),
    )
    while not resets:
        async with _watched(context, links, patience_s) as (opened, ended):
            if waiting.is_over() or opened:
                context.begun(p)
                resets = [await context.runtime.reset_links(links)]
        if not resets:
            patience_s = min(2 * patience_s, WHOLE_WITHIN_S)
            await trio.sleep(POLL_S)
    while every_s and context.left_s(p) > every_s:
        await trio.sleep(every_s)
        resets.append(await context.runtime.reset_links(links))
    p.ended = context.now_ns()
    p.evidence = {
        "links": [str(link) for link in links],
        "resets": resets,
        "opened": [str(link) for link in links if link in opened],
        "ended": {str(link): ended[link].evidence() for link in links if link in opened},
    }
    p.landed = bool(opened) and all(ended[link].ok for link in opened)
    if not p.landed:
        p.error = "a connection over these links was not reset" if opened else "no link answered"


@asynccontextmanager
async def _watched(
    context: FaultContext, links: Sequence[Link], patience_s: float
) -> AsyncIterator[tuple[set[Link], dict[Link, ProbeResult]]]:
    """Open one connection over each link, and wait until each is open or has failed, but at most `patience_s` seconds.
    Yield the set of links with an open connection, and a mapping from each link to how its connection ended. The
    mapping is complete after the block.
    """
    opened: set[Link] = set()
    ended: dict[Link, ProbeResult] = {}
    changed = trio.Event()

    async def watch(link: Link) -> None:
        ended[link] = await context.runtime.ending(link, timeout_s=2 * patience_s, opened=partial(note, link))
        look()

    def note(link: Link) -> None:
        opened.add(link)
        look()

    def look() -> None:
        if all(link in opened or link in ended for link in links):
            changed.set()

    async with trio.open_nursery() as nursery:
        for link in links:
            nursery.start_soon(watch, link)
        with trio.move_on_after(patience_s):
            await changed.wait()
        yield opened, ended


def api_constant(name: str) -> str:
    """Convert an API's name to its constant's name: InitProducerId to INIT_PRODUCER_ID."""
    return "".join(f"_{c}" if c.isupper() and at else c for at, c in enumerate(name)).upper()
