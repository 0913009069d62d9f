"""Defines the fault `client`: the harness crashes one of the workload's clients without a close, or pauses it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import (
    EVERYWHERE,
    ChoiceParameter,
    DrawRules,
    FaultKind,
    FaultTrait,
    NumericParameter,
    Params,
)
from squall.chaos.faults.link_faults import hit_by
from squall.chaos.faults.targets import UnresolvedTargetError
from squall.chaos.faults.timeouts import POLL_S
from squall.chaos.faults.words import Json

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution
    from squall.workloads.control import ClientHandle

ALIVE_WITHIN_S = 5.0
"""Limits how long the fault waits for a client's next process to start, in s, if the client has just ended by itself.
Here, as in Jepsen, a process is one life of a client.
"""
FOLLOWED_WITHIN_S = 10.0
"""Limits how long the fault waits until a resumed client, or a crashed client's successor, has done an operation, in s.
"""


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Crash or pause the client, as the parameter `how` says."""
    from squall.chaos.faults.acts.clients import handle_of

    handle = handle_of(context, p)
    await (_crash if p.fault.params["how"] == "crash" else _pause)(context, p, handle)


async def _crash(context: FaultContext, p: FaultExecution, handle: ClientHandle) -> None:
    """End the client at once. At the end of the fault a successor starts, under another process id in the history."""
    me = p.fault.id
    # A client has no process for a moment between two processes, as after a fatal error of a transaction.
    with context.within(ALIVE_WITHIN_S):
        while not handle.alive:
            await context.sleep(POLL_S)
    context.begun(p)
    gone = handle.crash(me)
    if gone is None:
        raise UnresolvedTargetError(f"{handle.name} has no process just now")
    try:
        await context.rest(p)
    finally:
        handle.replace(me)
        p.ended = context.now_ns()
    # Up to here the crashed process must be the last one: an earlier successor would have cut the fault short.
    at_end = len(handle.processes)
    with context.within(FOLLOWED_WITHIN_S):
        while handle.processes[-1] == gone:
            await context.sleep(POLL_S)
    p.evidence = {"client": handle.name, "process": gone, "followed_by": handle.processes[-1]}
    p.landed = handle.processes[-1] != gone and handle.processes[at_end - 1] == gone
    if not p.landed:
        p.error = f"process {gone} of {handle.name} has no successor, or had one before it was over"


async def _pause(context: FaultContext, p: FaultExecution, handle: ClientHandle) -> None:
    """Let the client begin no operation until the end of the fault. The gap is the proof: there are operations before
    the fault, none during it, and more after it.
    """
    me = p.fault.id
    context.begun(p)
    before = handle.done
    handle.hold(me)
    try:
        await context.rest(p)
    finally:
        during = handle.done - before
        handle.let_go(me)
        p.ended = context.now_ns()
    with context.within(FOLLOWED_WITHIN_S):
        while handle.done == before + during:
            await context.sleep(POLL_S)
    after = handle.done - before - during
    p.evidence = {"client": handle.name, "before": before, "during": during, "after": after}
    p.landed = before > 0 and during == 0 and after > 0
    if not p.landed:
        p.error = f"{handle.name} did not stand still, or has done nothing before or after"


def draw_target(rng: Random, params: Params) -> str:
    """Draw a producer for a crash, and a producer or a reader for a pause."""
    return "producer" if params["how"] == "crash" else rng.choice(("producer", "reader"))


def check_target(target: str, params: Params) -> str:
    """Refuse to crash a reader: a reader that crashes leaves no operation with an unknown outcome."""
    crashed = target.partition(":")[0] == "reader" and params["how"] == "crash"
    return "how = 'crash': of producers only" if crashed else ""


def describe_evidence(seen: Json) -> str:
    """Name the process that followed the crashed one, or count the operations before, during and after the pause."""
    who = str(seen.get("client")).capitalize()
    if "process" in seen:
        return f"{who}: process {seen.get('process')} was gone, process {seen.get('followed_by')} followed."
    done = f"{seen.get('before')} things before, {seen.get('during')} meanwhile, {seen.get('after')} at once after"
    return f"{who} began {done}."


KIND = FaultKind(
    name="client",
    place=24,
    title="a producer crashes without a close and is replaced at the end; a producer or reader pauses",
    fault_class="P",
    duration_s=NumericParameter(0.1, 600, 2),
    params={"how": ChoiceParameter(("crash", "pause"), "crash")},
    traits=frozenset({FaultTrait.OF_CLIENTS}),
    worlds=EVERYWHERE,
    check_target=check_target,
    draw=DrawRules(params=lambda rng: {"how": rng.choice(("crash", "pause"))}, target=draw_target, swarm="newer"),
    play=play,
    verify=proofs.client_was_interrupted,
    evidence="the process id in the history changed; or the client sent or polled nothing meanwhile, but did so after",
    middle="it has no successor before the end; or it began nothing from begin to end",
    describe_evidence=describe_evidence,
    describe_effect=hit_by("client"),
)
