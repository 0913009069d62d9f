"""Faults of disks: writes and fsyncs that fail or take long, and bits that rot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import trio

from chaos.errors import HarnessError
from chaos.faults.claims import came_back, up_after_trouble
from chaos.faults.stage import Play, Played, Stage
from chaos.faults.targets import Unresolved
from chaos.runtimes.contract import DiskFault, FailWrites, NodeState, SlowDisk
from chaos.runtimes.damage import How


async def disk(stage: Stage, p: Played) -> None:
    """The targets' disks fail or are slow; whole again at the end. A node that ended of it is started again then."""
    name, fault = f"fault-{p.fault.id}", disk_fault(p.fault.params)
    await stage.begin_on_running_nodes(p)
    healed: list[Any] = []
    try:
        for node in p.resolved:
            await stage.runtime.fault_disk(name, node, fault)
        await stage.rest(p)
    finally:
        with trio.CancelScope(shield=True):
            for node in p.resolved:
                healed.append(await stage.runtime.heal_disk(name, node))
    stopped = [node for node in p.resolved if stage.runtime.state(node) is NodeState.DOWN]
    ended = [node for node in stopped if not stage.others(p, node, "crash_at")]  # which starts what it took down
    stage.has_down(p, ended)
    started = await stage.up_again(p, ended)
    p.ended = stage.now_ns()
    p.evidence = {"healed": healed, "started": started}
    p.landed = any(each.get("hits") for each in healed)
    if not p.landed:
        p.error = "nothing was written that it could have hit"


def disk_fault(params: Mapping[str, Any]) -> DiskFault:
    """As its parameters say."""
    op = params["op"]
    if params["how"] == "slow":
        return SlowDisk(int(params["delay_ms"]), op)
    return FailWrites(params["how"], int(params["nth"]), op)


async def bit_rot(stage: Stage, p: Played) -> None:
    """Bits flip in a closed segment of each target. Nothing undoes that; the duration is when others may notice."""
    stage.begun(p)
    rotten = [await stage.runtime.rot(node, bits=int(p.fault.params["bits"])) for node in p.resolved]
    if not any(each.get("path") for each in rotten):
        raise Unresolved("there is no closed segment to rot")
    await stage.rest(p)
    p.ended = stage.now_ns()
    p.evidence = {"rotten": rotten}
    p.landed = any(each.get("before") != each.get("after") for each in rotten)
    if not p.landed:
        p.error = "the files are what they were"


async def damage(stage: Stage, p: Played) -> None:
    """A node is killed, its disk loses something while it is down, and it starts again at the end.

    Only where every partition that it holds is in sync on all its replicas: else it might have been the only one that
    had what it lost, and no verdict could tell.
    """
    how, size = cast(How, p.fault.params["how"]), int(p.fault.params["bytes"])
    if len(p.resolved) != 1:
        raise HarnessError(f"one disk at a time is damaged: {p.fault.target} is {len(p.resolved)}")
    (node,) = p.resolved
    await stage.begin_on_running_nodes(p)
    if lacking := _lacking(p, node):
        raise Unresolved(f"{', '.join(lacking)} not in sync: what is damaged now may be the only copy")
    with stage.taking_down(p, [node]):
        down = await stage.runtime.kill(node)
        damaged = await stage.runtime.damage(node, how, size=size)
    p.evidence = {"down": down, "damaged": damaged}
    async with up_after_trouble(stage, p):
        await stage.rest(p)
    (p.evidence["up"],) = up = await stage.up_again(p, [node])
    p.ended = stage.now_ns()
    lost = damaged.get("path") is not None and damaged.get("before") != damaged.get("after")
    p.landed = bool(down.get("gone") and came_back(up) and lost)
    if not p.landed:
        p.error = "there was nothing to damage" if not lost else f"no evidence that node {node} was gone and came back"


def _lacking(p: Played, node: int) -> list[str]:
    assert p.view is not None, "it was resolved"
    held = [name for name, replicas in p.view.replicas.items() if node in replicas]
    return sorted(name for name in held if set(p.view.isr.get(name, ())) != set(p.view.replicas[name]))


ACTS: Mapping[str, Play] = {"disk": disk, "bit_rot": bit_rot, "damage": damage}
