"""Defines what a plan may do to a cluster that somebody else runs: only what clients and administrators can do.

With a compose file a plan may also kill, stop and pause the cluster's containers.
"""

from __future__ import annotations

from dataclasses import replace

from squall.chaos.faults.kind import Fault, FaultError, FaultKind, FaultTrait
from squall.chaos.faults.kinds import KINDS

WORLD = "external"


def check_external(fault: Fault, *, compose: str, client: str) -> None:
    """Raise FaultError, with the reason, if a fault is impossible on somebody else's cluster. compose: the compose file
    of its containers, or "". client: the client library of the workload.
    """
    here, traits = f"fault {fault.id} ({fault.action})", fault.traits
    if WORLD not in fault.kind.worlds:
        can = ", ".join(sorted(name for name, kind in KINDS.items() if WORLD in kind.worlds))
        raise FaultError(f"{here}: clients and administrators cannot do that: they can {can}")
    if FaultTrait.BY_SIGNAL in traits and not compose:
        raise FaultError(f"{here}: whose process is it? --compose FILE names containers that may be hurt")
    if FaultTrait.OF_LINKS in traits:
        if fault.params.get("side", "clients") != "clients":
            raise FaultError(f"{here}: links between somebody else's brokers are out of reach: side = 'clients'")
        if client != "squall":
            raise FaultError(f"{here}: only our own client is led through Toxiproxy: client = 'squall'")
    if FaultTrait.NEEDS_OUR_BROKER in traits:
        raise FaultError(f"{here}: only Squall's own broker can be made to: leave it out")


def drawn_kinds(compose: str, client: str) -> tuple[str, ...]:
    """Return the kinds of faults from which a seed draws for somebody else's cluster, if the user names none:
    administrators' requests, faults on the links of Squall's own clients, and with a compose file also faults on
    containers. compose: the compose file of the cluster's containers, or "". client: the client library of the
    workload, such as "squall".
    """
    drawn = [kind for kind in KINDS.values() if kind.draw.by_default_on_foreign]
    signalled = [kind.name for kind in drawn if FaultTrait.BY_SIGNAL in kind.traits]
    others = [kind.name for kind in drawn if FaultTrait.BY_SIGNAL not in kind.traits and _reached(kind, client)]
    return (*reversed(others), *(sorted(signalled) if compose else ()))


def _reached(kind: FaultKind, client: str) -> bool:
    return client == "squall" or FaultTrait.OF_LINKS not in kind.traits


def adapted_to_foreign_brokers(fault: Fault, *, external: bool) -> Fault:
    """Return a drawn fault, changed so that it can hit brokers that are not Squall's. external: the cluster is run by
    somebody else, so faults of links move to clients' links.
    """
    params = fault.kind.for_foreign_brokers(fault.params, external)
    return replace(fault, params=fault.kind.of_clients(params) if external else params)
