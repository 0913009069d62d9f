"""Finds the links of a plan that need the frame relay, a proxy that parses Kafka requests and responses: faults that
hit single requests can be put on no other link. It does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from squall.chaos.faults.kind import Fault, FaultTrait
from squall.chaos.faults.shapes import asked_over
from squall.chaos.faults.targets import LINK_TARGET, check_target, link_ends, zone_of
from squall.chaos.runtimes.contract import Link


def framed_links(faults: Iterable[Fault], nodes: Sequence[int], links: Sequence[Link]) -> tuple[Link, ...]:
    """Return the links that need the frame relay, because they carry requests to a broker that one of the plan's
    request faults may hit. A target such as `leader` may be any broker.
    """
    found: set[Link] = set()
    for fault in faults:
        if FaultTrait.NEEDS_FRAMES in fault.traits:
            if fault.target.startswith(f"{LINK_TARGET}:"):
                sources, targets = (_candidates(end, nodes) for end in link_ends("target", fault.target))
                found |= {link for link in links if link.source in sources and link.target in targets}
                if FaultTrait.CUTS_LINKS in fault.traits:  # one way, the answers of the opposite link are cut as well
                    found |= {link for link in links if link.target in sources and link.source in targets}
            elif FaultTrait.CUTS_LINKS in fault.traits:  # which links are cut depends on the shape
                found |= {link for link in links if isinstance(link.source, int)}
            else:
                found |= {*asked_over(fault.params, _candidates(fault.target, nodes), links)}
    return tuple(link for link in links if link in found)


def _candidates(target: str, nodes: Sequence[int]) -> Sequence[int | str]:
    """Return the brokers, or the client zone, to which the target may resolve when its fault begins. A client zone or
    `node:2` resolves to itself; a role such as `leader` may resolve to any broker.
    """
    kind, argument = check_target("target", target)
    zone = zone_of(target)
    return [zone] if zone else [int(argument)] if kind == "node" else nodes
