"""Defines the fault `stop`: a broker shuts down in good order, as by SIGTERM. First, the controller elects other
leaders for the broker's partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import EVERYWHERE, DrawRules, FaultKind, FaultTrait, NumericParameter
from squall.chaos.faults.words import Json, after, came_back, capital, objects, process, was_down

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Shut the targets down in good order, and start them at the end. A broker that gets no answer from a controller
    shuts down without a controlled shutdown, and its evidence says so.
    """
    from squall.chaos.faults.acts.nodes import down_and_up

    await down_and_up(context, p, context.runtime.stop_node, proofs.CONTROLLED)


def describe_evidence(seen: Json) -> str:
    """Say how each process shut down, and when its successor was ready."""
    words = []
    for act in objects(seen.get("down")):
        if "found" in act:
            words.append(was_down(act))
            continue
        how = "left by itself, let go by its controller," if act.get(proofs.CONTROLLED) else "did NOT leave cleanly"
        if act.get(proofs.ALONE):
            how = "left by itself, not controlled, because no controller answered it,"
        took = after(act, "asked_ns", "ended_ns")
        words.append(f"{capital(process(act))} {how} with code {act.get('code')} {took} after it was asked.")
    return " ".join([*words, *came_back(seen.get("up"))])


KIND = FaultKind(
    name="stop",
    place=2,
    title="SIGTERM (controlled shutdown), restart at the end",
    fault_class="P",
    duration_s=NumericParameter(0.2, 600, 3),
    # A controlled shutdown needs a quorum: a majority of the voters cannot shut down together.
    traits=frozenset({FaultTrait.TAKES_DOWN, FaultTrait.BY_SIGNAL, FaultTrait.OF_ONE_NODE, FaultTrait.OUT_OF_SYNC}),
    worlds=EVERYWHERE,
    draw=DrawRules(lasts_s=(2.0, 4.0), by_default_on_foreign=True, swarm="first"),
    play=play,
    verify=proofs.taken_down(proofs.CONTROLLED),
    evidence=(
        "the broker reports that it stopped with its controller's consent, or that no controller answered; "
        "a new incarnation registers after the restart"
    ),
    middle="no process of the node at a drawn moment",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: "told to stop",
)
