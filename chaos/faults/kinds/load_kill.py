"""Defines the fault `load_kill`: the driver and the executors of a load are killed, each with a batch under way."""

from __future__ import annotations

from dataclasses import asdict
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
    PlanCapabilities,
)
from squall.chaos.faults.link_faults import hit_by
from squall.chaos.faults.timeouts import POLL_S
from squall.chaos.faults.words import Json, integer, objects
from squall.workloads.kill_moments import MOMENTS

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution
    from squall.workloads.control import LoadHandle, LoadKill

ANY = "any"
"""Is the value of the parameter `moment` for a moment that is drawn anew for each kill."""
FIRST_WITHIN_S = 30.0
"""Limits how long the fault waits for its first kill, in s. The fault's duration counts from then on. The wait may be
long: a load without anything new has no batch, and other faults may stop it.
"""
FOLLOWED_WITHIN_S = 10.0
"""Limits how long the fault waits, after its end, until each killed process has a successor, in s."""


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Kill one process of the load after the other until the end of the fault."""
    from squall.chaos.faults.acts.clients import load_of

    load, rng = load_of(context, p), context.rng(p, "kills")
    context.begun(p)
    asked: list[LoadKill] = []
    try:
        with context.within(FIRST_WITHIN_S):
            await _kill(context, p, load, rng, asked)
            p.on = context.now_ns()
        with context.within(context.left_s(p) if p.on is not None else 0.0):
            while True:
                await context.sleep(rng.uniform(0.2, 1.8) * 60 / p.fault.params["per_minute"])
                await _kill(context, p, load, rng, asked)
    finally:
        load.withdraw(p.fault.id)
        p.ended = context.now_ns()
    kills = [kill for kill in asked if kill.process >= 0]
    with context.within(FOLLOWED_WITHIN_S):
        while any(kill.followed_by < 0 for kill in kills):
            await context.sleep(POLL_S)
    p.evidence = {"client": load.name, "kills": [asdict(kill) for kill in kills]}
    p.error = proofs.load_was_killed(p.evidence, p.fault.params, ()) or None
    p.landed = p.error is None


async def _kill(
    context: FaultContext, p: FaultExecution, load: LoadHandle, rng: Random, asked: list[LoadKill]
) -> None:
    """Kill a process of the load, once one comes to the moment."""
    moment = p.fault.params["moment"]
    kill = load.kill(p.fault.id, rng.choice(MOMENTS) if moment == ANY else moment)
    asked.append(kill)
    while kill.process < 0:
        await context.sleep(POLL_S)


def refuse(params: Params, setting: PlanCapabilities) -> str:
    """Refuse the fault for a workload without loads."""
    return "" if setting.loads else "the workload has no load of topics: use --workload load"


def draw_target(rng: Random, params: Params) -> str:
    """Return the target "load": any load."""
    return "load"


def describe_evidence(seen: Json) -> str:
    """Name each process that was killed, its moment and its successor."""
    kills = [
        f"process {each.get('process')} ({each.get('place')}) at {each.get('moment')} of batch {each.get('batch')}, "
        + (f"followed by {each['followed_by']}" if integer(each.get("followed_by")) >= 0 else "followed by none")
        for each in objects(seen.get("kills"))
    ]
    return f"{str(seen.get('client')).capitalize()}: {'; '.join(kills) or 'no process was killed'}."


KIND = FaultKind(
    name="load_kill",
    place=31,
    title="the driver and the executors of a load are killed, one after the other, with a batch under way",
    fault_class="P",
    duration_s=NumericParameter(0.1, 600, 5),
    params={
        "moment": ChoiceParameter((ANY, *MOMENTS), ANY),
        "per_minute": NumericParameter(1, 600, 60),
    },
    traits=frozenset({FaultTrait.OF_CLIENTS, FaultTrait.NEEDS_LOADS}),
    worlds=EVERYWHERE,
    refuse=refuse,
    draw=DrawRules(
        params=lambda rng: {"moment": rng.choice((ANY, ANY, *MOMENTS)), "per_minute": rng.choice((20, 60))},
        target=draw_target,
        lasts_s=(3.0, 9.0),
    ),
    play=play,
    verify=proofs.load_was_killed,
    evidence="each process that was killed, its moment and batch, and the process that took its place",
    middle="none: between two kills the load works on",
    describe_evidence=describe_evidence,
    describe_effect=hit_by("load_kill"),
)
