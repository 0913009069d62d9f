"""Faults by request: elections and moves of partitions, asked for as an administrator would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from chaos.errors import HarnessError
from chaos.stage import POLL_S, Play, Played, Stage
from chaos.targets import ClusterView, Unresolved
from workloads.client import admin
from workloads.client.cluster import Place
from workloads.client.connection import RequestFailed, UnsupportedApi

ASK_MS = 5_000
NOT_NEEDED = "ELECTION_NOT_NEEDED"


async def leadership(stage: Stage, p: Played) -> None:
    """Elections of preferred or unclean leaders, or the move of a partition that a target leads or holds.

    Evidence is Metadata before and after, and what the controller answered. A move is asked for, and followed by an
    election of the new preferred leader; it goes on though the fault is over.
    """
    stage.begun(p)
    before = await stage.cluster.view()
    how = str(p.fault.params["how"])
    try:
        answers = await (_move(stage, p, before) if how == "move" else _elect(stage, p, before, how == "unclean"))
    except (RequestFailed, UnsupportedApi) as failure:
        raise HarnessError(f"{how}: {failure}") from None
    accepted = any(error in ("", NOT_NEEDED) for error in answers.values())
    places = [_name(place) for place in answers]
    after = before
    while stage.left_s(p) > 0:
        await trio.sleep(min(POLL_S * 5, stage.left_s(p)))
        after = await stage.cluster.view()
    p.ended = stage.now_ns()
    p.evidence = {
        "answers": {_name(place): error for place, error in answers.items()},
        "before": _seen(before, places),
        "after": _seen(after, places),
    }
    p.landed = accepted
    if not accepted:
        p.error = "the controller refused"


async def _elect(stage: Stage, p: Played, view: ClusterView, unclean: bool) -> dict[Place, str]:
    """Everything that the targets hold; unclean, what has no leader."""
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
    answers = await admin.alter_partition_reassignments(stage.cluster.client, {place: wanted}, timeout_ms=ASK_MS)
    if not answers.get(place):
        await trio.sleep(max(0.0, stage.left_s(p) / 2))
        await admin.elect_leaders(stage.cluster.client, [place], timeout_ms=ASK_MS)
    return answers


def _seen(view: ClusterView, names: Sequence[str]) -> dict[str, object]:
    return {
        name: {"leader": view.leaders.get(name, -1), "replicas": list(view.replicas.get(name, ()))} for name in names
    }


def _place(name: str) -> Place:
    topic, _, index = name.rpartition("-")
    return topic, int(index)


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


ACTS: Mapping[str, Play] = {"leadership": leadership}
