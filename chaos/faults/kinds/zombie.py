"""Defines the fault `zombie`: the harness stops a producer inside a transaction while another process takes over its
transactional id, and then lets the producer continue.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import (
    EVERYWHERE,
    DrawRules,
    FaultKind,
    FaultTrait,
    NumericParameter,
    Params,
    PlanCapabilities,
)
from squall.chaos.faults.link_faults import hit_by
from squall.chaos.faults.timeouts import POLL_S
from squall.chaos.faults.words import Json, texts

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution
    from squall.workloads.control import ZombieRun

STOPPED_WITHIN_S = 30.0
"""Limits how long the fault waits until a zombie is stopped and its successor has done a transaction, in s. The fault's
duration counts from then on. The wait may be long: if the clients are members of a group, the group rebalances twice,
and other faults may hit its coordinator.
"""
OVER_WITHIN_S = 15.0
"""Limits how long a resumed zombie may take for all its attempts, in s. Its requests may wait for a coordinator."""


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Stop the producer's client inside a transaction while its successor runs, and let the stopped client continue at
    the end.
    """
    from squall.chaos.faults.acts.clients import handle_of

    handle, me = handle_of(context, p), p.fault.id
    context.begun(p)
    zombie_run = handle.make_zombie(me)
    try:
        with context.within(STOPPED_WITHIN_S):
            while not zombie_run.transactions:
                await context.sleep(POLL_S)
        if zombie_run.transactions:
            p.on = context.now_ns()
            await context.rest(p)
    finally:
        # What the successor does after the zombie continues, does not prove that the zombie was stopped meanwhile.
        before = zombie_run.transactions
        handle.wake(me)
        p.ended = context.now_ns()
    with context.within(OVER_WITHIN_S):
        while zombie_run.zombie >= 0 and not zombie_run.over:
            await context.sleep(POLL_S)
    p.evidence = {"client": handle.name, **_seen(zombie_run), "ended": before}
    p.error = proofs.zombie_was_fenced(p.evidence, p.fault.params, ()) or None
    p.landed = p.error is None


def _seen(zombie_run: ZombieRun) -> dict[str, object]:
    tried = {
        "early": zombie_run.early,
        "sends": zombie_run.sends,
        "ends": zombie_run.ends,
        "told": list(zombie_run.results),
    }
    return {"zombie": zombie_run.zombie, "followed_by": zombie_run.successor, **tried}


def refuse(params: Params, setting: PlanCapabilities) -> str:
    """Refuse producers without transactions: only transactional ids are taken over, and only a producer with records to
    write can be stopped inside a transaction.
    """
    if setting.zombies:
        return ""
    if setting.transactional:
        return (
            "none of the instances can stand still inside a transaction: those of client libraries cannot, and with "
            "fewer partitions than instances one may own none"
        )
    return "the workload has no transactional producers"


def check_target(target: str, params: Params) -> str:
    """Refuse a reader, because a reader has no transactional id."""
    return "of producers only" if target.partition(":")[0] == "reader" else ""


def draw_target(rng: Random, params: Params) -> str:
    """Return the target "producer": any producer."""
    return "producer"


def describe_evidence(seen: Json) -> str:
    """Name the process that was stopped and its successors, and describe what the successors did meanwhile and what the
    zombie tried afterwards.
    """
    who, zombie = str(seen.get("client")).capitalize(), seen.get("zombie")
    stood = f"{who}: process {zombie} stood still inside a transaction; process {seen.get('followed_by')} took over"
    stood += f" its transactional id, and ended {seen.get('ended')} of its own."
    tried = f"Then process {zombie} began {seen.get('sends')} sends and {seen.get('ends')} ends"
    results = ", ".join(dict.fromkeys(texts(seen.get("told"))))
    return f"{stood} {tried}: {results or 'no outcome'}."


KIND = FaultKind(
    name="zombie",
    place=27,
    title="a producer pauses inside a transaction, another takes over its id, and then the first one writes again",
    fault_class="P",
    duration_s=NumericParameter(0.1, 600, 2),
    traits=frozenset({FaultTrait.OF_CLIENTS, FaultTrait.NEEDS_TRANSACTIONS}),
    worlds=EVERYWHERE,
    refuse=refuse,
    check_target=check_target,
    draw=DrawRules(target=draw_target, lasts_s=(1.0, 3.0)),
    play=play,
    verify=proofs.zombie_was_fenced,
    evidence="another process got the id and did a transaction while the zombie was paused; what the zombie then tried",
    middle="it did nothing from begin to end, which its own counters show",
    describe_evidence=describe_evidence,
    describe_effect=hit_by("zombie"),
)
