"""`member_crash`: a member of a group is gone without leaving it. Its coordinator has to find out."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from chaos.faults import proofs
from chaos.faults.kind import EVERYWHERE, Draw, Kind, Number, Params, Setting, Trait
from chaos.faults.link_faults import hit_by
from chaos.faults.pace import POLL_S
from chaos.faults.words import Json, integer

if TYPE_CHECKING:
    from chaos.faults.stage import Played, Stage
    from workloads.control import Handle, InGroup

LEFT_WITHIN_S = 0.25
"""Who says that it leaves is off its coordinator's list by then. Sessions are longer, by more than one heartbeat."""
FOLLOWED_WITHIN_S = 10.0
"""Until a member that may be followed is."""
GONE_WITHIN_S = 60.0
"""Until the coordinator has given a member up: its session, and for as long as other faults keep coordinators away."""


async def play(stage: Stage, p: Played) -> None:
    """Crash the member, and let it have a successor at the end. The proof is its coordinator's."""
    from chaos.faults.acts.members import member_of, settled
    from chaos.faults.targets import Unresolved

    handle, me = member_of(stage, p, named=False), p.fault.id
    known = await settled(stage, handle)
    stage.begun(p)
    gone = handle.crash(me)
    if gone is None:
        raise Unresolved(f"{handle.name} has no process just now")
    p.evidence = {"client": handle.name, **known._asdict(), "process": gone, "followed_by": -1}
    try:
        await _still_listed(stage, p, known)
        await stage.rest(p)
    finally:
        handle.replace(me)
        p.ended = stage.now_ns()
    await _given_up(stage, p, handle, known)
    p.error = proofs.gone_from_group(p.evidence, p.fault.params, ()) or None
    p.landed = p.error is None


async def _still_listed(stage: Stage, p: Played, known: InGroup) -> None:
    """Ask the coordinator when a member that has left would be gone, and its session cannot be over."""
    from chaos.faults.acts.members import listed

    await stage.sleep(LEFT_WITHIN_S)
    answer: bool | None = None
    with stage.within(FOLLOWED_WITHIN_S):
        while answer is None:
            answer = await listed(stage, known.group, known.member_id)
            if answer is None:
                await stage.sleep(POLL_S)
    p.evidence["listed"] = answer is True


async def _given_up(stage: Stage, p: Played, handle: Handle, known: InGroup) -> None:
    """Wait for a successor, and until the coordinator lists the member no more."""
    from chaos.faults.acts.members import listed

    with stage.within(GONE_WITHIN_S):
        while await listed(stage, known.group, known.member_id) is not False:
            await stage.sleep(POLL_S)
        assert p.began is not None
        p.evidence["given_up_s"] = round((stage.now_ns() - p.began) / 1e9, 3)
    with stage.within(FOLLOWED_WITHIN_S):
        while handle.processes[-1] == p.evidence["process"]:
            await stage.sleep(POLL_S)
    p.evidence["followed_by"] = handle.processes[-1]


def refuse(params: Params, setting: Setting) -> str:
    """Somebody has to be a member."""
    return "" if setting.groups else "the workload has no consumer group, and so no members"


def aimed(rng: Random, params: Params) -> str:
    """Any of the members."""
    return "member"


def tell(seen: Json) -> str:
    """Who was gone, what the coordinator said of it just then and later, and who followed."""
    who = str(seen.get("client")).capitalize()
    process, group = seen.get("process"), seen.get("group")
    if not seen.get("listed"):
        return f"{who}: once process {process} was gone, the coordinator of {group} did not list it."
    told = f"{who}: process {process} was gone without leaving group {group}; the coordinator still listed it then"
    if "given_up_s" in seen:
        told += f", and no longer {seen['given_up_s']} s after that process was gone"
    followed = integer(seen.get("followed_by"))
    return f"{told}. {f'Process {followed}' if followed >= 0 else 'Nobody'} followed."


KIND = Kind(
    name="member_crash",
    place=29,
    title="a member of a group is gone without leaving it, and is replaced at the end",
    fault_class="P",
    duration_s=Number(0.5, 600, 2),
    traits=frozenset({Trait.OF_CLIENTS, Trait.NEEDS_MEMBERS}),
    worlds=EVERYWHERE,
    refuse=refuse,
    draw=Draw(target=aimed, lasts_s=(1.0, 5.0)),
    play=play,
    proves=proofs.gone_from_group,
    evidence="the coordinator still listed the member once its process was gone, and gave it up later; a successor",
    tell=tell,
    done=hit_by("member_crash"),
)
