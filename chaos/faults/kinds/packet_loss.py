"""Defines the fault `packet_loss`: the network loses packets, and TCP sends them again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import (
    SIDES,
    ChoiceParameter,
    DrawRules,
    Fault,
    FaultKind,
    FaultPlacement,
    FaultTrait,
    NumericParameter,
)
from squall.chaos.faults.link_faults import off_peers, on_clients_side
from squall.chaos.faults.shapes import links_of
from squall.chaos.faults.words import counted
from squall.chaos.runtimes.contract import Loss

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution

OFTEN, FEW = 0.3, 10
"""Give the least share of packets to lose if packets are few, and the most records per second that count as few
packets.
"""


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Drop packets on the targets' links. TCP sends them again, so their bytes arrive late."""
    from squall.chaos.faults.acts.links import count

    loss = Loss(float(p.fault.params["probability"]), int(p.fault.params["rto_ms"]))
    await count(context, p, links_of(p.fault.params, p.hit, context.runtime.links()), loss)


def retarget(fault: Fault, placement: FaultPlacement) -> Fault:
    """Return the fault changed so that it is likely to lose packets. On clients' links, a single target becomes the
    leader, which clients talk to. If there are few packets (few records, or no replication), the share of packets to
    lose becomes at least `OFTEN`.
    """
    params, target, cluster = dict(fault.params), fault.target, placement.cluster
    if params["side"] == "clients" and target not in ("all", "majority"):
        target = "leader"
    if cluster.rate <= FEW or (cluster.replicas == 1 and params["side"] == "peers"):
        params["probability"] = max(OFTEN, params["probability"])
    return replace(fault, params=params, target=target)


KIND = FaultKind(
    name="packet_loss",
    place=16,
    title="packets are lost and sent again, so their bytes arrive late",
    fault_class="N",
    duration_s=NumericParameter(0.2, 600, 4),
    params={
        "probability": NumericParameter(0.001, 0.9, 0.05),
        "rto_ms": NumericParameter(1, 10_000, 200),
        "side": ChoiceParameter(SIDES, "peers"),
    },
    traits=frozenset(
        {
            FaultTrait.OF_LINKS,
            FaultTrait.NEEDS_TRAFFIC,
            FaultTrait.NEEDS_PACKET_FILTER,
            FaultTrait.OUT_OF_SYNC,
            FaultTrait.EITHER_END,
        }
    ),
    worlds=frozenset({"docker", "sim"}),
    nowhere_else="processes of one machine have its one loopback",
    draw=DrawRules(
        params=lambda rng: {
            "probability": rng.choice((0.05, 0.1, 0.3)),
            "rto_ms": rng.choice((50, 200)),
            "side": rng.choice(SIDES),
        },
        swarm="first",
    ),
    retarget=retarget,
    alone=off_peers,
    of_clients=on_clients_side,
    play=play,
    verify=proofs.struck,
    evidence="how many packets were lost",
    middle="none: it claims that it struck, not when",
    describe_evidence=counted,
    describe_effect=lambda params, node, links: "losing packets",
)
