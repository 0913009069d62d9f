"""Defines the fault `member_crash`: a member of a group ends without leaving the group, and its coordinator must
notice.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from squall.chaos.errors import HarnessError
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
from squall.chaos.faults.words import Json, integer

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution
    from squall.workloads.control import ClientHandle, GroupIdentity

LEFT_WITHIN_S = 0.25
"""Gives how long after the crash the coordinator is asked whether it still lists the member, in s. By then the
coordinator has removed any member that sent LeaveGroup. A session time-out is longer, by more than one heartbeat.
"""
FOLLOWED_WITHIN_S = 10.0
"""Limits how long the fault waits until a crashed member has a successor, in s."""
GONE_WITHIN_S = 60.0
"""Limits how long after its planned end the fault waits until the coordinator has removed the crashed member, in s. The
member's session must time out, and other faults may make the coordinator unavailable for a while.
"""


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Crash the member, and start a successor at the end. The coordinator's answers are the proof."""
    import trio

    from squall.chaos.faults.acts.members import member_of, name_of, settled
    from squall.chaos.faults.targets import UnresolvedTargetError

    handle, me = member_of(context, p, named=False), p.fault.id
    known = await settled(context, handle)
    context.begun(p)
    gone = handle.crash(me)
    if gone is None:
        raise UnresolvedTargetError(f"{name_of(context, handle)} has no process just now")
    p.evidence = {"client": name_of(context, handle), **known._asdict(), "process": gone, "followed_by": -1}
    late: HarnessError | None = None
    async with trio.open_nursery() as watching:
        watching.start_soon(_watch, context, p, handle, known)
        try:
            await _still_listed(context, p, known)
            await context.rest(p)
        except HarnessError as trouble:
            # Raised below: from inside the nursery it would come wrapped in a group, which the nemesis does not catch.
            late = trouble
            watching.cancel_scope.cancel()
        finally:
            handle.replace(me)
            p.ended = context.now_ns()
    if late is not None:
        raise late
    p.error = proofs.gone_from_group(p.evidence, p.fault.params, ()) or None
    p.landed = p.error is None


async def _still_listed(context: FaultContext, p: FaultExecution, known: GroupIdentity) -> None:
    """Record whether the coordinator still lists the member `LEFT_WITHIN_S` after the crash. By then a member that had
    sent LeaveGroup would be gone, but no session can have timed out: so a listed member has crashed, and not left.
    """
    from squall.chaos.faults.acts.members import listed

    await context.sleep(LEFT_WITHIN_S)
    answer: bool | None = None
    with context.within(FOLLOWED_WITHIN_S):
        while answer is None:
            answer = await listed(context, known.group, known.member_id)
            if answer is None:
                await context.sleep(POLL_S)
    p.evidence["listed"] = answer is True


async def _watch(context: FaultContext, p: FaultExecution, handle: ClientHandle, known: GroupIdentity) -> None:
    """Ask the coordinator until it no longer lists the member, then wait for a successor. The successor of a static
    member may take over its instance id before the member's session times out.
    """
    from squall.chaos.faults.acts.members import members_of

    others: frozenset[str] | None = None
    asked_s = listed_s = 0.0
    with context.within(p.fault.duration_s + GONE_WITHIN_S):
        while others is None or known.member_id in others:
            await context.sleep(POLL_S)
            asked_s = _since(context, p)
            others = await members_of(context, known.group)
            if others is not None and known.member_id in others:
                listed_s = asked_s
        gone_s = _since(context, p)
    if others is None or known.member_id in others:
        return
    with context.within(p.fault.duration_s + FOLLOWED_WITHIN_S):
        while handle.processes[-1] == p.evidence["process"]:
            await context.sleep(POLL_S)
        p.evidence["followed_by"] = handle.processes[-1]
    with context.within(FOLLOWED_WITHIN_S):
        while known.instance and not handle.group_identity().member_id:
            await context.sleep(POLL_S)
    successor = handle.group_identity().member_id
    # A static member's successor gets another member id for the same instance id (KIP-345): the old id leaves
    # the group before its session times out.
    taken = bool(known.instance) and successor != known.member_id and successor in others
    p.evidence["listed_until_s"] = listed_s
    p.evidence["taken_over_s" if taken else "given_up_s"] = gone_s


def _since(context: FaultContext, p: FaultExecution) -> float:
    assert p.began is not None
    return round((context.now_ns() - p.began) / 1e9, 3)


def refuse(params: Params, setting: PlanCapabilities) -> str:
    """Refuse the fault for a workload without members of groups."""
    return "" if setting.groups else "the workload has no consumer group, and so no members"


def draw_target(rng: Random, params: Params) -> str:
    """Return the target "member": any member."""
    return "member"


def describe_evidence(seen: Json) -> str:
    """Name the member that crashed, its states at the coordinator at the crash and later, and its successor."""
    who = str(seen.get("client")).capitalize()
    process, group = seen.get("process"), seen.get("group")
    if not seen.get("listed"):
        return f"{who}: once process {process} was gone, the coordinator of {group} did not list it."
    sentence = f"{who}: process {process} was gone without leaving group {group}; the coordinator still listed it then"
    last_s = seen.get("listed_until_s")
    since = f"between {last_s} and" if last_s is not None else "at the latest"
    if "taken_over_s" in seen:
        sentence += f", until its successor took its place {since} {seen['taken_over_s']} s after that process was gone"
    elif "given_up_s" in seen:
        sentence += f", and gave it up {since} {seen['given_up_s']} s after that process was gone"
    followed = integer(seen.get("followed_by"))
    return f"{sentence}. {f'Process {followed}' if followed >= 0 else 'Nobody'} followed."


KIND = FaultKind(
    name="member_crash",
    place=29,
    title="a member's process ends without leaving its group, and is replaced at the end",
    fault_class="P",
    duration_s=NumericParameter(0.5, 600, 2),
    traits=frozenset({FaultTrait.OF_CLIENTS, FaultTrait.NEEDS_MEMBERS}),
    worlds=EVERYWHERE,
    refuse=refuse,
    draw=DrawRules(target=draw_target, lasts_s=(1.0, 5.0)),
    play=play,
    verify=proofs.gone_from_group,
    evidence="the coordinator still listed the member after its process was gone, but not later; a successor",
    middle="the coordinator is asked ten times a second",
    describe_evidence=describe_evidence,
    describe_effect=hit_by("member_crash"),
)
