"""Defines the fault `reset`: open connections are reset."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import (
    EVERYWHERE,
    SIDES,
    ChoiceParameter,
    DrawRules,
    Fault,
    FaultKind,
    FaultPlacement,
    FaultTrait,
    NumericParameter,
)
from squall.chaos.faults.link_faults import off_peers, on_clients_side
from squall.chaos.faults.words import Json, objects

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution

LEAST_PERIOD_MS = 1000
"""Is the least time between two resets, in ms, if another fault measures a link. A connection must live long enough for
a slow response.
"""


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Reset the targets' connections at the beginning, and then at intervals until the end."""
    from squall.chaos.faults.acts.links import reset_connections

    await reset_connections(context, p)


def retarget(fault: Fault, placement: FaultPlacement) -> Fault:
    """Return the fault with at least `LEAST_PERIOD_MS` between resets if another fault measures a link at the same
    time.
    """
    measured = any(FaultTrait.MEASURES_LINKS in other.traits and fault.overlaps(other) for other in placement.faults)
    if not fault.params["every_ms"] or not measured:
        return fault
    return replace(fault, params={**fault.params, "every_ms": max(LEAST_PERIOD_MS, fault.params["every_ms"])})


def describe_evidence(seen: Json) -> str:
    """Say how many connections were reset in all, and in how many rounds."""
    counts = [each.get("reset") for each in objects(seen.get("resets"))]
    known = [each for each in counts if isinstance(each, int)]
    count = f"{sum(known)} connections" if known else "The connections there were"
    return f"{count} were reset, {len(counts)} {'time' if len(counts) == 1 else 'times'}."


KIND = FaultKind(
    name="reset",
    place=17,
    title="resets open connections, at the beginning and then at intervals",
    fault_class="N",
    duration_s=NumericParameter(0.1, 600, 1),
    params={"every_ms": NumericParameter(0, 60_000, 0), "side": ChoiceParameter(SIDES, "both")},
    traits=frozenset({FaultTrait.OF_LINKS, FaultTrait.OUT_OF_SYNC, FaultTrait.EITHER_END}),
    worlds=EVERYWHERE,
    draw=DrawRules(
        params=lambda rng: {"every_ms": rng.choice((0, 200, 1000)), "side": rng.choice(SIDES)}, swarm="first"
    ),
    retarget=retarget,
    alone=off_peers,
    of_clients=on_clients_side,
    play=play,
    verify=proofs.reset,
    evidence="how many connections were reset",
    middle="none: each reset is a moment",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: "losing its connections",
)
