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

from chaos.faults.pace import POLL_S, PROBE_TIMEOUT_S, WHOLE_WITHIN_S
from chaos.faults.shapes import links_of
from chaos.faults.stage import Played, Stage
from chaos.faults.targets import Unresolved
from chaos.runtimes.contract import Cut, Link, LinkFault, Manner, Probe

ANSWER_BYTES = 2_000
"""More than an answer to a probe ever has: it goes through the same narrow link."""
SURE = 0.8
"""Of what a fault should take, this part counts as proof: clocks and timers are not exact."""

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


def slower(stage: Stage, fault: LinkFault, floor_ms: float, limit_s: float, pad_bytes: int) -> Proof:
    """Of a fault that makes round trips long: with so many bytes none is shorter than `floor_ms`."""
    return Proof(
        fault,
        partial(stage.runtime.probe, timeout_s=limit_s, pad_bytes=pad_bytes),
        lambda probe: probe.ok and probe.round_trip_ms >= floor_ms,
        lambda probe: probe.ok and probe.round_trip_ms < floor_ms,
        f"a round trip over a slow link took less than {floor_ms:.3g} ms, or had no answer",
        {"pad_bytes": pad_bytes, "floor_ms": round(floor_ms, 3)},
    )


async def worse(stage: Stage, p: Played, proof: Proof, before: Measure | None = None) -> None:
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


async def cut_in_turns(stage: Stage, p: Played) -> None:
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
