"""Faults of links that are whole and worse: late, narrow, sliced, short-lived, slow to end, and flapping.

What a link does is measured over it, before and while the fault is on. Links that gave no answer before it began (their
broker is down, another fault cuts them) prove nothing and are left out of the proof; one at least has to be left. What
another fault cuts short while it is on is measured again: it says neither that a link is worse nor that it is whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from chaos.faults.link_actions import MEASURED_BYTES
from chaos.faults.shapes import links_of
from chaos.faults.stage import POLL_S, PROBE_TIMEOUT_S, WHOLE_WITHIN_S, Play, Played, Stage
from chaos.faults.targets import Unresolved
from chaos.runtimes.contract import (
    Bandwidth,
    Cut,
    Latency,
    LimitData,
    Link,
    LinkFault,
    Manner,
    Probe,
    ResetPeer,
    Slicer,
    SlowClose,
)

ANSWER_BYTES = 2_000
"""More than an answer to a probe ever has: it goes through the same narrow link."""
SURE = 0.8
"""Of what a fault should take, this part counts as proof: clocks and timers are not exact."""
_MEASURED_MS = 40.0

Measure = Callable[[Link], Awaitable[Probe]]


@dataclass(frozen=True, slots=True)
class Proof:
    """How a fault of a link is measured, and when that proves it."""

    fault: LinkFault
    measure: Measure
    lands: Callable[[Probe], bool]
    whole: Callable[[Probe], bool]
    """Whether it shows that nothing is wrong with the link."""
    wrong: str
    """What is wrong where it did not land."""
    told: Mapping[str, Any]
    """What goes into the evidence beside the probes."""


async def latency(stage: Stage, p: Played) -> None:
    """What is sent over the targets' links arrives late."""
    delay, jitter = int(p.fault.params["latency_ms"]), int(p.fault.params["jitter_ms"])
    floor_ms = max(1.0, delay - jitter)
    limit_s = PROBE_TIMEOUT_S + 6 * (delay + jitter) / 1000
    await _worse(stage, p, _slower(stage, Latency(delay, jitter), floor_ms, limit_s, 0))


async def bandwidth(stage: Stage, p: Played) -> None:
    """Little gets through the targets' links at a time."""
    rate = int(p.fault.params["kb_per_s"])
    pad = min(MEASURED_BYTES, rate * 300)
    floor_ms = SURE * pad / (rate * 1.024)
    limit_s = PROBE_TIMEOUT_S + 2 * (pad + ANSWER_BYTES) / (rate * 1000)
    await _worse(stage, p, _slower(stage, Bandwidth(rate), floor_ms, limit_s, pad))


async def slicer(stage: Stage, p: Played) -> None:
    """What is sent over the targets' links arrives in pieces, one after the other."""
    params = p.fault.params
    average, variation = int(params["average_bytes"]), int(params["variation_bytes"])
    delay_us = int(params["delay_us"])
    largest = average + variation
    pad = min(MEASURED_BYTES, (int(_MEASURED_MS * 1000) // delay_us + 2) * largest)
    floor_ms = max(1.0, SURE * (pad // largest - 1) * delay_us / 1000)
    limit_s = PROBE_TIMEOUT_S + 4 * (pad + ANSWER_BYTES) / (average - variation) * (delay_us + 1000) / 1e6
    await _worse(stage, p, _slower(stage, Slicer(average, variation, delay_us), floor_ms, limit_s, pad))


def _slower(stage: Stage, fault: LinkFault, floor_ms: float, limit_s: float, pad_bytes: int) -> Proof:
    return Proof(
        fault,
        partial(stage.runtime.probe, timeout_s=limit_s, pad_bytes=pad_bytes),
        lambda probe: probe.ok and probe.round_trip_ms >= floor_ms,
        lambda probe: probe.ok and probe.round_trip_ms < floor_ms,
        f"a round trip over a slow link took less than {floor_ms:.3g} ms, or had no answer",
        {"pad_bytes": pad_bytes, "floor_ms": round(floor_ms, 3)},
    )


async def limit_data(stage: Stage, p: Played) -> None:
    """The targets' connections end once they have carried so many bytes."""
    limit = int(p.fault.params["limit_bytes"])
    limit_s = PROBE_TIMEOUT_S + limit / 2_000_000
    proof = Proof(
        LimitData(limit),
        partial(stage.runtime.probe, timeout_s=limit_s, pad_bytes=limit),
        lambda probe: not probe.ok and (probe.error or "").startswith("ended"),
        lambda probe: probe.ok,
        f"more than {limit} bytes passed over a link, or no connection could be made",
        {"limit_bytes": limit},
    )
    await _worse(stage, p, proof)


async def reset_peer(stage: Stage, p: Played) -> None:
    """The targets' connections are reset some time after they were first used, again and again.

    Toxiproxy does so in each direction by itself: who waits for an answer hears of it after twice the time.
    """
    after_ms = int(p.fault.params["after_ms"])
    proof = Proof(
        ResetPeer(after_ms),
        partial(stage.runtime.ending, timeout_s=PROBE_TIMEOUT_S + 2 * after_ms / 1000),
        lambda probe: probe.ok,
        lambda probe: probe.error == "still open",
        "a connection over a link was not reset",
        {"after_ms": after_ms},
    )
    await _worse(stage, p, proof, before=stage.probe)


async def slow_close(stage: Stage, p: Played) -> None:
    """That a connection of the targets ended is heard late."""
    delay_ms = int(p.fault.params["delay_ms"])
    proof = Proof(
        SlowClose(delay_ms),
        partial(stage.runtime.ending, timeout_s=PROBE_TIMEOUT_S + 3 * delay_ms / 1000, spoil=True),
        lambda probe: probe.ok and probe.round_trip_ms >= SURE * delay_ms,
        lambda probe: probe.error == "closed" and probe.round_trip_ms < SURE * delay_ms,
        f"a connection's end was heard within {SURE * delay_ms:g} ms, or not at all",
        {"delay_ms": delay_ms},
    )
    await _worse(stage, p, proof)


async def _worse(stage: Stage, p: Played, proof: Proof, before: Measure | None = None) -> None:
    """Put a fault on the targets' links, measure it, keep it on until it is over, take it off."""
    links = _links(stage, p)
    name = f"fault-{p.fault.id}"
    seen = await _before(stage, links, before or proof.measure)
    whole = [at for at, probe in enumerate(seen) if probe.ok]
    stage.begun(p)
    try:
        for link in links:
            await stage.runtime.fault_link(name, link, proof.fault)
        during = await stage.each(links, partial(_during, stage, p, proof, {links[at] for at in whole}))
        await stage.rest(p)
    finally:
        await _heal(stage, name, links)
        p.ended = stage.now_ns()  # what follows proves that it is over
    p.evidence = {
        "links": [str(link) for link in links],
        "before": [probe.evidence() for probe in seen],
        "during": [probe.evidence() for probe in during],
        **proof.told,
    }
    p.landed = bool(whole) and all(proof.lands(during[at]) for at in whole)
    if not p.landed:
        p.error = proof.wrong if whole else "no link answered before it began"


async def _during(stage: Stage, p: Played, proof: Proof, whole: Container[Link], link: Link) -> Probe:
    """What a link shows while the fault is on. Of one that was whole the first answer that says something, for as long
    as the fault lasts.
    """
    probe = await proof.measure(link)
    with trio.move_on_after(max(0.0, stage.left_s(p) - POLL_S)):
        while link in whole and not (proof.lands(probe) or proof.whole(probe)):
            await trio.sleep(POLL_S)
            probe = await proof.measure(link)
    return probe


async def _before(stage: Stage, links: Sequence[Link], measure: Measure) -> list[Probe]:
    """What is measured before a fault begins: where no link answers, as soon as one does, if that is soon."""
    until = trio.current_time() + WHOLE_WITHIN_S
    while True:
        seen = await stage.each(links, measure)
        if any(probe.ok for probe in seen) or trio.current_time() >= until:
            return seen
        await trio.sleep(POLL_S)


async def flapping(stage: Stage, p: Played) -> None:
    """The targets' links are cut and healed, again and again; each time both are looked at."""
    params = p.fault.params
    down_s, up_s = params["down_ms"] / 1000, params["up_ms"] / 1000
    links, cut = _links(stage, p), Cut(Manner(params["manner"]))
    seen = await _before(stage, links, stage.probe)
    whole = [link for link, probe in zip(links, seen, strict=True) if probe.ok]
    if not whole:
        raise Unresolved("no link answered before it began")
    turns: list[dict[str, Any]] = []
    stage.begun(p)
    try:
        while stage.left_s(p) >= down_s:
            name = f"fault-{p.fault.id}-{len(turns)}"
            for link in links:
                await stage.runtime.fault_link(name, link, cut)
            silent = await _for(down_s, stage.probes(whole, min(PROBE_TIMEOUT_S, 0.8 * down_s)))
            await _heal(stage, name, links)
            up = await _for(min(up_s, max(0.0, stage.left_s(p))), stage.probes(whole, PROBE_TIMEOUT_S))
            turns.append({"down": _answers(silent), "up": _answers(up), "of": len(whole)})
        await trio.sleep(max(0.0, stage.left_s(p)))
    finally:
        await _heal(stage, f"fault-{p.fault.id}-{len(turns)}", links)
        p.ended = stage.now_ns()
    after = await stage.probes_until_ok(whole)
    p.evidence = {"links": [str(link) for link in links], "turns": turns, "after": [each.evidence() for each in after]}
    flapped = bool(turns) and not any(turn["down"] for turn in turns) and any(turn["up"] for turn in turns)
    p.landed = flapped and all(probe.ok for probe in after)
    if not p.landed:
        p.error = "a cut link answered, or a healed one did not"


async def _for(length_s: float, looking: Awaitable[list[Probe]]) -> list[Probe]:
    """What is seen in a time that lasts so long at least."""
    until = trio.current_time() + length_s
    seen = await looking
    await trio.sleep_until(until)
    return seen


def _answers(probes: Sequence[Probe]) -> int:
    return sum(probe.ok for probe in probes)


def _links(stage: Stage, p: Played) -> list[Link]:
    links = links_of(p.fault.params, p.hit, stage.runtime.links())
    if not links:
        raise Unresolved(f"{p.fault.target} has no such links")
    return links


async def _heal(stage: Stage, name: str, links: Sequence[Link]) -> None:
    with trio.CancelScope(shield=True):
        for link in links:
            await stage.runtime.heal_link(name, link)


ACTS: Mapping[str, Play] = {
    "latency": latency,
    "bandwidth": bandwidth,
    "slicer": slicer,
    "limit_data": limit_data,
    "reset_peer": reset_peer,
    "slow_close": slow_close,
    "flapping": flapping,
}
