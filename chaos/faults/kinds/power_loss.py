"""Defines the fault `power_loss`: a machine loses power. Data that was not synced is gone, or torn."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import DrawRules, FaultKind, FaultTrait, NumericParameter
from squall.chaos.faults.words import Json, came_back, mapping

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution
    from squall.chaos.faults.kind import Fault, FaultPlacement

CAUGHT_UP_WITHIN_S = 60.0


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Cut the power of all targets at one moment, and restore it at the end. Data that was not synced may be gone.

    The evidence has each partition's ISR from before (`isr`). From it the checkers find out whether all in-sync
    replicas of a partition lost power. After the end, wait until all partitions of the targets are in sync again. The
    evidence gets that time (`caught_up_ns`; -1: not within `CAUGHT_UP_WITHIN_S`).
    """
    from squall.chaos.faults.acts.nodes import record_processes

    context.check_metadata_survives(p.resolved)
    await context.begin_on_running_nodes(p)
    with context.taking_down(p, p.resolved):
        lost = await context.runtime.power_loss(p.resolved)
    # The fault has landed once the nodes have ended, before their files lose anything.
    async with context.started_after_error(p):
        context.check_landed(p, cast(int, lost.get("ended_ns") or context.now_ns()))
        await context.outlast(p, partial(record_processes, context, p))
    up = await context.release_down(p, p.resolved)
    p.ended = context.now_ns()
    isr = {name: list(ids) for name, ids in p.view.isr.items()} if p.view is not None else {}
    p.evidence |= {"lost": lost, "up": up, "isr": isr, "caught_up_ns": -1}
    by_node: Any = lost.get("nodes", {})
    if not all("bytes_pending" in by_node.get(str(node), {}) for node in p.resolved) or not context.came_back(up):
        p.error = "not every node said what was pending on its disk when the power went, and came back"
    else:
        p.error = proofs.stayed_down(p.evidence, p.resolved) or None
    p.landed = p.error is None
    # Written before the wait: if the run ends meanwhile, the line says that these nodes had not caught up (-1).
    context.note(p)
    with context.within(CAUGHT_UP_WITHIN_S):
        await context.until_in_sync(p.resolved)
        p.evidence["caught_up_ns"] = context.now_ns()


def retarget(fault: Fault, placement: FaultPlacement) -> Fault:
    """Return a kill in place of a power loss that could destroy the metadata. It could if there is only one voter and
    an earlier fault makes fsyncs fail: then no copy may be durable. `FaultContext.check_metadata_survives` would refuse
    that power loss.
    """
    from squall.chaos.faults.vocabulary import make_fault

    forgot = any(FaultTrait.FORGETS_SYNCS in other.traits and other.at_s < fault.at_s for other in placement.faults)
    if placement.cluster.voters > 1 or not (forgot and placement.cluster.flushes):
        return fault
    return make_fault(fault.id, fault.at_s, fault.duration_s, "kill", fault.target, {})


def describe_evidence(seen: Json) -> str:
    """Say how much of its pending data each broker lost."""
    words = []
    for node, lost in mapping(mapping(seen.get("lost")).get("nodes")).items():
        loss = mapping(lost)
        what = f"{loss.get('bytes_lost', '?')} of {loss.get('bytes_pending', '?')} unsynced bytes"
        names = f"{loss.get('names_lost', '?')} of {loss.get('names_pending', '?')} unsynced names"
        words.append(f"Broker {node} lost {what} and {names}.")
    return " ".join([*words, *came_back(seen.get("up"))])


KIND = FaultKind(
    name="power_loss",
    place=6,
    title="the broker loses power: unsynced data may be lost or torn; restart at the end",
    fault_class="W1",
    worse_class="WM",
    duration_s=NumericParameter(0.2, 600, 3),
    traits=frozenset(
        {
            *(FaultTrait.TAKES_DOWN, FaultTrait.OUT_OF_SYNC),
            *(FaultTrait.NEEDS_OUR_BROKER, FaultTrait.NEEDS_FILES, FaultTrait.NEEDS_HURT_FILES),
        }
    ),
    draw=DrawRules(swarm="first"),
    retarget=retarget,
    play=play,
    verify=proofs.lost_power,
    evidence="what was pending on the disk, which bytes and records were lost; a new incarnation registers after the "
    "restart",
    middle="no process of the node at a drawn moment",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: "without power",
)
