"""Defines the fault `flapping`: links are cut and healed again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import (
    EVERYWHERE,
    MANNERS,
    SIDES,
    ChoiceParameter,
    DrawRules,
    FaultKind,
    FaultTrait,
    NumericParameter,
)
from squall.chaos.faults.link_faults import PEERS, both_ends, hit_by, on_clients_side
from squall.chaos.faults.words import Json, integer, objects

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Cut and heal the targets' links again and again, and probe them in each state."""
    from squall.chaos.faults.acts.worse_links import cut_in_turns

    await cut_in_turns(context, p)


def describe_evidence(seen: Json) -> str:
    """Count the probes that were answered while links were cut, and in between."""
    turns = objects(seen.get("turns"))
    down, up = (sum(integer(turn.get(key)) for turn in turns) for key in ("down", "up"))
    of = sum(integer(turn.get("of")) for turn in turns)
    return f"Cut and healed {len(turns)} times: {down} of {of} probes answered while cut, {up} of {of} between."


KIND = FaultKind(
    name="flapping",
    place=15,
    title="cuts all of the target's links and heals them, again and again",
    fault_class="N",
    duration_s=NumericParameter(1, 600, 4),
    params={
        "manner": ChoiceParameter(MANNERS, "refuse"),
        "down_ms": NumericParameter(300, 60_000, 500),
        "up_ms": NumericParameter(300, 60_000, 500),
        "side": PEERS,
    },
    traits=frozenset({FaultTrait.OF_LINKS, FaultTrait.OUT_OF_SYNC, FaultTrait.EITHER_END}),
    worlds=EVERYWHERE,
    needs_nodes=both_ends,
    draw=DrawRules(
        params=lambda rng: {
            "manner": rng.choice(MANNERS),
            "down_ms": rng.choice((300, 600)),
            "up_ms": rng.choice((300, 1000)),
            "side": rng.choice(SIDES),
        },
        swarm="newer",
    ),
    of_clients=on_clients_side,
    play=play,
    verify=proofs.flapped,
    evidence="a probe over each link fails during each cut; probes between two cuts work",
    middle="each cut is probed at its begin and its end, and so is the time between two cuts",
    describe_evidence=describe_evidence,
    describe_effect=hit_by("flapping"),
)
