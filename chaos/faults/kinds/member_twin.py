"""Defines the fault `member_twin`: the harness starts a second client that joins a group with a member's instance id.
"""

from __future__ import annotations

from collections import Counter
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
from squall.chaos.faults.words import Json, objects

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution
    from squall.workloads.control import DuplicateMember

BEGUN_WITHIN_S = 15.0
"""Limits how long the fault waits until the second client's process has begun, in s. The member starts that process
after a poll, once it has a member id. Before that poll, the member may be paused, or may have to join its group again.
"""
FENCED_WITHIN_S = 30.0
"""Limits how long after its end the fault waits until a coordinator has fenced or refused one of the two processes, in
s. Other faults may make the coordinator unavailable.
"""


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Start the second client. At the end it ends without leaving the group."""
    from squall.chaos.faults.acts.members import member_of, name_of, settled

    handle, me = member_of(context, p, named=True), p.fault.id
    known = await settled(context, handle, at_work=True)
    context.begun(p)
    double = handle.start_duplicate(me)
    try:
        with context.within(BEGUN_WITHIN_S):
            while double.second < 0:
                await context.sleep(POLL_S)
        if double.second >= 0:
            p.on = context.now_ns()
            await context.rest(p)
    finally:
        handle.stop_duplicate(me)
        p.ended = context.now_ns()
    with context.within(FENCED_WITHIN_S):
        while double.second >= 0 and not (double.over and (double.fencings_first or double.fencings_second)):
            await context.sleep(POLL_S)
    p.evidence = {"client": name_of(context, handle), **known._asdict(), **_seen(double)}
    p.error = proofs.instance_id_was_fenced(p.evidence, p.fault.params, ()) or None
    p.landed = p.error is None


def _seen(double: DuplicateMember) -> dict[str, object]:
    first_errors = {"told_first": double.error_first, "told_second": double.error_second}
    processes = ((double.first, double.fencings_first), (double.second, double.fencings_second))
    fenced = [
        {"process": process, "told": error, "times": times}
        for process, fencings in processes
        for error, times in sorted(Counter(fencings).items())
    ]
    return {"first": double.first, "second": double.second, **first_errors, "fenced": fenced}


def refuse(params: Params, setting: PlanCapabilities) -> str:
    """Refuse the fault for a workload whose members have no instance ids."""
    if setting.named:
        return ""
    if setting.groups:
        return "no member has an instance id (workload.static_members, --static-members)"
    return "the workload has no consumer group, and so no members"


def draw_target(rng: Random, params: Params) -> str:
    """Return the target "member": any member with an instance id."""
    return "member"


def describe_evidence(seen: Json) -> str:
    """Name the member that had the instance id, the member that joined with the same id, and the error that each got.
    """
    who = str(seen.get("client")).capitalize()
    joined = f"process {seen.get('second')} joined with the instance id of process {seen.get('first')}"
    errors: dict[object, list[str]] = {seen.get("first"): [], seen.get("second"): []}
    for each in objects(seen.get("fenced")):
        errors.setdefault(each.get("process"), []).append(str(each.get("told")))
    for which, error in (("first", "told_first"), ("second", "told_second")):
        if seen.get(error) and seen[error] not in errors[seen.get(which)]:
            errors[seen.get(which)].append(f"{'in the end ' if errors[seen.get(which)] else ''}{seen[error]}")
    answers = [f"process {process} was told {', '.join(words)}" for process, words in errors.items() if words]
    return f"{who}: {joined}; {' and '.join(answers) or 'neither was told anything'}."


KIND = FaultKind(
    name="member_twin",
    place=30,
    title="a second process joins a group with the instance id of a member",
    fault_class="P",
    duration_s=NumericParameter(0.1, 600, 2),
    traits=frozenset({FaultTrait.OF_CLIENTS, FaultTrait.NEEDS_MEMBERS, FaultTrait.NEEDS_INSTANCE_IDS}),
    worlds=EVERYWHERE,
    refuse=refuse,
    draw=DrawRules(target=draw_target, lasts_s=(1.0, 4.0)),
    play=play,
    verify=proofs.instance_id_was_fenced,
    evidence="the coordinator fenced or refused one of the two processes, because the other has the instance id",
    middle="none: the answer comes once",
    describe_evidence=describe_evidence,
    describe_effect=hit_by("member_twin"),
)
