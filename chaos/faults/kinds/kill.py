"""Defines the fault `kill`: a process ends at once, as by SIGKILL. Its written data stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import EVERYWHERE, DrawRules, FaultKind, FaultTrait, NumericParameter
from squall.chaos.faults.words import Json, after, came_back, capital, objects, process, was_down

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Kill the targets' processes, and start them again at the end."""
    from squall.chaos.faults.acts.nodes import down_and_up

    await down_and_up(context, p, context.runtime.kill, "gone")


def describe_evidence(seen: Json) -> str:
    """Say when each process had ended, and when its successor was ready."""
    words = []
    for act in objects(seen.get("down")):
        if "found" in act:
            words.append(was_down(act))
            continue
        how = "was gone" if act.get("gone") else "was NOT gone"
        words.append(f"{capital(process(act))} {how} {after(act, 'asked_ns', 'ended_ns')} after the kill.")
    return " ".join([*words, *came_back(seen.get("up"))])


KIND = FaultKind(
    name="kill",
    place=1,
    title="SIGKILL, restart at the end",
    fault_class="P",
    duration_s=NumericParameter(0.2, 600, 3),
    traits=frozenset({FaultTrait.TAKES_DOWN, FaultTrait.BY_SIGNAL, FaultTrait.OUT_OF_SYNC}),
    worlds=EVERYWHERE,
    draw=DrawRules(lasts_s=(1.0, 4.0), by_default=True, by_default_on_foreign=True, swarm="first"),
    play=play,
    verify=proofs.taken_down("gone"),
    evidence="the process is gone; a new incarnation registers after the restart",
    middle="no process of the node at a drawn moment",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: "killed",
)
