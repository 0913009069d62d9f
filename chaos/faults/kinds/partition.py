"""Defines the fault `partition`: links are cut, in one of several shapes and manners."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import (
    EVERYWHERE,
    MANNERS,
    SHAPES,
    SIDES,
    TRAFFIC,
    ChoiceParameter,
    DrawRules,
    FaultKind,
    FaultTrait,
    Params,
)
from squall.chaos.faults.link_faults import BETWEEN_BROKERS, ON_S, indistinct_traffic
from squall.chaos.faults.shapes import partition_cuts
from squall.chaos.faults.words import cut_and_healed

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution

OF_ITS_TARGET = ("isolate", "one-way")
"""Lists the shapes that cut only the target's own links. All other brokers stay connected. Only these shapes exist for
clients' links.
"""
OF_THREE = ("ring", "bridge")
"""Lists the shapes that need three brokers."""
SHAPE_SHARE, SIDE_SHARE = 0.25, 0.2
"""Give two shares of the `partition` faults in random plans (swarm): those that get a shape that needs three brokers,
and those that cut clients' links if their shape is `isolate`. With fewer than three brokers, both shares cut clients'
links.
"""


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Cut directed links: between brokers, or from clients to brokers."""
    from squall.chaos.faults.acts.links import cut
    from squall.chaos.faults.acts.traffic import cut_traffic
    from squall.chaos.runtimes.wire.frames import BrokerTrafficKind

    cuts = partition_cuts(p.fault.params, p.hit, context.runtime.nodes, context.runtime.links())
    if p.fault.params["side"] in TRAFFIC:
        await cut_traffic(context, p, cuts, BrokerTrafficKind(p.fault.params["side"]))
    else:
        await cut(context, p, cuts)


def check(params: Params) -> str:
    """Refuse three combinations: `hold` with `side` = `replication` or `controller`, which cuts single requests; a
    shape between brokers if clients' links are cut; and `refuse` for one direction of clients' links.
    """
    if params["side"] in TRAFFIC and params["manner"] == "hold":
        return f"manner = 'hold' holds bytes, and side = {params['side']!r} is of requests: drop or refuse them"
    if params["side"] in BETWEEN_BROKERS:
        return ""
    if params["shape"] not in OF_ITS_TARGET:
        return f"shape = {params['shape']!r} is between brokers: side = 'peers'"
    if params["shape"] == "one-way" and params["manner"] == "refuse":
        return "a refusal knows no direction, and clients listen to nobody: drop or hold them"
    return ""


def check_target(target: str, params: Params) -> str:
    """Refuse a shape that cuts several links if the target is a single link."""
    if target.startswith("link:") and params["shape"] not in OF_ITS_TARGET:
        return f"shape = {params['shape']!r} is of many links, and the target is one: shape = 'isolate' or 'one-way'"
    return ""


def needs_nodes(params: Params) -> int:
    """Return 3 for the shapes `ring` and `bridge`, 2 for other cuts between brokers, and 1 for cuts of clients' links
    only.
    """
    if params["shape"] in OF_THREE:
        return 3
    return 2 if params["side"] in BETWEEN_BROKERS else 1


def varied(rng: Random, params: Params, nodes: int) -> dict[str, Any]:
    """Return the drawn parameters. For some faults, `shape` is changed to one that needs three brokers; for others,
    `side` is changed so that clients' links are cut.
    """
    drawn = rng.random()
    if nodes >= 3 and drawn < SHAPE_SHARE:
        return {**params, "shape": rng.choice(OF_THREE)}
    if params["shape"] == "isolate" and drawn < SHAPE_SHARE + SIDE_SHARE:
        return {**params, "side": rng.choice(("clients", "both"))}
    return dict(params)


def more_traits(params: Params) -> frozenset[FaultTrait]:
    """Return the traits that follow from the parameters. EITHER_END: the shape cuts links between several brokers, so
    the broker at either end of a cut link may leave an ISR. NEEDS_FRAMES: `side` is `replication` or `controller`, and
    only the frame relay can cut single requests.
    """
    of_shape = frozenset(() if params.get("shape") in OF_ITS_TARGET else {FaultTrait.EITHER_END})
    return of_shape | {FaultTrait.NEEDS_FRAMES} if params.get("side") in TRAFFIC else of_shape


def describe_params(params: Params) -> str:
    """Format the partition's shape, its manner, and its parameter `side`: whose links are cut."""
    side = params.get("side", "peers")
    return f" ({params.get('shape')}, {params.get('manner')}{'' if side == 'peers' else f', {side}'})"


def describe_effect(params: Params, node: int, links: Sequence[str]) -> str:
    """Return words such as "cut off from 2, 3". They are "unheard by 2, 3" if only what the node sends is cut, and
    "deaf for 2, 3" if only what it receives is cut. links: the cut links, such as "1->2".
    """
    pairs = [tuple(each.split("->")) for each in links if each.count("->") == 1]
    sends = {target for source, target in pairs if source == str(node)}
    hears = {source for source, target in pairs if target == str(node)}
    whom = ", ".join(sorted(sends | hears)) or "its peers"
    if sends and not hears:
        return f"unheard by {whom}"
    return f"cut off from {whom}" if sends or not links else f"deaf for {whom}"


KIND = FaultKind(
    name="partition",
    place=8,
    title="cuts directed links: between brokers, or between clients and brokers",
    fault_class="N",
    duration_s=ON_S,
    params={
        "shape": ChoiceParameter(SHAPES, "isolate"),
        "manner": ChoiceParameter(MANNERS, "refuse"),
        "side": ChoiceParameter((*SIDES, *TRAFFIC), "peers"),
    },
    traits=frozenset({FaultTrait.OF_LINKS, FaultTrait.CUTS_LINKS, FaultTrait.MOVES_LEADERS, FaultTrait.OUT_OF_SYNC}),
    more_traits=more_traits,
    refuse=indistinct_traffic,
    worlds=EVERYWHERE,
    needs_nodes=needs_nodes,
    check=check,
    check_target=check_target,
    draw=DrawRules(
        # Without the shapes that need three brokers: `varied` puts them into random plans of clusters that have three.
        params=lambda rng: {"shape": rng.choice(SHAPES[:3]), "manner": rng.choice(MANNERS)},
        by_default=True,
        by_default_on_foreign=True,
        swarm="first",
        varied=varied,
    ),
    of_clients=lambda params: {**params, "shape": "isolate", "side": "clients"},
    play=play,
    verify=proofs.silent,
    evidence="a probe over each cut link fails during the fault and works afterwards; requests pass over a link "
    "if only its answers are cut, and else do not",
    middle="a probe over each cut link, and a request in its direction, fail at a drawn moment, too",
    describe_evidence=cut_and_healed,
    describe_params=describe_params,
    describe_effect=describe_effect,
)
