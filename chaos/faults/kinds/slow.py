"""Defines the fault `slow`: a broker gets only a share of a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import DrawRules, FaultKind, FaultTrait, NumericParameter, listed
from squall.chaos.faults.words import Json, number, objects

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution

SHARE_TOLERANCE = 0.2


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Limit each target to a share of a CPU, and lift the limit at the end. The proof is how often the process was
    throttled.
    """
    name, share = f"fault-{p.fault.id}", float(p.fault.params["share"])
    await context.begin_on_running_nodes(p)
    begun: list[Any] = []
    healed: list[Any] = []
    try:
        begun = [await context.runtime.slow_cpu(name, node, share) for node in p.resolved]
        await context.rest(p)
    finally:
        with context.shielded():
            for node in p.resolved:
                healed.append(await context.runtime.heal_cpu(name, node))
        p.ended = context.now_ns()
    p.evidence = {"slowed": begun, "healed": healed}
    p.landed = all(each["stops"] and each["ran_share"] <= share + SHARE_TOLERANCE for each in healed)
    if not p.landed:
        p.error = "a node ran for more of the time than it should have"


def describe_evidence(seen: Json) -> str:
    """Say how often each node was throttled, and how much CPU time it still got."""
    words = []
    for act in objects(seen.get("healed")):
        cpu = number(act.get("cpu_share"))
        used = "" if cpu is None else f", and had {cpu:.0%} of a CPU"
        ran = number(act.get("ran_share")) or 0
        words.append(f"Held {act.get('stops')} times; it ran {ran:.0%} of the time{used}.")
    return " ".join(words)


KIND = FaultKind(
    name="slow",
    place=4,
    title="gives the process a share of a CPU: it is stopped for a part of each tenth of a second",
    fault_class="P",
    duration_s=NumericParameter(0.5, 600, 4),
    params={"share": NumericParameter(0.01, 0.9, 0.2)},
    traits=frozenset({FaultTrait.NEEDS_NODE, FaultTrait.OUT_OF_SYNC}),
    draw=DrawRules(params=lambda rng: {"share": rng.choice((0.05, 0.1, 0.3))}, swarm="newer"),
    play=play,
    verify=proofs.slowed(SHARE_TOLERANCE),
    evidence="how often the process was stopped, the share of the time in which it ran, and its CPU time",
    middle="each stop is looked at as it ends; the share is of the whole time",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: f"slow{listed(params)}",
)
