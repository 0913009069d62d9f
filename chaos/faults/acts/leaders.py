"""Plays faults that are requests: an administrator's request elects leaders or moves partitions; a request in another
controller's name makes the active controller resign.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import trio

from squall.chaos.errors import HarnessError
from squall.chaos.faults.context import FaultContext, FaultExecution
from squall.chaos.faults.deadline import ExtendableDeadline
from squall.chaos.faults.targets import ClusterSnapshot, UnresolvedTargetError, resolve
from squall.chaos.faults.timeouts import POLL_S
from squall.chaos.runtimes.layout import INTERNAL, addresses
from squall.workloads.client import admin
from squall.workloads.client.admin import QuorumDescription
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from squall.workloads.client.settings import ClientSettings

ASK_MS = 5_000
AGAIN_S = 0.5
"""Gives the pause between two requests if the first request is refused, in s."""
NOT_NEEDED = "ELECTION_NOT_NEEDED"
INSIDE = ClientSettings(
    client_id="squall-nemesis", request_timeout_ms=1000, connect_timeout_ms=1000, control_timeout_ms=1000
)

Ask = Callable[[FaultContext, FaultExecution, ClusterSnapshot], Awaitable[dict[Place, str]]]


async def change_leaders(context: FaultContext, p: FaultExecution) -> None:
    """Send the request that the fault's parameter `how` names: an election of preferred or of unclean leaders for the
    target's partitions; a move of one partition of the target; or the moves of many replicas off the target (drain) or
    onto it (fill).

    Evidence is Metadata before and after, and the controller's answers. A refused request is repeated while the fault
    lasts, and longer while other faults are active: the controller may be down, or the broker that should lead may be
    down or out of sync. If the request is accepted only after the planned end, the fault's duration begins anew at that
    moment. After a move, an election of the new preferred leader is requested. A move may finish after the fault is
    over.
    """
    how = str(p.fault.params["how"])
    context.begun(p)
    before, answers = await _accepted(context, p, how)
    if context.left_s(p) <= 0:
        p.on = context.now_ns()
    if how == "move":
        await _elect_moved(context, p, [place for place, error in answers.items() if not error])
    said = {_name(place): error for place, error in answers.items()}
    accepted = any(error in ("", NOT_NEEDED) for error in said.values())
    after, led = before, set[str]()
    while True:  # Look at once: another fault may soon ask for other leaders.
        after = await context.cluster.view()
        led |= {name for name in said if _is_led(how, name, before, after)}
        if (left_s := context.left_s(p)) <= 0:
            break
        await trio.sleep(min(POLL_S * 5, left_s))
    p.ended = context.now_ns()
    p.evidence = {"answers": said, "before": _seen(before, list(said)), "after": _seen(after, list(said))}
    elects = how in ("preferred", "unclean")
    p.landed = accepted and (_elected(how, said, before, led) if elects else _is_moved(p, list(said), before, after))
    if not p.landed:
        what = "leaders" if elects else "replicas"
        p.error = f"the {what} are not those that were asked for" if accepted else "the controller refused"


async def _elect_moved(context: FaultContext, p: FaultExecution, moved: list[Place]) -> None:
    """Halfway through the fault, request an election of preferred leaders for the partitions in `moved`. Ignore a
    failure: the fault's proof is the move, and not this election.
    """
    await trio.sleep(max(0.0, context.left_s(p) / 2))
    with suppress(RequestFailed), context.within(max(0.0, context.left_s(p))):
        if moved:
            await admin.elect_leaders(context.cluster.client, moved, timeout_ms=ASK_MS)


async def _accepted(context: FaultContext, p: FaultExecution, how: str) -> tuple[ClusterSnapshot, dict[Place, str]]:
    """Repeat the request until the controller accepts it for at least one partition, or until it is too late. Return
    the cluster's state from before the request, and the controller's last answers. Raise UnresolvedTargetError or
    HarnessError if even the last attempt could not send the request.
    """
    waiting = ExtendableDeadline(lambda: context.any_other_on(p))
    ask: Ask = _drain_or_fill if how in ("drain", "fill") else _move if how == "move" else partial(_elect, how=how)
    before: ClusterSnapshot | None = None
    while True:
        before = before or await context.cluster.view()
        try:
            answers = await ask(context, p, before)
            if any(error in ("", NOT_NEEDED) for error in answers.values()) or _is_over(context, p, waiting):
                return before, answers
            # This request changed nothing: compare the next one with a fresh view.
            before = None
        except UnresolvedTargetError:
            if _is_over(context, p, waiting):
                raise
            before = None
        except UnsupportedApi as failure:  # A later request would fail as well.
            raise HarnessError(f"{how}: {failure}") from None
        except RequestFailed as failure:
            if _is_over(context, p, waiting):
                raise HarnessError(f"{how}: {failure}") from None
            # The cluster may have carried the request out. Repeat the same request and compare with the same earlier
            # view.
        await trio.sleep(AGAIN_S)


def _is_over(context: FaultContext, p: FaultExecution, waiting: ExtendableDeadline) -> bool:
    """Return whether it is too late to send the request once more: the fault's duration has passed, and so has
    `waiting`, which lasts longer while other faults are active.
    """
    return context.left_s(p) <= AGAIN_S and waiting.is_over()


async def _elect(context: FaultContext, p: FaultExecution, view: ClusterSnapshot, *, how: str) -> dict[Place, str]:
    """Request elections for all partitions of which a target broker has a replica. For unclean elections, choose the
    partitions without a leader if there are any.
    """
    unclean = how == "unclean"
    held = [name for name, replicas in sorted(view.replicas.items()) if set(replicas) & set(p.resolved)]
    if unclean:
        held = [name for name in held if view.leaders[name] < 0] or held
    if not held:
        raise UnresolvedTargetError("the targets hold no partition")
    return await admin.elect_leaders(
        context.cluster.client, [_place(name) for name in held], unclean=unclean, timeout_ms=ASK_MS
    )


async def _move(context: FaultContext, p: FaultExecution, view: ClusterSnapshot) -> dict[Place, str]:
    """Move one random partition of the target brokers. Drop its first replica, and append a broker that has no replica
    of it, or the same broker again if every broker has one. So its preferred leader always changes.
    """
    held = [name for name, replicas in sorted(view.replicas.items()) if set(replicas) & set(p.resolved)]
    if not held:
        raise UnresolvedTargetError("the targets hold no partition")
    rng = context.rng(p, "move")
    place = _place(rng.choice(held))
    replicas = list(view.replicas[_name(place)])
    others = sorted(set(view.nodes) - set(replicas))
    wanted = replicas[1:] + [rng.choice(others) if others else replicas[0]]
    if wanted == replicas:
        raise UnresolvedTargetError(f"{_name(place)} has its only replica on the only broker: it cannot be moved")
    return await admin.alter_partition_reassignments(context.cluster.client, {place: wanted}, timeout_ms=ASK_MS)


async def _drain_or_fill(context: FaultContext, p: FaultExecution, view: ClusterSnapshot) -> dict[Place, str]:
    """Request the moves of a drain or of a fill. In a drain, other brokers take over all replicas of the target, as
    before a broker leaves a cluster. In a fill, the target takes one replica of each partition that it does not hold,
    as after a broker joins.
    """
    if len(p.resolved) != 1:
        raise HarnessError(f"one broker at a time: {p.fault.target} is {len(p.resolved)}")
    (node,), rng, moves = p.resolved, context.rng(p, "move"), {}
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
        raise UnresolvedTargetError(f"no partition can be moved off node {node}, or to it")
    return await admin.alter_partition_reassignments(context.cluster.client, moves, timeout_ms=ASK_MS)


def _is_led(how: str, name: str, before: ClusterSnapshot, seen: ClusterSnapshot) -> bool:
    """Return whether the partition has the leader that the election asked for: its first replica, or after an unclean
    election any broker.
    """
    leader = seen.leaders.get(name, -1)
    return leader >= 0 if how == "unclean" else leader in before.replicas.get(name, ())[:1]


def _elected(how: str, said: Mapping[str, str], before: ClusterSnapshot, led: set[str]) -> bool:
    """Return whether at least one election succeeded: it gave a partition the leader that was asked for. This must be a
    new leader, unless the controller answered that the partition needs no election. said: the controller's answer for
    each partition. led: the partitions that had the right leader at some moment after the request. Another fault may
    have changed the leader since.
    """
    return any(error == NOT_NEEDED or not _is_led(how, name, before, before) for name, error in said.items()
               if error in ("", NOT_NEEDED) and name in led)  # fmt: skip


def _is_moved(p: FaultExecution, places: Sequence[str], before: ClusterSnapshot, after: ClusterSnapshot) -> bool:
    """Return whether the partitions' replicas are those that the request asked for."""
    how, holds = p.fault.params["how"], [set(p.resolved) <= set(after.replicas.get(name, ())) for name in places]
    if how == "move":
        return any(before.replicas.get(name) != after.replicas.get(name) for name in places)
    return all(holds) if how == "fill" else not any(holds)


async def resign(context: FaultContext, p: FaultExecution) -> None:
    """Make the active controller, which must be among the targets, give up the quorum's leadership while it keeps
    running.

    Evidence is the quorum's leader and epoch, before and after. The quorum may elect the same controller again.
    """
    context.begun(p)
    env = context.runtime.env(f"resign-{p.fault.id}")
    # Brokers answer a vote request only on the listener between brokers.
    client = Client(env, addresses(context.runtime.bootstrap(INTERNAL)), INSIDE)
    trouble: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        try:
            await _make_resign(context, p, client)
        except (
            HarnessError,
            UnresolvedTargetError,
        ) as problem:  # Keep the bare error: a nursery would wrap it in a group.
            trouble = problem
        client.close()
    if trouble is not None:
        raise trouble
    await context.rest(p)
    p.ended = context.now_ns()
    p.landed = True


async def _make_resign(context: FaultContext, p: FaultExecution, client: Client) -> None:
    """Ask the controller to resign until the quorum has a leader in a later epoch. If that leader is elected only after
    the planned end, the fault's duration begins anew at that moment. Raise HarnessError if no new leader is elected
    while the fault lasts; while other faults are active, the wait is longer.
    """
    waiting = ExtendableDeadline(lambda: context.any_other_on(p))
    while True:
        before = await _controller(context, p, client, waiting)
        p.evidence = {"before": _quorum(before)}
        asked, after = await _successor(context, p, client, before, waiting)
        if asked:
            break
        if _is_over(context, p, waiting):
            raise UnresolvedTargetError("another epoch began before it could be asked")
    p.evidence |= {"asked": asked, "after": _quorum(after)}
    if context.left_s(p) <= 0:
        p.on = context.now_ns()


async def _controller(
    context: FaultContext, p: FaultExecution, client: Client, waiting: ExtendableDeadline
) -> QuorumDescription:
    """Return the quorum's state once its leader is among the targets. The quorum may have elected another leader since
    the targets were resolved; then resolve them again. Raise UnresolvedTargetError or HarnessError if that takes too
    long.
    """
    while True:
        seen = await _answer(context, p, partial(admin.describe_quorum, client), waiting)
        if seen.leader_id in p.resolved:
            return seen
        if _is_over(context, p, waiting):
            raise UnresolvedTargetError(f"node {seen.leader_id} is the active controller")
        await trio.sleep(POLL_S)
        p.view = await context.cluster.view()
        with suppress(UnresolvedTargetError):  # There may be no controller for a moment.
            p.resolved = resolve(p.fault.target, p.view, context.rng(p, "target"))


async def _successor(
    context: FaultContext, p: FaultExecution, client: Client, before: QuorumDescription, waiting: ExtendableDeadline
) -> tuple[int, QuorumDescription]:
    """Ask the controller to resign until the quorum has a leader in a later epoch. Return how many of these requests
    the controller of `before` answered, and the quorum's new state.
    """
    asked = 0

    async def ask() -> QuorumDescription | None:
        nonlocal asked
        quorum = await admin.describe_quorum(client)
        if quorum.epoch > before.epoch:
            return quorum if quorum.leader_id >= 0 else None
        response = await admin.unseat_controller(client)
        asked += response.epoch == before.epoch  # A request without an answer may not have reached the controller.
        return None

    after = await _answer(context, p, ask, waiting)
    return asked, after


async def _answer(
    context: FaultContext,
    p: FaultExecution,
    ask: Callable[[], Awaitable[QuorumDescription | None]],
    waiting: ExtendableDeadline,
) -> QuorumDescription:
    """Call `ask` until it returns the quorum's state. Raise HarnessError, with the reason, if it does not do so in
    time.
    """
    while True:
        why = "no controller followed"
        try:
            found = await ask()
        except (RequestFailed, UnsupportedApi) as failure:
            why, found = str(failure), None
        if found is not None:
            return found
        if _is_over(context, p, waiting):
            raise HarnessError(f"resign: {why}")
        await trio.sleep(POLL_S)


def _quorum(view: QuorumDescription) -> dict[str, int]:
    return {"controller": view.leader_id, "epoch": view.epoch}


def _seen(view: ClusterSnapshot, names: Sequence[str]) -> dict[str, object]:
    return {
        name: {"leader": view.leaders.get(name, -1), "replicas": list(view.replicas.get(name, ()))} for name in names
    }


def _place(name: str) -> Place:
    topic, _, index = name.rpartition("-")
    return topic, int(index)


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
