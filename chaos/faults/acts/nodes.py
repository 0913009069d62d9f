"""Acts on whole nodes that several kinds of faults share: down and up again, and one after the other.

Several faults may have one node down: it stays down until the last of them ends, which starts it, and each tells what
it found. Only who takes a process away joins what is down (`kill`, `stop`): what a power loss or a damaged disk does to
a node that has ended already is another fault than the one that was asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from chaos.errors import HarnessError
from chaos.faults.pace import POLL_S
from chaos.faults.stage import Played, Stage
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
    async with stage.up_after_trouble(p):
        await _hold(stage, p, found)
    p.evidence["up"] = await stage.up_again(p, p.resolved)
    shown = [not each["answered"] if "found" in each else bool(each.get(proof)) for each in p.evidence["down"]]
    p.landed = all(shown) and stage.came_back(p.evidence["up"])
    if not p.landed:
        p.error = f"no evidence that every node was {proof}"


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


Look = Callable[[int], Awaitable[dict[str, Any]]]


async def _nothing(node: int) -> dict[str, Any]:
    return {}


async def one_by_one(
    stage: Stage, p: Played, *, before: Look = _nothing, between: Look = _nothing, after: Look = _nothing
) -> None:
    """Take each target down, start it, wait until every partition is in sync. before, between, after: what is seen or
    done while it still runs, while it is down and once it runs again, which becomes part of its step.
    """
    runtime = stage.runtime
    take = runtime.kill if p.fault.params["how"] == "kill" else runtime.stop_node
    proof = "gone" if p.fault.params["how"] == "kill" else "controlled"
    await stage.begin_on_running_nodes(p)
    steps: list[dict[str, Any]] = []
    p.evidence = {"steps": steps}
    for node in p.resolved:
        # One at a time is its own: what has another one down brings that up, whatever becomes of this.
        stage.release(p)
        await _its_turn(stage, p, node)
        stage.claim(p, [node])
        step: dict[str, Any] = {"node": node, **await before(node)}
        with stage.taking_down(p, [node]):  # and up at once: who would have it down meanwhile has it afterwards
            step |= {"down": await take(node), **await between(node)}
            steps.append(step)
            step["up"] = await stage.up(node)
        step |= await after(node)
        with trio.move_on_after(max(0.0, stage.left_s(p))):
            await stage.until_in_sync(runtime.nodes)
            step["in_sync_ns"] = stage.now_ns()
        if "in_sync_ns" not in step:
            raise HarnessError(f"node {node} was not in sync again within the {p.fault.duration_s:g} s that all have")
    p.ended = stage.now_ns()
    p.landed = all(step["down"].get(proof) and step["up"].get("ready_ns") for step in steps)
    if not p.landed:
        p.error = f"no evidence that every node was {proof}"


async def _its_turn(stage: Stage, p: Played, node: int) -> None:
    """Until a node runs that another fault has down, or is just starting. HarnessError where the time is over first."""
    while stage.is_turning(node) or stage.runtime.state(node) is not NodeState.RUNNING:
        if stage.left_s(p) <= 0:
            raise HarnessError(f"node {node} was {stage.runtime.state(node).value} when it was its turn")
        await trio.sleep(POLL_S)
