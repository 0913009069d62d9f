"""Defines the fault `zone_isolation`: the clients of one zone reach only one broker, and must find that out by
themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import MANNERS, OUR_WORLDS, ChoiceParameter, DrawRules, FaultKind, FaultTrait, Params
from squall.chaos.faults.link_faults import ON_S
from squall.chaos.faults.targets import UnresolvedTargetError
from squall.chaos.faults.words import Json, cut_and_healed
from squall.chaos.runtimes.contract import Cut, CutMode

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Cut the links of one client zone to all brokers but one. That one is the controller, the broker that leads the
    most partitions, or any broker.
    """
    from squall.chaos.faults.acts.links import cut

    kept = _kept(context, p)
    links = [link for link in context.runtime.links() if link.source == p.zone and link.target != kept]
    manner = CutMode(p.fault.params["manner"])
    await cut(context, p, [(link, Cut(manner)) for link in links])
    p.evidence["kept"] = kept


def _kept(context: FaultContext, p: FaultExecution) -> int:
    """Return the one broker that the zone's clients still reach. Raise UnresolvedTargetError if no controller is known,
    or if no partition has a leader.
    """
    assert p.view is not None, "the nemesis has looked"
    keeps, nodes = p.fault.params["keeps"], sorted(p.view.nodes)
    if keeps == "controller":
        if p.view.controller not in nodes:
            raise UnresolvedTargetError("no active controller is known")
        return p.view.controller
    if keeps == "leader":
        leading = [node for node in p.view.leaders.values() if node in nodes]
        if not leading:
            raise UnresolvedTargetError("no partition has a leader")
        # Sorted, so that of two brokers that lead equally many the same one is kept in a replay.
        return max(sorted(leading), key=leading.count)
    return context.rng(p, "kept").choice(nodes)


def check_target(target: str, params: Params) -> str:
    """Refuse any target that is not a client zone."""
    return "" if target.startswith("zone:") else f"target {target!r}: a zone is isolated, as in zone:1"


def describe_evidence(seen: Json) -> str:
    """Name the broker that the zone still reached, and say what probes over the other links showed."""
    kept = seen.get("kept")
    return f"{cut_and_healed(seen)} Broker {kept} was left." if kept is not None else cut_and_healed(seen)


def describe_effect(params: Params, node: int, links: Sequence[str]) -> str:
    """Return the same words for every broker, because the fault's target is a zone and not a broker."""
    return "out of a zone's reach"


KIND = FaultKind(
    name="zone_isolation",
    place=26,
    title="cuts a client zone off from all brokers but one",
    fault_class="N",
    duration_s=ON_S,
    params={
        "keeps": ChoiceParameter(("any", "controller", "leader"), "any"),
        "manner": ChoiceParameter(MANNERS, "drop"),
    },
    traits=frozenset({FaultTrait.OF_LINKS, FaultTrait.CUTS_LINKS}),
    worlds=OUR_WORLDS,
    nowhere_else="somebody else's brokers have one zone, over which the harness asks as well",
    needs_nodes=lambda params: 2,
    check_target=check_target,
    draw=DrawRules(
        params=lambda rng: {"keeps": rng.choice(("any", "controller", "leader")), "manner": rng.choice(MANNERS)},
        target=lambda rng, params: "zone:1",
    ),
    play=play,
    verify=proofs.silent,
    evidence="a probe over each cut link of the zone fails during the fault and works afterwards",
    middle="a probe over each cut link, and a request in its direction, fail at a drawn moment, too",
    describe_evidence=describe_evidence,
    describe_effect=describe_effect,
)
