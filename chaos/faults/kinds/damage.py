"""Defines the fault `damage`: a broker is killed, and its disk loses synced data."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from squall.chaos.errors import HarnessError
from squall.chaos.faults import proofs
from squall.chaos.faults.kind import (
    ChoiceParameter,
    DrawRules,
    Fault,
    FaultKind,
    FaultPlacement,
    FaultTrait,
    NumericParameter,
)
from squall.chaos.faults.targets import UnresolvedTargetError
from squall.chaos.faults.timeouts import POLL_S
from squall.chaos.faults.words import Json, mapping
from squall.chaos.runtimes.damage import How

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution

IN_SYNC_WITHIN_S = 8.0
CAUGHT_UP_WITHIN_S = 60.0


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Kill a node, remove data from its disk while it is down, and start the node at the end.

    The fault needs every partition of the node to be in sync on all replicas. Otherwise the node might have held the
    only copy, and no verdict would be possible. Even then a copy may be missing: another node may be gone although the
    cluster has not noticed it yet, or may go down before this node has caught up. So the evidence says which replicas
    were in sync before (`isr`), and when the node was in sync again (`caught_up_ns`; -1: not within the available
    time).
    """
    how, size = cast(How, p.fault.params["how"]), int(p.fault.params["bytes"])
    from squall.chaos.faults.acts.nodes import record_processes

    if len(p.resolved) != 1:
        raise HarnessError(f"one disk at a time is damaged: {p.fault.target} is {len(p.resolved)}")
    (node,) = p.resolved
    await _in_sync(context, p, node)
    await context.begin_on_running_nodes(p)
    if lacking := _lacking(p, node):
        raise UnresolvedTargetError(f"{', '.join(lacking)} not in sync: what is damaged now may be the only copy")
    # The damage is part of going down: a fault that waits for the node must not find its file half damaged.
    with context.taking_down(p, [node]):
        down = await context.runtime.kill(node)
        damaged = await context.runtime.damage(node, how, size=size)
    isr = {name: list(ids) for name, ids in p.view.isr.items()} if p.view is not None else {}
    p.evidence = {"down": down, "damaged": damaged, "isr": isr, "caught_up_ns": -1}
    async with context.started_after_error(p):
        await context.rest(p, partial(record_processes, context, p))
    (p.evidence["up"],) = up = await context.release_down(p, [node])
    p.ended = context.now_ns()
    lost = damaged.get("path") is not None and damaged.get("before") != damaged.get("after")
    if not lost:
        p.error = "there was nothing to damage"
    elif not down.get("gone") or not context.came_back(up):
        p.error = f"no evidence that node {node} was gone and came back"
    else:
        p.error = proofs.stayed_down(p.evidence, p.resolved) or None
    p.landed = p.error is None
    # Written before the wait: if the run ends meanwhile, the line says that the node had not caught up (-1).
    context.note(p)
    with context.within(CAUGHT_UP_WITHIN_S):
        await context.until_in_sync(p.resolved)
        p.evidence["caught_up_ns"] = context.now_ns()


async def _in_sync(context: FaultContext, p: FaultExecution, node: int) -> None:
    """Wait until every partition of the node has a full ISR, but at most `IN_SYNC_WITHIN_S`: followers may still lag
    because of an earlier fault.
    """
    with context.within(IN_SYNC_WITHIN_S):
        while _lacking(p, node):
            await context.sleep(POLL_S)
            p.view = await context.cluster.view()


def retarget(fault: Fault, placement: FaultPlacement) -> Fault:
    """Return the fault changed so that there is something to damage. The target becomes a node that leads. The damage
    becomes the loss of a segment's end if there may be no closed segment yet.
    """
    cluster = placement.cluster
    closed = cluster.rate * fault.at_s / cluster.places >= cluster.closes_after
    how = fault.params["how"] if closed else "tail"
    return replace(fault, target="leader", params={**fault.params, "how": how})


def _lacking(p: FaultExecution, node: int) -> list[str]:
    assert p.view is not None, "it was resolved"
    held = [name for name, replicas in p.view.replicas.items() if node in replicas]
    return sorted(name for name in held if set(p.view.isr.get(name, ())) != set(p.view.replicas[name]))


def describe_evidence(seen: Json) -> str:
    """Name the file, and say how much of it is left."""
    done = mapping(seen.get("damaged"))
    if not done.get("path"):
        return "There was nothing to damage."
    left = "it was lost" if done.get("bytes_left") is None else f"{done['bytes_left']} bytes were left"
    return f"While it was down: {done['path']}, of {done.get('bytes')} bytes; {left}."


KIND = FaultKind(
    name="damage",
    place=21,
    title="kills the broker; while it is down, a segment loses its end or a closed file is lost; restart at the end",
    fault_class="D",
    worse_class="DM",
    duration_s=NumericParameter(0.2, 600, 3),
    params={"how": ChoiceParameter(("tail", "file"), "tail"), "bytes": NumericParameter(1, 10_000_000, 1000)},
    traits=frozenset(
        {
            *(FaultTrait.TAKES_DOWN, FaultTrait.OF_ONE_NODE, FaultTrait.DAMAGES_FILES, FaultTrait.OUT_OF_SYNC),
            *(FaultTrait.NEEDS_OUR_BROKER, FaultTrait.NEEDS_FILES),
        }
    ),
    draw=DrawRules(
        params=lambda rng: {"how": rng.choice(("tail", "file", "file")), "bytes": rng.choice((1, 100, 10_000))},
        swarm="newer",
    ),
    retarget=retarget,
    play=play,
    verify=proofs.damaged,
    evidence="the file's size and digest before and after; the process is gone; a new incarnation registers",
    middle="no process of the node at a drawn moment",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: (
        f"killed, and losing {'the end of a segment' if params.get('how') == 'tail' else 'a file'}"
    ),
)
