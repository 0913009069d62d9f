"""Nodes that faults have down, several at once on one node too: it stays down until the last of them ends, which starts
it, and each tells what it found.

Only who takes a process away joins what is down (`kill`, `stop`): what a power loss or a damaged disk does to a node
that has ended already is another fault than the one that was asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from chaos.errors import HarnessError
from chaos.faults.stage import POLL_S, Played, Stage
from chaos.runtimes.contract import Evidence, NodeState

Take = Callable[[int], Awaitable[Evidence]]
Found = Mapping[int, dict[str, Any]]
"""Of nodes that were down already: by whom (`by`), and whether any probe was answered while it should not have been."""


async def down_and_up(stage: Stage, p: Played, take: Take, proof: str) -> None:
    """Take nodes down, and start them at the end. proof: what the evidence of `take` must say.

    A node that other faults have down is held down for longer: that it was down all the while is looked at, and shown
    by probes when this one begins and ends.
    """
    joined = await stage.begin_on_running_nodes(p, joins=NodeState.DOWN)
    found: dict[int, dict[str, Any]] = {
        node: {"node": node, "found": "down", "by": _numbered(stage.holders(p, node, NodeState.DOWN))}
        for node in joined
    }
    own = [node for node in p.resolved if node not in found]
    with stage.taking_down(p, own):
        taken = dict(zip(own, await stage.together(take, own), strict=True))
    p.evidence = {"down": [{**taken, **found}[node] for node in p.resolved]}
    async with up_after_trouble(stage, p):
        await _hold(stage, p, found)
    p.evidence["up"] = await stage.up_again(p, p.resolved)
    shown = [not each["answered"] if "found" in each else bool(each.get(proof)) for each in p.evidence["down"]]
    p.landed = all(shown) and came_back(p.evidence["up"])
    if not p.landed:
        p.error = f"no evidence that every node was {proof}"


@asynccontextmanager
async def up_after_trouble(stage: Stage, p: Played) -> AsyncIterator[None]:
    """Around what comes before the end: where that raises a HarnessError the fault's nodes are started all the same.
    Nobody else would do it before the cluster is healed.
    """
    try:
        yield
    except HarnessError:
        await stage.up_again(p, [node for node in p.resolved if stage.runtime.state(node) is NodeState.DOWN])
        raise


def came_back(up: list[Any]) -> bool:
    """Whether all nodes are up again, or still down because other faults have them so."""
    return all(each.get("ready_ns") or each.get("state") == NodeState.DOWN for each in up)


async def _hold(stage: Stage, p: Played, found: Found) -> None:
    """Until the fault is over. HarnessError where a node that was found down is not down any more before that."""
    if not found:
        await stage.rest(p)
        return
    stage.check_landed(p, stage.now_ns())
    await _ask(stage, found)
    while (left_s := stage.left_s(p)) > 0:
        _check_down(stage, found)
        await trio.sleep(min(POLL_S, left_s))
    _check_down(stage, found)
    await _ask(stage, found)


async def _ask(stage: Stage, found: Found) -> None:
    """Probe every link to these nodes."""
    links = [link for link in stage.runtime.links() if link.target in found]
    for link, probe in zip(links, await stage.probes(links), strict=True):
        seen = found[link.target]
        seen["asked"] = seen.get("asked", 0) + 1
        seen["answered"] = seen.get("answered", 0) + probe.ok


def _numbered(faults: Mapping[int, str]) -> dict[str, str]:
    return {str(number): action for number, action in faults.items()}


def _check_down(stage: Stage, found: Found) -> None:
    for node in found:
        if (state := stage.runtime.state(node)) is not NodeState.DOWN:
            raise HarnessError(f"node {node}, which was down already, was {state.value} before this fault ended")
