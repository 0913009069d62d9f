"""Defines the fault `crash_at`: a process is killed just before a chosen write, fsync or send, so that this call never
happens.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, cast

from squall.chaos.errors import HarnessError
from squall.chaos.faults import proofs
from squall.chaos.faults.calls import on_writes, retarget_nth_call
from squall.chaos.faults.kind import ChoiceParameter, DrawRules, FaultKind, FaultTrait, NumericParameter
from squall.chaos.faults.timeouts import LONGER_S
from squall.chaos.faults.words import Json, came_back, mapping, nth
from squall.chaos.runtimes.contract import CrashOp

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Kill the process just before its n-th fsync, write or send since the fault began. Restart the process at the end.
    """
    from squall.chaos.faults.acts.nodes import record_processes

    if len(p.resolved) != 1:
        raise HarnessError(f"a crash point is of one node: {p.fault.target} is {len(p.resolved)}")
    (node,) = p.resolved
    await context.begin_on_running_nodes(p)
    op, number = cast(CrashOp, p.fault.params["op"]), int(p.fault.params["nth"])
    # Extended like faults of requests: now and then a broker writes nothing for a while.
    within_s = p.fault.duration_s + min(p.fault.duration_s, LONGER_S)
    down = await context.runtime.crash_at(node, op, number, within_s=within_s)
    p.evidence = {"down": down}
    if not down.get("gone"):
        p.error = f"node {node} came to no {number}. {op} within {within_s:g} s"
        return
    # Only now: the node ran until its crash point, and then ended by itself.
    context.hold_down(p, [node])
    await context.outlast(p, partial(record_processes, context, p))
    (p.evidence["up"],) = up = await context.release_down(p, [node])
    p.error = proofs.stayed_down(p.evidence, p.resolved) or None
    p.landed = p.error is None and context.came_back(up)


def drawn(rng: Random) -> dict[str, Any]:
    """Draw writes twice as often as fsyncs or sends."""
    return rng.choice(
        [
            {"op": "fsync", "nth": rng.randint(1, 2)},
            {"op": "write", "nth": rng.randint(1, 5)},
            {"op": "write", "nth": 1},
            {"op": "send", "nth": rng.randint(1, 30)},
        ]
    )


def describe_evidence(seen: Json) -> str:
    """Say where the broker was killed, and when its successor was ready."""
    down = mapping(seen.get("down"))
    if not down.get("gone"):
        return f"It came to no {down.get('nth')}. {down.get('op')}."
    where = f" ({down['at']})" if down.get("at") else ""
    words = [f"Killed before its {down.get('nth')}. {down.get('op')}{where}."]
    return " ".join([*words, *came_back([seen.get("up")])])


KIND = FaultKind(
    name="crash_at",
    place=5,
    title="kills the broker just before its n-th fsync, write or send; restart at the end",
    fault_class="P",
    duration_s=NumericParameter(0.2, 600, 3),
    params={"op": ChoiceParameter(("fsync", "write", "send"), "fsync"), "nth": NumericParameter(1, 1_000_000, 1)},
    traits=frozenset(
        {
            *(FaultTrait.ENDS_BY_ITSELF, FaultTrait.OF_ONE_NODE, FaultTrait.COUNTS_SYNCS, FaultTrait.OUT_OF_SYNC),
            *(FaultTrait.NEEDS_OUR_BROKER, FaultTrait.NEEDS_FILES, FaultTrait.NEEDS_HURT_FILES),
        }
    ),
    draw=DrawRules(params=drawn, swarm="first", likely=on_writes),
    retarget=retarget_nth_call,
    play=play,
    verify=proofs.gone_and_back,
    evidence="the broker reached that point, and its process is gone; a new incarnation registers after the restart",
    middle="no process of the node at a drawn moment after that",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: f"to crash at its {nth(params)} {params.get('op', 'fsync')}",
)
