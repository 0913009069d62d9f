"""What can be done to a cluster that somebody else runs: what clients and administrators can do, and no more.

With a compose file its containers can be killed, stopped and paused as well.
"""

from __future__ import annotations

from typing import Any

from chaos.faults.link_actions import LINK_ACTIONS
from chaos.faults.vocabulary import Fault, FaultError

ON_LINKS = frozenset(action.name for action in LINK_ACTIONS) | {"reset"}
ASKED = frozenset({"leadership", "client"})
ON_CONTAINERS = frozenset({"kill", "stop", "pause"})
KINDS = ("leadership", "latency", "partition")
"""Drawn where a plan names none; with a compose file also what is done to containers."""


def check_external(fault: Fault, *, compose: str, client: str) -> None:
    """FaultError, which says why, for what cannot be done to somebody else's cluster."""
    here = f"fault {fault.id} ({fault.action})"
    if fault.action in ON_CONTAINERS:
        if not compose:
            raise FaultError(f"{here}: whose process is it? --compose FILE names containers that may be hurt")
    elif fault.action in ON_LINKS:
        if fault.params.get("side") != "clients":
            raise FaultError(f"{here}: links between somebody else's brokers are out of reach: side = 'clients'")
        if client != "squall":
            raise FaultError(f"{here}: only our own client is led through Toxiproxy: client = 'squall'")
    elif fault.action not in ASKED:
        can = ", ".join(sorted(ASKED | ON_CONTAINERS | ON_LINKS))
        raise FaultError(f"{here}: clients and administrators cannot do that: they can {can}")
    if fault.params.get("how") == "resign":
        raise FaultError(f"{here}: only Squall's own broker can be made to: leave it out")


def drawn_kinds(compose: str, client: str) -> tuple[str, ...]:
    """What a seed draws from."""
    kinds = KINDS if client == "squall" else ("leadership",)
    return (*kinds, *sorted(ON_CONTAINERS)) if compose else kinds


def for_others(fault: dict[str, Any], *, external: bool) -> dict[str, Any]:
    """A drawn fault as it can be done to brokers that are not ours, and, of an external cluster, by its clients.

    Nobody asks somebody else's cluster for an unclean election: what that loses was promised to be kept.
    """
    if fault["action"] == "leadership":
        never = ("resign", "unclean") if external else ("resign",)
        how = fault["params"]["how"]
        return {**fault, "params": {**fault["params"], "how": "preferred" if how in never else how}}
    if not external or fault["action"] not in ON_LINKS:
        return fault
    params = {**fault["params"], "side": "clients"}
    if fault["action"] == "partition":
        params["shape"] = "isolate"
    return {**fault, "params": params}
