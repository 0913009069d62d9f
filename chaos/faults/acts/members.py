"""Finds the members of the workload's groups, and asks coordinators which members they know."""

from __future__ import annotations

import trio

from squall.chaos.faults.context import FaultContext, FaultExecution
from squall.chaos.faults.targets import UnresolvedTargetError, check_target
from squall.chaos.faults.timeouts import POLL_S
from squall.workloads.client import admin
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from squall.workloads.control import ClientHandle, GroupIdentity

ASKED_WITHIN_S = 2.0
"""Limits how long the harness waits for a coordinator's answer to one question, in s."""
MEMBER_WITHIN_S = 15.0
"""Limits how long a fault waits until a client runs and its coordinator knows it as a member, in s. Other faults may
have removed the client from its group.
"""


def member_of(context: FaultContext, p: FaultExecution, *, named: bool) -> ClientHandle:
    """Return the member that the fault's target names. If the target names none, return a random member, preferably one
    that owns partitions. named: only members with an instance id count. Raise UnresolvedTargetError if there is no such
    member.
    """
    _, number = check_target("target", p.fault.target)
    if context.clients is None:
        raise UnresolvedTargetError("there is no workload")
    numbers = context.clients.named if named else range(len(context.clients.members))
    if not numbers or (number and int(number) not in numbers):
        raise UnresolvedTargetError(f"there is no member {number}{' with an instance id' if named else ''}")
    members, random = context.clients.members, context.rng(p, "target")
    if number:
        return members[int(number)]
    drawn, owners = members[random.choice(numbers)], [each for each in numbers if members[each].group_identity().owns]
    # A member without partitions is idle: the group loses nothing with it, and the fault may not land.
    return drawn if drawn.group_identity().owns or not owners else members[random.choice(owners)]


def name_of(context: FaultContext, handle: ClientHandle) -> str:
    """Return the member's name, such as "member 2". A client's number as a member differs from its number as a reader
    or producer.
    """
    assert context.clients is not None
    return f"member {context.clients.members.index(handle)}"


async def members_of(context: FaultContext, group: str) -> frozenset[str] | None:
    """Return the ids of the members that the group's coordinator knows, or None if no coordinator answers."""
    with trio.move_on_after(ASKED_WITHIN_S):
        try:
            return await admin.group_members(context.cluster.client, group)
        except (RequestFailed, UnsupportedApi):
            return None
    return None


async def listed(context: FaultContext, group: str, member_id: str) -> bool | None:
    """Return whether the group's coordinator knows a member with this id, or None if no coordinator answers."""
    known = await members_of(context, group)
    return None if known is None else member_id in known


async def settled(context: FaultContext, handle: ClientHandle, *, at_work: bool = False) -> GroupIdentity:
    """Return the identity of a client's group member, once the group's coordinator knows it. `at_work`: wait also until
    the client has begun another poll, which shows that its process is not paused. Raise UnresolvedTargetError if that
    takes too long.
    """
    with context.within(MEMBER_WITHIN_S):
        while True:
            known, done = handle.group_identity(), handle.done
            while at_work and handle.done == done:
                await context.sleep(POLL_S)
            if handle.alive and known.member_id and await listed(context, known.group, known.member_id):
                # The member may have ended, or have joined under another id, while its coordinator answered.
                if handle.alive and handle.group_identity() == known:
                    return known
            await context.sleep(POLL_S)
    raise UnresolvedTargetError(
        f"{name_of(context, handle)} is not {'at work ' if at_work else ''}in its group just now"
    )
