"""Takes whole nodes down and starts them, or restarts them one by one, for several kinds of faults.

Several faults may hold one node down. The node stays down until the last of these faults ends; that fault starts the
node. Each fault records its own evidence. Only the faults that end a process (`kill`, `stop`) accept a node that is
already down. Other faults refuse it, because a power loss or a damaged disk has another effect on a node that does not
run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import trio

from squall.chaos.errors import HarnessError
from squall.chaos.faults.context import FaultContext, FaultExecution
from squall.chaos.faults.deadline import ExtendableDeadline
from squall.chaos.faults.proofs import CONTROLLED, left_as_asked, stayed_down
from squall.chaos.faults.timeouts import POLL_S
from squall.chaos.runtimes.contract import Evidence, NodeState

Take = Callable[[int], Awaitable[Evidence]]
Found = Mapping[int, dict[str, Any]]
"""Maps each node that was already down to its entry in the evidence: the faults that hold it down (`by`), the number of
probes sent to it (`asked`), and how many of these were answered (`answered`), which must be 0.
"""


async def down_and_up(context: FaultContext, p: FaultExecution, take: Take, proof: str) -> None:
    """Take nodes down, and start them at the end of the fault. take: takes one node down, and returns evidence. proof:
    the key in this evidence that must be true, such as "killed".

    If other faults hold a node down already, probes at this fault's begin and end must show that the node is down. The
    node starts when the last of these faults ends.
    """
    joined = await context.begin_on_running_nodes(p, joins=NodeState.DOWN)
    found: dict[int, dict[str, Any]] = {
        node: {"node": node, "found": "down", "by": _numbered(context.holders(p, node, NodeState.DOWN))}
        for node in joined
    }
    own = [node for node in p.resolved if node not in found]
    with context.taking_down(p, own):
        taken = dict(zip(own, await context.together(take, own), strict=True))
    if proof == CONTROLLED:
        p.on = (
            context.now_ns()
        )  # The fault's duration counts from now: a controlled shutdown takes as long as the broker needs.
    p.evidence = {"down": [{**taken, **found}[node] for node in p.resolved]}
    async with context.started_after_error(p):
        await _hold(context, p, found)
    p.evidence["up"] = await context.release_down(p, p.resolved)
    shown = [not each["answered"] if "found" in each else left_as_asked(each, proof) for each in p.evidence["down"]]
    missing = stayed_down(p.evidence, p.resolved)
    p.landed = all(shown) and context.came_back(p.evidence["up"]) and not missing
    if not p.landed:
        p.error = missing if all(shown) and missing else f"no evidence that every node was {proof}"


async def _hold(context: FaultContext, p: FaultExecution, found: Found) -> None:
    """Wait until the fault is over. Raise HarnessError if a node that was already down when the fault began comes up
    earlier.
    """
    if not found:
        await context.rest(p, partial(record_processes, context, p))
        return
    context.check_landed(p, context.now_ns())
    await _probe_found(context, found)
    await record_processes(context, p)
    while (left_s := context.left_s(p)) > 0:
        _check_down(context, found)
        await trio.sleep(min(POLL_S, left_s))
    _check_down(context, found)
    await _probe_found(context, found)


async def record_processes(context: FaultContext, p: FaultExecution) -> None:
    """Record in the evidence the state and CPU time of the nodes' OS processes at this moment. The nodes are down, so
    any process contradicts the fault.
    """
    p.evidence["middle"] = await context.activities(p.resolved)


async def _probe_found(context: FaultContext, found: Found) -> None:
    """Probe every link to the nodes of `found`, which were already down. Count in a node's entry the probes (`asked`),
    and those that were answered (`answered`).
    """
    links = [link for link in context.runtime.links() if link.target in found]
    for link, probe in zip(links, await context.probes(links), strict=True):
        seen = found[link.target]
        seen["asked"] = seen.get("asked", 0) + 1
        seen["answered"] = seen.get("answered", 0) + probe.ok


def _numbered(faults: Mapping[int, str]) -> dict[str, str]:
    return {str(number): action for number, action in faults.items()}


def _check_down(context: FaultContext, found: Found) -> None:
    for node in found:
        if (state := context.runtime.state(node)) is not NodeState.DOWN:
            raise HarnessError(f"node {node}, which was down already, was {state.value} before this fault ended")


Look = Callable[[int], Awaitable[dict[str, Any]]]


async def _nothing(node: int) -> dict[str, Any]:
    return {}


async def one_by_one(
    context: FaultContext,
    p: FaultExecution,
    *,
    before: Look = _nothing,
    between: Look = _nothing,
    after: Look = _nothing,
) -> None:
    """Restart each target in turn: take it down, start it, and wait until every partition is in sync. before, between,
    after: calls while the node still runs, while it is down, and once it runs again. Their results are merged into the
    evidence of the node's step.
    """
    runtime = context.runtime
    take = runtime.kill if p.fault.params["how"] == "kill" else runtime.stop_node
    proof = "gone" if p.fault.params["how"] == "kill" else CONTROLLED
    waiting = ExtendableDeadline(lambda: context.any_other_on(p))
    while any(runtime.state(node) is not NodeState.RUNNING for node in p.resolved) and not waiting.is_over():
        await trio.sleep(POLL_S)
    await context.begin_on_running_nodes(p)
    steps: list[dict[str, Any]] = []
    p.evidence = {"steps": steps}
    for node in p.resolved:
        # This fault restarts one node at a time. A fault that holds another node down starts that node itself.
        context.release(p)
        await _until_running(context, p, node)
        context.claim(p, [node])
        step: dict[str, Any] = {"node": node, **await before(node)}
        # The node starts at once. Another fault that wants to take it down waits until then.
        with context.taking_down(p, [node]):
            step |= {"down": await take(node), **await between(node)}
            steps.append(step)
            step["up"] = await context.up(node)
        step |= await after(node)
        with trio.move_on_after(max(0.0, context.left_s(p))):
            await context.until_in_sync(runtime.nodes)
            step["in_sync_ns"] = context.now_ns()
        if "in_sync_ns" not in step:
            raise HarnessError(f"node {node} was not in sync again within the {p.fault.duration_s:g} s that all have")
    p.ended = context.now_ns()
    p.landed = all(left_as_asked(step["down"], proof) and step["up"].get("ready_ns") for step in steps)
    if not p.landed:
        p.error = f"no evidence that every node was {proof}"


async def _until_running(context: FaultContext, p: FaultExecution, node: int) -> None:
    """Wait until the node runs, if another fault holds it down or is starting it. Raise HarnessError if the fault's
    time is over first.
    """
    while context.is_turning(node) or context.runtime.state(node) is not NodeState.RUNNING:
        if context.left_s(p) <= 0:
            raise HarnessError(f"node {node} was {context.runtime.state(node).value} when it was its turn")
        await trio.sleep(POLL_S)
