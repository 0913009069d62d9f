"""Which links need a relay that knows frames, for the faults of a plan that hit frames. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chaos.faults.kind import Fault, Trait
from chaos.faults.shapes import asked_over
from chaos.faults.targets import check_target, zone_of
from chaos.runtimes.contract import Link


def framed_links(faults: Iterable[Fault], nodes: Sequence[int], links: Sequence[Link]) -> tuple[Link, ...]:
    """Links that the plan's frame faults may be put on. Requests go over these links to the targets, whichever brokers
    those turn out to be.
    """
    found: set[Link] = set()
    for fault in faults:
        if Trait.NEEDS_FRAMES in fault.traits:
            kind, argument = check_target("target", fault.target)
            zone = zone_of(fault.target)
            targets = [zone] if zone else [int(argument)] if kind == "node" else nodes
            found |= {*asked_over(fault.params, targets, links)}
    return tuple(link for link in links if link in found)
