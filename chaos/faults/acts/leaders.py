"""Faults by request: elections and moves of partitions, asked for as an administrator would; and the controller's own
resignation, asked for as another controller would.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import trio

from chaos.errors import HarnessError
from chaos.faults.pace import POLL_S
from chaos.faults.stage import Played, Stage
from chaos.faults.targets import ClusterView, Unresolved
from chaos.runtimes.layout import INTERNAL, addresses
from workloads.client import admin
from workloads.client.admin import QuorumView
from workloads.client.client import Client
from workloads.client.cluster import Place
from workloads.client.connection import RequestFailed, UnsupportedApi
from workloads.client.settings import ClientSettings

ASK_MS = 5_000
AGAIN_S = 0.5
"""Between two requests, where the first one is refused."""
NOT_NEEDED = "ELECTION_NOT_NEEDED"
INSIDE = ClientSettings(
    client_id="squall-nemesis", request_timeout_ms=1000, connect_timeout_ms=1000, control_timeout_ms=1000
)

Ask = Callable[[Stage, Played, ClusterView], Awaitable[dict[Place, str]]]


async def change_leaders(stage: Stage, p: Played) -> None:
    """Elections of preferred or unclean leaders, the move of a partition that a target leads or holds, of all that it
    holds, or of some to it.

    Evidence is Metadata before and after, and what the controller answered. What it refuses is asked for again while
    the fault lasts: the one that is to lead may be down or behind. A move is asked for, and followed by an election of
    the new preferred leader; it goes on though the fault is over.
    """
    how = str(p.fault.params["how"])
    stage.begun(p)
    before, answers = await _accepted(stage, p, how)
    stage.check_landed(p, stage.now_ns())
    said = {_name(place): error for place, error in answers.items()}
    accepted = any(error in ("", NOT_NEEDED) for error in said.values())
    after, led = before, set[str]()
    while True:  # the first look is at once: soon another fault may ask for other leaders
        after = await stage.cluster.view()
        led |= {name for name in said if _is_led(how, name, before, after)}
        if (left_s := stage.left_s(p)) <= 0:
            break
        await trio.sleep(min(POLL_S * 5, left_s))
    p.ended = stage.now_ns()
    p.evidence = {"answers": said, "before": _seen(before, list(said)), "after": _seen(after, list(said))}
    elects = how in ("preferred", "unclean")
    p.landed = accepted and (_elected(how, said, before, led) if elects else _is_moved(p, list(said), before, after))
    if not p.landed:
        what = "leaders" if elects else "replicas"
        p.error = f"the {what} are not those that were asked for" if accepted else "the controller refused"


async def _accepted(stage: Stage, p: Played, how: str) -> tuple[ClusterView, dict[Place, str]]:
    """Ask until some of it is accepted, or until the fault is over: what was there before, and the last answers.
    Unresolved or HarnessError where the last request could not be made at all.
    """
    ask: Ask = _rearrange if how in ("drain", "fill") else _move if how == "move" else partial(_elect, how=how)
    before: ClusterView | None = None
    while True:
        before = before or await stage.cluster.view()
        try:
            answers = await ask(stage, p, before)
            if any(error in ("", NOT_NEEDED) for error in answers.values()) or stage.left_s(p) <= AGAIN_S:
                return before, answers
            before = None
        except Unresolved:
            if stage.left_s(p) <= AGAIN_S:
                raise
            before = None
        except UnsupportedApi as failure:  # nor will it be later
            raise HarnessError(f"{how}: {failure}") from None
        except RequestFailed as failure:
            if stage.left_s(p) <= AGAIN_S:
                raise HarnessError(f"{how}: {failure}") from None
            # It may have been done all the same: the very same is asked for again, and compared with what was before.
        await trio.sleep(AGAIN_S)


async def _elect(stage: Stage, p: Played, view: ClusterView, *, how: str) -> dict[Place, str]:
    """Everything that the targets hold; unclean, what has no leader."""
    unclean = how == "unclean"
    held = [name for name, replicas in sorted(view.replicas.items()) if set(replicas) & set(p.resolved)]
    if unclean:
        held = [name for name in held if view.leaders[name] < 0] or held
    if not held:
        raise Unresolved("the targets hold no partition")
    return await admin.elect_leaders(
        stage.cluster.client, [_place(name) for name in held], unclean=unclean, timeout_ms=ASK_MS
    )


async def _move(stage: Stage, p: Played, view: ClusterView) -> dict[Place, str]:
    """One drawn partition of the targets, to other brokers where there are any, in another order in any case."""
    held = [name for name, replicas in sorted(view.replicas.items()) if set(replicas) & set(p.resolved)]
    if not held:
        raise Unresolved("the targets hold no partition")
    rng = stage.rng(p, "move")
    place = _place(rng.choice(held))
    replicas = list(view.replicas[_name(place)])
    others = sorted(set(view.nodes) - set(replicas))
    wanted = replicas[1:] + [rng.choice(others) if others else replicas[0]]
    if wanted == replicas:
        raise Unresolved(f"{_name(place)} has its only replica on the only broker: it cannot be moved")
    answers = await admin.alter_partition_reassignments(stage.cluster.client, {place: wanted}, timeout_ms=ASK_MS)
    if not answers.get(place):
        await trio.sleep(max(0.0, stage.left_s(p) / 2))
        with suppress(RequestFailed):  # the move was accepted: who leads afterwards is no part of its evidence
            await admin.elect_leaders(stage.cluster.client, [place], timeout_ms=ASK_MS)
    return answers


async def _rearrange(stage: Stage, p: Played, view: ClusterView) -> dict[Place, str]:
    """Drain: other brokers hold what the target held, as before it is taken out of a cluster. Fill: it takes one place
    of each partition that it does not hold, as after it was added.
    """
    if len(p.resolved) != 1:
        raise HarnessError(f"one broker at a time: {p.fault.target} is {len(p.resolved)}")
    (node,), rng, moves = p.resolved, stage.rng(p, "move"), {}
    for name, replicas in sorted(view.replicas.items()):
        others = sorted(set(view.nodes) - set(replicas))
        if p.fault.params["how"] == "fill" and node in others:
            leaves, comes = rng.choice(replicas), node
        elif p.fault.params["how"] == "drain" and node in replicas and others:
            leaves, comes = node, rng.choice(others)
        else:
            continue
        moves[_place(name)] = [comes if each == leaves else each for each in replicas]
    if not moves:
        raise Unresolved(f"no partition can be moved off node {node}, or to it")
    return await admin.alter_partition_reassignments(stage.cluster.client, moves, timeout_ms=ASK_MS)


def _is_led(how: str, name: str, before: ClusterView, seen: ClusterView) -> bool:
    """Whether a partition is led as an election should have it: by the first of its replicas; unclean, by anybody."""
    leader = seen.leaders.get(name, -1)
    return leader >= 0 if how == "unclean" else leader in before.replicas.get(name, ())[:1]


def _elected(how: str, said: Mapping[str, str], before: ClusterView, led: set[str]) -> bool:
    """Whether some partition was led as it should be after the answers, and was not before. Of one that needed no
    election it is enough that it was. Who leads later is other faults' business.
    """
    return any(error == NOT_NEEDED or not _is_led(how, name, before, before) for name, error in said.items()
               if error in ("", NOT_NEEDED) and name in led)  # fmt: skip


def _is_moved(p: Played, places: Sequence[str], before: ClusterView, after: ClusterView) -> bool:
    """Whether the replicas are as they were asked to be."""
    how, holds = p.fault.params["how"], [set(p.resolved) <= set(after.replicas.get(name, ())) for name in places]
    if how == "move":
        return any(before.replicas.get(name) != after.replicas.get(name) for name in places)
    return all(holds) if how == "fill" else not any(holds)


async def resign(stage: Stage, p: Played) -> None:
    """The active controller, which must be among the targets, gives up the quorum's leadership and lives on.

    Evidence is who led the quorum, in which epoch, before and after; the same one may be elected again.
    """
    stage.begun(p)
    env = stage.runtime.env(f"resign-{p.fault.id}")
    inside = Client(env, addresses(stage.runtime.bootstrap(INTERNAL)), INSIDE)
    trouble: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(inside.run)
        try:
            await _unseat(stage, p, inside)
        except (HarnessError, Unresolved) as problem:  # as it is, and not as the group that a nursery makes of it
            trouble = problem
        inside.close()
    if trouble is not None:
        raise trouble
    await stage.rest(p)
    p.ended = stage.now_ns()
    p.landed = True


async def _unseat(stage: Stage, p: Played, inside: Client) -> None:
    """Until somebody leads the quorum in a later epoch. HarnessError where nobody does while the fault lasts."""
    asked = 0

    async def successor() -> QuorumView | None:
        nonlocal asked
        quorum = await admin.describe_quorum(inside)
        if quorum.epoch > before.epoch:
            return quorum if quorum.leader_id >= 0 else None
        asked += 1
        await admin.unseat_controller(inside)
        return None

    before = await _answer(stage, p, partial(admin.describe_quorum, inside))
    if before.leader_id not in p.resolved:
        raise Unresolved(f"node {before.leader_id} is the active controller")
    p.evidence = {"before": _quorum(before)}
    after = await _answer(stage, p, successor)
    p.evidence |= {"asked": asked, "after": _quorum(after)}
    if not asked:
        raise Unresolved("another epoch began before it could be asked")


async def _answer(stage: Stage, p: Played, ask: Callable[[], Awaitable[QuorumView | None]]) -> QuorumView:
    """Ask until there is an answer. HarnessError, which says why, where there is none while the fault lasts."""
    why = "no controller followed"
    with trio.move_on_after(stage.left_s(p)):
        while True:
            try:
                found = await ask()
            except (RequestFailed, UnsupportedApi) as failure:
                why, found = str(failure), None
            if found is not None:
                return found
            await trio.sleep(POLL_S)
    raise HarnessError(f"resign: {why}")


def _quorum(view: QuorumView) -> dict[str, int]:
    return {"controller": view.leader_id, "epoch": view.epoch}


def _seen(view: ClusterView, names: Sequence[str]) -> dict[str, object]:
    return {
        name: {"leader": view.leaders.get(name, -1), "replicas": list(view.replicas.get(name, ()))} for name in names
    }


def _place(name: str) -> Place:
    topic, _, index = name.rpartition("-")
    return topic, int(index)


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
