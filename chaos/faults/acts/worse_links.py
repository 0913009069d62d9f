"""Injects faults that make a working link worse: its bytes are late, few a second, in small pieces, or its connections
end early, close late, or are cut and healed again and again.

The proof is a comparison on the same link: a measurement during the fault is compared with measurements just before its
begin and just after its end. A proxy's own report that it applies a fault (a toxic of Toxiproxy) proves nothing. Noise
only makes round trips longer. So the shortest of several round trips are compared, and the effect must be larger than
noise that lasts for seconds.

Other faults may be active on the same link or at its target at the same time. These can only make the link worse. So
each measurement notes which other faults were active. A measurement with the fault is compared only with measurements
without it that were made while at least the same other faults were active. While other faults are active, a comparison
can confirm the fault but never refute it: if two faults slow a link down, the slower one may hide the other.

A link that does not answer (because its broker is down, or another fault cuts it) is left out. At least one link must
prove the fault, and no link may contradict it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import trio

from squall.chaos.errors import HarnessError
from squall.chaos.faults.context import FaultContext, FaultExecution
from squall.chaos.faults.deadline import ExtendableDeadline
from squall.chaos.faults.shapes import links_of
from squall.chaos.faults.targets import UnresolvedTargetError
from squall.chaos.faults.timeouts import LONGER_S, POLL_S, whole_within_s
from squall.chaos.runtimes.contract import Cut, CutMode, Link, LinkFault, NodeState, ProbeResult

ANSWER_BYTES = 2_000
"""Is an upper bound for the size of a probe's response, in bytes. A fault that limits or cuts up the bytes of a link
delays the response as well as the request.
"""
SURE = 0.8
"""Gives the share of the planned effect (such as a delay) that must be measured at least: clocks and timers are not
exact.
"""
OF_MEAN = 0.25
"""Gives the share of the planned average delay that the measured average must reach at least. It matters for a fault
with so much jitter that a single delay may be 0.
"""
LEAST_MS = 1.0
ROUNDS = 3
"""Gives how often each link is measured before, during and after the fault, if there is noise or much jitter."""

Measure = Callable[[Link, float], Awaitable[ProbeResult]]
"""Measures a link. The number is the link's shortest round trip before the fault, in s; 0 before it is known. Time-outs
are longer by this time, because other faults may slow the link down, too.
"""
Timed = Callable[..., Awaitable[ProbeResult]]
"""Measures a link, within the keyword argument `timeout_s`."""
ProbeTest = Callable[[ProbeResult], bool]


@dataclass(frozen=True, slots=True)
class LinkFaultProof:
    """Defines how a fault of a link is measured, and which measurements prove it."""

    fault: LinkFault
    measure: Measure
    is_whole: ProbeTest
    """Returns whether a measurement without the fault shows an intact link. Other measurements are left out."""
    is_usable: ProbeTest
    """Returns whether a measurement during the fault can confirm or contradict the fault. Other measurements are left
    out.
    """
    is_proof: Callable[[Sequence[ProbeResult], Sequence[ProbeResult]], bool]
    """Returns whether measurements prove the fault. The first argument holds those without the fault, the second those
    with it.
    """
    error: str
    """Gives the text to report if measurements contradict the fault."""
    extra_evidence: Mapping[str, Any]
    """Holds numbers that explain the measurements, such as the size of a probe or the least delay that counts. They are
    added to the evidence.
    """
    rounds: int = 1


@dataclass(slots=True)
class LinkMeasurement:
    """Holds the measurements of one link, each with the ids of the other faults that were active at that moment."""

    before: list[tuple[frozenset[int], ProbeResult]] = field(default_factory=list)
    during: list[tuple[frozenset[int], ProbeResult]] = field(default_factory=list)
    after: list[tuple[frozenset[int], ProbeResult]] = field(default_factory=list)

    def is_enough(self, proof: LinkFaultProof) -> bool:
        """Return whether the measurements during the fault prove or contradict it already, or may do so together with
        later ones: at least one was made while no other fault was active.
        """
        alone = any(not others for others, _ in self.during)
        return alone or _against(proof, self.before, self.during) is not None

    def proves(self, proof: LinkFaultProof, *, noise: bool = True) -> bool | None:
        """Return True if the measurements prove the fault, False if they contradict it, and None if they do neither.
        The measurements during the fault are compared twice: with those before it, and with those after it.

        noise: True if round trips may become longer without a fault, as on a real machine. Noise may begin or end
        together with the fault, so both comparisons must prove the fault. There is one exception: if all measurements
        before the fault, or all those after it, were made while other faults were active, the comparison with these
        need not prove it. Without noise (in the simulator) one comparison is always enough.
        """
        sides = [_against(proof, quiet, self.during) for quiet in (self.before, self.after)]
        if False in sides or True not in sides:
            return False if False in sides else None
        if not noise:
            return True
        hidden = [bool(quiet) and all(company for company, _ in quiet) for quiet in (self.before, self.after)]
        return True if all(shown or hid for shown, hid in zip(sides, hidden, strict=True)) else None


def _against(
    proof: LinkFaultProof,
    quiet: Sequence[tuple[frozenset[int], ProbeResult]],
    during: Sequence[tuple[frozenset[int], ProbeResult]],
) -> bool | None:
    """Compare the measurements during the fault with `quiet`, those before or after it. Return True if they prove the
    fault, False if they contradict it, and None if they do neither. A measurement with the fault is compared only with
    measurements without it that were made while at least the same other faults were active.
    """
    shown = None
    for company in dict.fromkeys(company for company, _ in quiet):
        without = [probe for others, probe in quiet if others == company]
        with_it = [probe for others, probe in during if others <= company]
        if with_it and proof.is_proof(without, with_it):
            shown = True
        elif with_it and not company:
            return (
                False  # With company this proves nothing: if two faults slow a link down, only the slower fault shows.
            )
    return shown


def slowdown_proof(
    context: FaultContext,
    fault: LinkFault,
    measure: Timed,
    limit_s: float,
    least_ms: float,
    *,
    mean_ms: float = 0.0,
    is_usable: ProbeTest = lambda probe: probe.ok,
    extra_evidence: Mapping[str, Any] | None = None,
) -> LinkFaultProof:
    """Return the proof of a fault that makes a measurement take longer: by at least `least_ms` each time, and by
    `mean_ms` on average. limit_s: how long a measurement may take if nothing else slows the link down. is_usable:
    returns whether a measurement is usable. Raise HarnessError if the effect is too small to distinguish from noise.
    """
    noise_ms, floor_ms = context.runtime.noise_ms, SURE * least_ms
    if floor_ms < noise_ms:
        raise HarnessError(
            f"round trips that take {least_ms:.3g} ms longer cannot be told from those of a busy machine, which may "
            f"take {noise_ms:g} ms longer by themselves"
        )
    mean_floor_ms = max(LEAST_MS, OF_MEAN * mean_ms)

    def is_proof(without: Sequence[ProbeResult], with_it: Sequence[ProbeResult]) -> bool:
        quiet, slow = [each.round_trip_ms for each in without], [each.round_trip_ms for each in with_it]
        # The shortest ones, because a busy machine only makes round trips longer. With much jitter the shortest may
        # show no delay at all; then the mean must show it.
        return min(slow) - min(quiet) >= floor_ms and fmean(slow) - min(quiet) >= mean_floor_ms

    jittery = least_ms < mean_ms / 2
    return LinkFaultProof(
        fault,
        lambda link, before_s: measure(link, timeout_s=limit_s + before_s),
        is_usable,
        is_usable,
        is_proof,
        f"round trips over a link were not {floor_ms:.3g} ms longer than without the fault, or had no answer",
        {"longer_by_ms": round(floor_ms, 3), **(extra_evidence or {})},
        ROUNDS if noise_ms or jittery else 1,
    )


def connection_end_proof(
    fault: LinkFault,
    measure: Callable[[Link], Awaitable[ProbeResult]],
    is_whole: ProbeTest,
    is_struck: ProbeTest,
    error: str,
    extra_evidence: Mapping[str, Any],
) -> LinkFaultProof:
    """Return the proof of a fault that ends connections. measure: opens a connection over a link, and reports what
    became of it. is_whole, is_struck: return whether a measurement shows a connection that stayed open, or one that the
    fault ended. error: the text to report if measurements contradict the fault.
    """
    return LinkFaultProof(
        fault,
        # No longer time-out than before: the comparison is how long a connection stays open.
        lambda link, before_s: measure(link),
        is_whole,
        lambda probe: is_whole(probe) or is_struck(probe),
        lambda without, with_it: all(map(is_struck, with_it)),
        error,
        extra_evidence,
    )


async def play_measured(context: FaultContext, p: FaultExecution, proof: LinkFaultProof) -> None:
    """Put the fault of `proof` on the targets' links, measure, keep the fault until its end, remove it, and measure
    again.
    """
    links = _links(context, p)
    name = f"fault-{p.fault.id}"
    seen = {link: LinkMeasurement() for link in links}
    # One intact link is enough to begin: others may be dead for the time of another fault, and prove nothing then. At
    # the end every link that was intact must be compared.
    await _measure_without(context, p, proof, {link: seen[link].before for link in links}, enough=any)
    whole = [link for link in links if seen[link].before]
    context.begun(p)
    try:
        await context.put_all(p, name, dict.fromkeys(links, proof.fault))
        before_s = {link: min(probe.round_trip_ms for _, probe in seen[link].before) / 1000 for link in whole}
        await _measure_with(context, p, proof, {link: seen[link].during for link in whole}, before_s)
        await context.rest(p)
        await _outlast_others(context, p, proof, {link: seen[link] for link in whole}, before_s)
    finally:
        await context.lift_all(name, links)
        p.ended = context.now_ns()  # The measurements that follow prove that the fault is over.
    await _measure_without(context, p, proof, {link: seen[link].after for link in whole}, enough=all)
    proven = await _compared(context, p, proof, {link: seen[link] for link in whole})
    p.evidence = {
        "links": [str(link) for link in links],
        **{when: [_shortest(getattr(seen[link], when)) for link in links] for when in ("before", "during", "after")},
        **proof.extra_evidence,
    }
    p.evidence["proven"] = [str(link) for link, shown in zip(whole, proven, strict=True) if shown]
    p.landed = True in proven and False not in proven
    if not p.landed:
        silent = "nothing could be compared: no link answered before, while on and after, in the same company"
        p.error = "no link answered before it began" if not whole else proof.error if False in proven else silent


async def _compared(
    context: FaultContext, p: FaultExecution, proof: LinkFaultProof, seen: Mapping[Link, LinkMeasurement]
) -> list[bool | None]:
    """Return for each link True if it proves the fault, False if it contradicts the fault, and None if it does neither.
    If all are None (other faults were active before and after this fault, but not during it), measure the links again
    once those faults have ended.
    """
    waiting = patience(context, p, list(seen))
    while True:
        proven = [each.proves(proof, noise=context.runtime.noise_ms > 0) for each in seen.values()]
        alone = {link: each.after for link, each in seen.items() if each.during and not context.company(p, link)}
        if set(proven) != {None} or waiting.is_over() or not any(each.during for each in seen.values()):
            return proven
        await trio.sleep(POLL_S)
        await _sample(context, p, proof, proof.is_whole, alone)


async def _outlast_others(
    context: FaultContext,
    p: FaultExecution,
    proof: LinkFaultProof,
    seen: Mapping[Link, LinkMeasurement],
    before_s: Mapping[Link, float],
) -> None:
    """If the measurements with the fault do not prove it, and each was made while other faults were active, extend the
    fault by its own length, but at most by `LONGER_S`, until one is made without them.
    """
    beside = any(others for each in seen.values() for others, _ in each.during)
    if not beside and not any(context.company(p, link) for link in seen):
        return
    with trio.move_on_after(min(p.fault.duration_s, LONGER_S)):
        while not any(each.is_enough(proof) for each in seen.values()):
            await trio.sleep(POLL_S)
            await _sample(
                context, p, proof, proof.is_usable, {link: each.during for link, each in seen.items()}, before_s
            )


Samples = Mapping[Link, list[tuple[frozenset[int], ProbeResult]]]
NOTHING: Mapping[Link, float] = {}


def patience(context: FaultContext, p: FaultExecution, links: Sequence[Link]) -> ExtendableDeadline:
    """Return the deadline for a fault that waits until its links answer. It is extended while other faults keep a link
    from answering.
    """
    return ExtendableDeadline(
        lambda: any(context.company(p, link) for link in links), whole_within_s(context.probe_timeout_s)
    )


async def _sample(
    context: FaultContext,
    p: FaultExecution,
    proof: LinkFaultProof,
    keep: ProbeTest,
    into: Samples,
    before_s: Mapping[Link, float] = NOTHING,
) -> None:
    """Measure each link in `into` once, all at the same time. Append a measurement to the link's list if `keep` accepts
    it and the set of other active faults did not change meanwhile. before_s: the shortest round trip of each link
    before the fault, in s.
    """

    async def one(link: Link) -> ProbeResult:
        company = context.company(p, link)
        probe = await proof.measure(link, before_s.get(link, 0.0))
        if keep(probe) and context.company(p, link) == company:
            into[link].append((company, probe))
        return probe

    await context.each(list(into), one)


async def _measure_without(
    context: FaultContext,
    p: FaultExecution,
    proof: LinkFaultProof,
    into: Samples,
    *,
    enough: Callable[[Sequence[bool]], bool],
) -> None:
    """Measure the links in `into` without the fault, and append each measurement to its link's list. Repeat this for a
    short while until `enough` returns True. `enough` is `any` or `all`. It gets one value for each link whose target
    runs: True if the link's list has a measurement. Then measure each link whose list is not empty `proof.rounds` - 1
    more times.
    """
    waiting = patience(context, p, list(into))
    while True:
        await _sample(context, p, proof, proof.is_whole, into)
        running = [link for link in into if context.runtime.state(link.target) is NodeState.RUNNING]
        if enough([bool(into[link]) for link in running]) or waiting.is_over():
            break
        await trio.sleep(POLL_S)
    # Only links that answered at once: a silent one would cost a time-out in each round.
    for _ in range(proof.rounds - 1):
        await _sample(context, p, proof, proof.is_whole, {link: found for link, found in into.items() if found})


async def _measure_with(
    context: FaultContext, p: FaultExecution, proof: LinkFaultProof, into: Samples, before_s: Mapping[Link, float]
) -> None:
    """Measure the links in `into` with the fault, and append each measurement to its link's list: as soon as the fault
    is active, at a random moment, and shortly before its end. If another fault cuts a link's measurement short, repeat
    the measurement as long as this fault lasts. before_s: the shortest round trip of each link before the fault, in s.
    """
    began, took_s = trio.current_time(), context.left_s(p)
    with trio.move_on_after(max(0.0, took_s - POLL_S)):  # do not wait longer for a link that another fault cuts
        for _ in range(proof.rounds):
            await _sample(context, p, proof, proof.is_usable, into, before_s)
        took_s = trio.current_time() - began
        while silent := {link: found for link, found in into.items() if not found}:
            await trio.sleep(POLL_S)
            await _sample(context, p, proof, proof.is_usable, silent, before_s)
    # Twice the time of the first measurement for each of the two that follow: no measurement may outlast the fault,
    # because a link that is healed meanwhile would contradict it.
    if (spare_s := context.left_s(p) - 4 * took_s - POLL_S) > 0:
        await trio.sleep(spare_s * context.rng(p, "middle").random())
        with trio.move_on_after(context.left_s(p) - POLL_S):
            for _ in range(proof.rounds):
                await _sample(context, p, proof, proof.is_usable, into, before_s)
    spare_s = context.left_s(p) - 2 * took_s - POLL_S
    if spare_s <= 0:
        return
    await trio.sleep(spare_s)
    with trio.move_on_after(max(0.0, context.left_s(p))):
        for _ in range(proof.rounds):
            await _sample(context, p, proof, proof.is_usable, into, before_s)


def _shortest(samples: Sequence[tuple[frozenset[int], ProbeResult]]) -> Mapping[str, Any]:
    """Return evidence: the measurement with the shortest round trip, and the number of samples (`of`). Without samples,
    the evidence is that no probe was answered.
    """
    if not samples:
        return {"ok": False, "round_trip_ms": None, "error": "no answer", "of": 0}
    probe = min((probe for _, probe in samples), key=lambda each: each.round_trip_ms)
    return {**probe.evidence(), "of": len(samples)}


async def cut_in_turns(context: FaultContext, p: FaultExecution) -> None:
    """Cut and heal the targets' links again and again. Probe them in each state."""
    params = p.fault.params
    down_s, up_s = params["down_ms"] / 1000, params["up_ms"] / 1000
    links, cut = _links(context, p), Cut(CutMode(params["manner"]))
    whole = await answering(context, p, links)
    if not whole:
        raise UnresolvedTargetError("no link answered before it began")
    turns: list[dict[str, Any]] = []
    context.begun(p)
    try:
        while context.left_s(p) >= down_s:
            name = f"fault-{p.fault.id}-{len(turns)}"
            on = p.on
            await context.put_all(p, name, dict.fromkeys(links, cut))
            p.on = on or p.on  # the duration counts from the first cut
            answered = await _while_down(context, whole, down_s)
            await context.lift_all(name, links)
            up = await _for(min(up_s, max(0.0, context.left_s(p))), context.probes(whole))
            turns.append({"down": answered, "up": _answers(up), "of": len(whole)})
        await trio.sleep(max(0.0, context.left_s(p)))
    finally:
        # The cut of a turn that was cancelled; after the loop no cut has this name.
        await context.lift_all(f"fault-{p.fault.id}-{len(turns)}", links)
        p.ended = context.now_ns()
    after = await context.probes_until_ok(p, whole)
    p.evidence = {"links": [str(link) for link in links], "turns": turns, "after": [each.evidence() for each in after]}
    flapped = bool(turns) and not any(turn["down"] for turn in turns) and any(turn["up"] for turn in turns)
    p.landed = flapped and all(probe.ok for probe in after)
    if not p.landed:
        p.error = "a cut link answered, or a healed one did not"


async def answering(context: FaultContext, p: FaultExecution, links: Sequence[Link]) -> list[Link]:
    """Return the links that answer. Wait for a while if no link does, or if another fault uses one of the links for its
    proof.
    """
    waiting = patience(context, p, links)
    while True:
        seen = await context.probes(links)
        # A cut that begins while another fault proves itself over one of these links would silence the probes of that
        # proof.
        whole = any(probe.ok for probe in seen) and not context.is_proving(links)
        if whole or waiting.is_over():
            return [link for link, probe in zip(links, seen, strict=True) if probe.ok]
        await trio.sleep(POLL_S)


async def _while_down(context: FaultContext, links: Sequence[Link], down_s: float) -> int:
    """Probe the cut links at the beginning of `down_s` seconds and just before their end. Return how many answered."""
    # Two looks must fit into the cut, with a rest between them.
    until, look_s = trio.current_time() + down_s, min(context.probe_timeout_s, 0.4 * down_s)
    first = await context.probes(links, look_s)
    await trio.sleep_until(until - look_s)
    last = await _for(look_s, context.probes(links, look_s))
    return sum(a.ok or b.ok for a, b in zip(first, last, strict=True))


async def _for(length_s: float, looking: Awaitable[list[ProbeResult]]) -> list[ProbeResult]:
    """Wait for the results of the probes that `looking` makes, but at least for `length_s` seconds. Return the results.
    """
    until = trio.current_time() + length_s
    seen = await looking
    await trio.sleep_until(until)
    return seen


def _answers(probes: Sequence[ProbeResult]) -> int:
    return sum(probe.ok for probe in probes)


def _links(context: FaultContext, p: FaultExecution) -> list[Link]:
    links = links_of(p.fault.params, p.hit, context.runtime.links())
    if not links:
        raise UnresolvedTargetError(f"{p.fault.target} has no such links")
    return links
