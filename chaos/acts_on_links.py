"""Faults of links: partitions, latency, lost packets, resets, and requests that are dropped, held, doubled, refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from broker.protocol.apis import ApiKey
from broker.protocol.errors import ErrorCode
from chaos.runtimes.contract import Cut, FrameAct, Frames, Latency, Link, LinkFault, Loss, Manner, Stream
from chaos.stage import PROBE_TIMEOUT_S, Play, Played, Stage
from chaos.targets import Unresolved


async def partition(stage: Stage, p: Played) -> None:
    """Cut directed links between brokers."""
    manner = Manner(p.fault.params["manner"])
    cuts = partition_cuts(p.fault.params["shape"], p.resolved, stage.runtime.nodes, manner)
    links = [link for link, _ in cuts]
    name = f"fault-{p.fault.id}"
    stage.begun(p)
    try:
        for link, cut in cuts:
            await stage.runtime.fault_link(name, link, cut)
        during = await stage.probes(links)
        await stage.rest(p)
    finally:
        with trio.CancelScope(shield=True):
            for link in links:
                await stage.runtime.heal_link(name, link)
        p.ended = stage.now_ns()  # what follows proves that it is over
    after = await stage.probes_until_ok(links)
    p.evidence = {
        "links": [str(link) for link in links],
        "during": [probe.evidence() for probe in during],
        "after": [probe.evidence() for probe in after],
    }
    p.landed = bool(links) and not any(probe.ok for probe in during) and all(probe.ok for probe in after)
    if not p.landed:
        p.error = "a cut link answered, or a healed one did not"


async def latency(stage: Stage, p: Played) -> None:
    """Delay what brokers send each other."""
    delay, jitter = int(p.fault.params["latency_ms"]), int(p.fault.params["jitter_ms"])
    links = stage.peer_links(p.resolved)
    name = f"fault-{p.fault.id}"
    before = await stage.probes(links)
    stage.begun(p)
    try:
        for link in links:
            await stage.runtime.fault_link(name, link, Latency(delay, jitter))
        during = await stage.probes(links, PROBE_TIMEOUT_S + 6 * (delay + jitter) / 1000)
        await stage.rest(p)
    finally:
        with trio.CancelScope(shield=True):
            for link in links:
                await stage.runtime.heal_link(name, link)
        p.ended = stage.now_ns()  # what follows proves that it is over
    p.evidence = {
        "links": [str(link) for link in links],
        "before": [probe.evidence() for probe in before],
        "during": [probe.evidence() for probe in during],
    }
    floor_ms = max(1.0, delay - jitter)
    p.landed = bool(links) and all(probe.ok and probe.round_trip_ms >= floor_ms for probe in during)
    if not p.landed:
        p.error = f"a round trip over a slow link took less than {floor_ms:g} ms, or had no answer"


async def packet_loss(stage: Stage, p: Played) -> None:
    """Packets of the targets get lost, and come late."""
    loss = Loss(float(p.fault.params["probability"]), int(p.fault.params["rto_ms"]))
    await _counted(stage, p, _links(stage, p), loss)


async def protocol(stage: Stage, p: Played) -> None:
    """Requests of one API to the targets are dropped, delayed, doubled or answered with an error by the link."""
    params = p.fault.params
    frames = Frames(
        api=int(ApiKey[api_constant(params["api"])]),
        act=FrameAct(params["act"]),
        nth=int(params["nth"]),
        count=int(params["count"]),
        delay_ms=int(params["delay_ms"]),
        error=int(ErrorCode[params["error"]]),
        stream=Stream(params["stream"]),
    )
    links = [link for link in _links(stage, p) if link.target in p.resolved]
    await _counted(stage, p, links, frames)


async def _counted(stage: Stage, p: Played, links: Sequence[Link], fault: LinkFault) -> None:
    """A fault whose evidence is how often it struck."""
    name = f"fault-{p.fault.id}"
    if not links:
        raise Unresolved(f"{p.fault.target} has no such links")
    stage.begun(p)
    healed = []
    try:
        for link in links:
            await stage.runtime.fault_link(name, link, fault)
        await stage.rest(p)
    finally:
        with trio.CancelScope(shield=True):
            for link in links:
                healed.append(await stage.runtime.heal_link(name, link))
        p.ended = stage.now_ns()
    hits = [int(str(each.get("hits") or 0)) for each in healed]
    p.evidence = {"links": [str(link) for link in links], "hits": hits}
    p.landed = sum(hits) > 0
    if not p.landed:
        p.error = "nothing came over these links that it could have hit"


async def reset(stage: Stage, p: Played) -> None:
    """Reset the targets' connections, at the beginning and every so often until the end."""
    every_s = float(p.fault.params["every_ms"]) / 1000
    links = _links(stage, p)
    stage.begun(p)
    told = [await stage.runtime.reset_links(links)]
    while every_s and stage.left_s(p) > every_s:
        await trio.sleep(every_s)
        told.append(await stage.runtime.reset_links(links))
    p.ended = stage.now_ns()
    p.evidence = {"links": [str(link) for link in links], "resets": told}
    # A world that cannot count them has at least ended what there was.
    p.landed = any(each.get("reset") is None or each["reset"] for each in told)
    if not p.landed:
        p.error = "no connection was open over these links"


def _links(stage: Stage, p: Played) -> list[Link]:
    """As the parameter `side` says: between brokers, from clients, or both."""
    side = p.fault.params["side"]
    peers = stage.peer_links(p.resolved) if side in ("peers", "both") else []
    clients = stage.client_links(p.resolved) if side in ("clients", "both") else []
    return [*peers, *clients]


def api_constant(name: str) -> str:
    """ "InitProducerId" into "INIT_PRODUCER_ID"."""
    return "".join(f"_{c}" if c.isupper() and at else c for at, c in enumerate(name)).upper()


def partition_cuts(shape: str, targets: Sequence[int], nodes: Sequence[int], manner: Manner) -> list[tuple[Link, Cut]]:
    """Which links a partition cuts, and how.

    A TCP connection carries bytes both ways, so "no byte from A reaches B" cuts the requests of A's connections to B
    and the answers on B's connections to A. REFUSE knows no direction: a one-way refusal ends A's connections to B.
    Where nobody is left on the other side, everybody is cut off from everybody.
    """
    hit = set(targets)
    if shape == "halves":
        first = (len(nodes)) // 2
        hit = set([*targets, *(n for n in nodes if n not in targets)][: max(1, first)])
    ours, others = sorted(hit), [n for n in nodes if n not in hit]
    pairs = [(a, b) for a in ours for b in others] or [(a, b) for a in ours for b in ours if a < b]
    if shape == "one-way":
        if manner is Manner.REFUSE:
            return [(Link(a, b), Cut(manner)) for a, b in pairs]
        there = [(Link(a, b), Cut(manner, Stream.THERE)) for a, b in pairs]
        back = [(Link(b, a), Cut(manner, Stream.BACK)) for a, b in pairs]
        return there + back
    return [(link, Cut(manner)) for a, b in pairs for link in (Link(a, b), Link(b, a))]


ACTS: Mapping[str, Play] = {
    "partition": partition,
    "latency": latency,
    "packet_loss": packet_loss,
    "protocol": protocol,
    "reset": reset,
}
