"""Defines the fault `disk`: writes or fsyncs fail, or take long."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from squall.chaos.faults import proofs
from squall.chaos.faults.calls import on_writes, retarget_nth_call
from squall.chaos.faults.kind import ChoiceParameter, DrawRules, FaultKind, FaultTrait, NumericParameter, Params
from squall.chaos.faults.timeouts import LONGER_S
from squall.chaos.faults.words import Json, came_back, objects
from squall.chaos.runtimes.contract import DiskFault, FailWrites, NodeState, SlowDisk

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Make the targets' disks fail or slow until the end of the fault. Then start each node that ended because of the
    fault. A fault that has hit no call by its end is extended by its own length, but at most by `LONGER_S`.
    """
    name, fault = f"fault-{p.fault.id}", disk_fault(p.fault.params)
    await context.begin_on_running_nodes(p)
    healed: list[Any] = []
    for wait in (partial(context.rest, p), partial(context.sleep, min(p.fault.duration_s, LONGER_S))):
        healed = []
        try:
            for node in p.resolved:
                await context.runtime.fault_disk(name, node, fault)
            await wait()
        finally:
            with context.shielded():
                for node in p.resolved:
                    healed.append(await context.runtime.heal_disk(name, node))
        running = all(context.runtime.state(node) is NodeState.RUNNING for node in p.resolved)
        if not running or any(each.get("hits") for each in healed):
            break
    stopped = [node for node in p.resolved if context.runtime.state(node) is NodeState.DOWN]
    ended = [
        node for node in stopped if not _at_its_crash_point(context, p, node)
    ]  # `crash_at` starts such a node itself
    # As if this fault had taken them down: `release_down` leaves those down that other faults hold.
    context.hold_down(p, ended)
    started = await context.release_down(p, ended)
    p.ended = context.now_ns()
    p.evidence = {"healed": healed, "started": started}
    p.landed = any(each.get("hits") for each in healed)
    if not p.landed:
        p.error = "nothing was written that it could have hit"


def _at_its_crash_point(context: FaultContext, p: FaultExecution, node: int) -> bool:
    """Return whether a `crash_at`, a fault that also ends a broker's process at a chosen call, may have ended this
    node.
    """
    return bool(context.others(p, node, FaultTrait.ENDS_BY_ITSELF).keys() - context.others_alike(p, node).keys())


def disk_fault(params: Mapping[str, Any]) -> DiskFault:
    """Return the disk fault that the parameters describe."""
    op = params["op"]
    if params["how"] == "slow":
        return SlowDisk(int(params["delay_ms"]), op)
    return FailWrites(params["how"], int(params["nth"]), op)


def more_traits(params: Params) -> frozenset[FaultTrait]:
    """Return FORGETS_SYNCS if the fault makes fsyncs fail: the kernel then counts unsynced pages as clean."""
    failed = params.get("op") == "fsync" and params.get("how") != "slow"
    return frozenset({FaultTrait.FORGETS_SYNCS} if failed else ())


def describe_evidence(seen: Json) -> str:
    """Say how many writes or fsyncs failed or were slow. For each broker whose process ended because of the fault, say
    when it was ready again, or which other fault holds it down.
    """
    hits = [each.get("hits") for each in objects(seen.get("healed"))]
    words = f"{sum(each for each in hits if isinstance(each, int))} calls were hit."
    return " ".join([words, *came_back(seen.get("started"))])


KIND = FaultKind(
    name="disk",
    place=19,
    title="writes or fsyncs fail from the n-th on, or are slow; a broker that stops because of it restarts at the end",
    fault_class="P",
    duration_s=NumericParameter(0.2, 600, 3),
    params={
        "how": ChoiceParameter(("EIO", "ENOSPC", "slow"), "EIO"),
        "op": ChoiceParameter(("write", "fsync"), "write"),
        "nth": NumericParameter(1, 1_000_000, 1),
        "delay_ms": NumericParameter(1, 60_000, 100),
    },
    traits=frozenset(
        {
            *(FaultTrait.ENDS_BY_ITSELF, FaultTrait.STOPS_BROKER, FaultTrait.COUNTS_SYNCS, FaultTrait.OUT_OF_SYNC),
            *(FaultTrait.NEEDS_OUR_BROKER, FaultTrait.NEEDS_FILES, FaultTrait.NEEDS_HURT_FILES),
        }
    ),
    more_traits=more_traits,
    draw=DrawRules(
        params=lambda rng: {
            "how": rng.choice(("EIO", "ENOSPC", "slow", "slow")),
            "op": rng.choice(("write", "fsync")),
            "nth": rng.randint(1, 5),
            "delay_ms": rng.choice((20, 200, 1000)),
        },
        swarm="first",
        likely=on_writes,
    ),
    retarget=retarget_nth_call,
    play=play,
    verify=proofs.disk_struck,
    evidence="how many calls failed, or took longer",
    middle="none: it claims that it struck, not when",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: (
        "on a slow disk" if params.get("how") == "slow" else f"on a disk that fails with {params.get('how', 'EIO')}"
    ),
)
