"""Faults of disks: writes and fsyncs that fail or take long, and bits that rot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from chaos.runtimes.contract import DiskFault, FailWrites, NodeState, SlowDisk
from chaos.stage import Play, Played, Stage
from chaos.targets import Unresolved

TAKE_DOWN = ("kill", "stop", "power_loss", "crash_at", "rolling", "upgrade")
"""Actions that start at their end what they took down."""


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
    down = [node for node in stopped if not stage.others(p, node, *TAKE_DOWN)]  # who took it down starts it
    started = await stage.all_up(down)
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


ACTS: Mapping[str, Play] = {"disk": disk, "bit_rot": bit_rot}
