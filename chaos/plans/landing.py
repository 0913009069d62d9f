"""Changes the targets of drawn faults so that each fault can have an effect, because a fault without effect proves
nothing. It does no I/O.

The faults overlap as often as the draws say. Only three targets are avoided: a node that another fault holds down, an
fsync on a node that does not call fsync, and a request that is never sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from squall.chaos.draws import rng_for
from squall.chaos.faults.kind import HOLDING, ClusterTraits, Fault, FaultPlacement, FaultTrait
from squall.chaos.plans.schedule import of_one_broker

NEEDING = HOLDING | {FaultTrait.NEEDS_NODE}
"""Names the traits of faults whose target nodes must run from the fault's begin until its effect is proven."""
COMES_BACK_S = 1.0
"""Gives how much longer than its fault a node may be down, in s, because its start waits for a quorum."""


def landing(seed: int, faults: Sequence[Fault], cluster: ClusterTraits) -> tuple[Fault, ...]:
    """Return the drawn faults, each with a target on which it can have an effect. Faults for which no node is left are
    dropped.
    """
    placement = FaultPlacement(seed, cluster, faults)
    reached = [of_one_broker(fault) if cluster.nodes == 1 else fault for fault in faults]
    return _apart(seed, [fault.kind.retarget(fault, placement) for fault in reached], cluster.nodes)


def _apart(seed: int, faults: list[Fault], nodes: int) -> tuple[Fault, ...]:
    """Move faults that conflict (`faults_conflict`) to different nodes, and drop those for which no node is left."""
    kept: dict[int, Fault] = {}
    for fault in sorted(faults, key=lambda each: each.at_s):
        rivals = [other for other in faults if other is not fault and faults_conflict(fault, other)]
        if not rivals:
            kept[fault.id] = fault
            continue
        taken = {kept[other.id].target for other in rivals if other.id in kept}
        free = [name for name in (f"node:{n}" for n in range(1, nodes + 1)) if name not in taken]
        if free:
            kept[fault.id] = replace(fault, target=rng_for(seed, "swarm", "apart", fault.id).choice(free))
    return tuple(kept[fault.id] for fault in faults if fault.id in kept)


def faults_conflict(one: Fault, other: Fault) -> bool:
    """Return whether two faults conflict: they overlap in time, and each needs its nodes to run, or takes nodes down or
    pauses them.
    """
    return bool(one.traits & NEEDING and other.traits & NEEDING) and one.overlaps(other, COMES_BACK_S)
