"""Defines the fault `rolling`: brokers are restarted one after the other, as for a new configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import ChoiceParameter, DrawRules, FaultKind, FaultTrait, NumericParameter
from squall.chaos.faults.link_faults import hit_by
from squall.chaos.faults.words import steps_in_turn

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Restart each target in turn. The next restart waits until every partition is in sync."""
    from squall.chaos.faults.acts.nodes import one_by_one

    await one_by_one(context, p)


KIND = FaultKind(
    name="rolling",
    place=22,
    title="stops or kills each target in turn, starts it, and waits until all replicas are in sync again",
    fault_class="P",
    duration_s=NumericParameter(1, 3600, 60),
    params={"how": ChoiceParameter(("stop", "kill"), "stop")},
    traits=frozenset({FaultTrait.ONE_BY_ONE, FaultTrait.MOVES_LEADERS, FaultTrait.OUT_OF_SYNC}),
    draw=DrawRules(
        params=lambda rng: {"how": rng.choice(("stop", "kill"))},
        target=lambda rng, params: "all",
        lasts_s=(14.0, 18.0),
        swarm="newer",
    ),
    play=play,
    verify=proofs.restarted,
    evidence="for each step: the broker went down, came up as a new incarnation, and every partition was in sync",
    middle="none: each node starts again at once",
    describe_evidence=steps_in_turn,
    describe_effect=hit_by("rolling"),
)
