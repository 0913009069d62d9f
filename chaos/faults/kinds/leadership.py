"""Defines the fault `leadership`: leaders change by request, as administrators request it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from squall.chaos.draws import rng_for
from squall.chaos.faults import proofs
from squall.chaos.faults.kind import (
    EVERYWHERE,
    ChoiceParameter,
    DrawRules,
    Fault,
    FaultKind,
    FaultPlacement,
    FaultTrait,
    NumericParameter,
    Params,
    PlanCapabilities,
)
from squall.chaos.faults.targets import minority_size
from squall.chaos.faults.words import Json, mapping

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution

ASKS: Mapping[str, tuple[str, ...]] = {
    "preferred": ("ELECT_LEADERS",),
    "unclean": ("ELECT_LEADERS",),
    "move": ("ALTER_PARTITION_REASSIGNMENTS", "ELECT_LEADERS"),
    "drain": ("ALTER_PARTITION_REASSIGNMENTS",),
    "fill": ("ALTER_PARTITION_REASSIGNMENTS",),
    "resign": (),
}
OF_HELD = ("move", "preferred", "unclean")
"""Lists the values of `how` that act on partitions of which the target has a replica."""
RESIGN_SHARE, CONTROLLERS = 0.3, 3
"""Give the share of these faults that a random plan (swarm) turns into a resignation of the controller, and the
smallest cluster in which it does so. With three brokers, all three are controllers, so that another one can take over.
"""


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Elect preferred or unclean leaders, move a partition of the target, move replicas off the target or onto it, or
    make the controller resign, as the parameter `how` says.
    """
    from squall.chaos.faults.acts.leaders import change_leaders, resign

    await (resign if p.fault.params["how"] == "resign" else change_leaders)(context, p)


def refuse(params: Params, setting: PlanCapabilities) -> str:
    """Refuse to drain or fill if no broker could take the replicas: that needs more brokers than replicas."""
    full = params["how"] in ("drain", "fill") and setting.nodes <= setting.replicas
    return "more brokers than replicas are needed: cluster.nodes" if full else ""


def resigns_instead(seed: int, fault: Fault, nodes: int) -> Fault | None:
    """Replace a share of these faults (`RESIGN_SHARE`) by a resignation of the controller, if there are enough brokers
    for another controller. Return the resignation, or None if the fault stays.
    """
    # A stream of its own: the other draws of the seed stay as they are.
    if rng_for(seed, "swarm", "resign", fault.id).random() < RESIGN_SHARE and nodes >= CONTROLLERS:
        return replace(fault, target="controller", params={"how": "resign"})
    return None


def retarget(fault: Fault, placement: FaultPlacement) -> Fault:
    """Return the fault with a target that it can hit. A controller that is the only voter cannot resign, and a broker
    that an earlier fault has just made resign is not the controller any more: in these cases the fault moves a
    partition instead. A node without a partition has nothing to move or to elect.
    """
    if fault.params["how"] == "resign":
        earlier = (other for other in placement.faults if (other.at_s, other.id) < (fault.at_s, fault.id))
        resigned = any(other.kind is KIND and other.params["how"] == "resign" and fault.overlaps(other)
                       for other in earlier)  # fmt: skip
        if placement.cluster.voters > 1 and not resigned:
            return fault
        fault = replace(fault, target="leader", params={"how": "move"})
    # A majority holds a replica of each partition only if the other nodes are too few for all replicas of one.
    most_others = {"all": 0, "majority": minority_size(placement.cluster.nodes)}
    others = most_others.get(fault.target, placement.cluster.nodes - 1)
    if fault.params["how"] not in OF_HELD or placement.cluster.replicas > others:
        return fault
    return replace(fault, target="leader")


def alone(params: Params) -> dict[str, Any]:
    """Replace a move by an election if there is only one broker: no other broker can take a partition."""
    return {**params, "how": "preferred"} if params["how"] == "move" else dict(params)


def for_foreign_brokers(params: Params, external: bool) -> dict[str, Any]:
    """Replace a resignation by an election, because only Squall's brokers resign when asked. On somebody else's
    cluster, replace an unclean election too: that could lose records that the cluster promised to keep.
    """
    never = ("resign", "unclean") if external else ("resign",)
    return {**params, "how": "preferred" if params["how"] in never else params["how"]}


def describe_evidence(seen: Json) -> str:
    """Say what the controller answered, and which brokers led before and after."""
    before, after = mapping(seen.get("before")), mapping(seen.get("after"))
    words = []
    if "controller" in before:
        words.append(f"Broker {before['controller']} was asked to resign as controller of epoch {before.get('epoch')}.")
    if "controller" in after:
        words.append(f"Broker {after['controller']} followed in epoch {after.get('epoch')}.")
    for name, error in mapping(seen.get("answers")).items():
        was, now = mapping(before.get(name)), mapping(after.get(name))
        led = f"led by {was.get('leader')}, then by {now.get('leader')}"
        words.append(
            f"{name}: {error or 'accepted'}, {led}, replicas {was.get('replicas')}, then {now.get('replicas')}."
        )
    return " ".join(words)


KIND = FaultKind(
    name="leadership",
    place=25,
    title="by request: elections, moves of partitions, a broker emptied or filled, the controller's resignation",
    fault_class="P",
    duration_s=NumericParameter(0.2, 600, 2),
    params={"how": ChoiceParameter(("preferred", "unclean", "move", "drain", "fill", "resign"), "preferred")},
    traits=frozenset({FaultTrait.MOVES_LEADERS}),
    more_traits=lambda params: frozenset({FaultTrait.NEEDS_OUR_BROKER} if params.get("how") == "resign" else ()),
    worlds=EVERYWHERE,
    asks=ASKS,
    refuse=refuse,
    draw=DrawRules(
        params=lambda rng: {"how": rng.choice(("preferred", "unclean", "move", "move"))},
        by_default_on_foreign=True,
        swarm="first",
        instead=resigns_instead,
    ),
    retarget=retarget,
    alone=alone,
    for_foreign_brokers=for_foreign_brokers,
    play=play,
    verify=proofs.leadership_changed,
    evidence="what the controller answered; leaders and replicas, or controller and its epoch, before and after",
    middle="Metadata is asked for every half second: it was led as asked at least once",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: (
        "asked to resign as controller"
        if params.get("how") == "resign"
        else f"part of an election by request ({params.get('how', 'preferred')})"
    ),
)
