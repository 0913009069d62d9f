"""Defines what all faults of links share: the parameters for their duration and for whose links they hit (`side`), the
number of brokers that they need, and their descriptions in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.chaos.faults.kind import SIDES, TRAFFIC, ChoiceParameter, NumericParameter, Params, PlanCapabilities, listed

ON_S = NumericParameter(0.2, 600, 4)
PEERS = ChoiceParameter(SIDES, "peers")
BETWEEN_BROKERS = ("peers", *TRAFFIC)
"""Lists the values of `side` that select only connections between brokers."""
MEASURED_BYTES = 30_000
"""Gives the size of the largest probe request, in bytes. Such probes measure how a fault slows bytes down or cuts them
up. The request is padded by its client id, which holds at most 32,767 bytes.
"""


def both_ends(params: Params) -> int:
    """Return how many brokers the fault needs: two for a link between brokers, else one."""
    return 2 if params["side"] in BETWEEN_BROKERS else 1


def on_clients_side(params: Params) -> dict[str, Any]:
    """Return the same parameters with `side` = `clients`, so that the fault hits clients' links."""
    return {**params, "side": "clients"}


def indistinct_traffic(params: Params, setting: PlanCapabilities) -> str:
    """Return why the plan cannot have `side` = `replication` or `controller`. Empty: it can, or `side` has another
    value. The frame relay can select these requests only if the brokers are Squall's own.
    """
    side = params["side"]
    if side not in TRAFFIC or setting.target == "squall":
        return ""
    return f"side = {side!r}: only what Squall's own brokers ask each other is told apart: side = 'peers'"


def off_peers(params: Params) -> dict[str, Any]:
    """Return the parameters for a single broker, which has no peers: move the fault to clients' links."""
    return {**params, "side": "clients"} if params["side"] in BETWEEN_BROKERS else dict(params)


def hit_by(name: str) -> Any:
    """Return a function for `FaultKind.describe_effect` whose words are "hit by", the kind's name and its parameters.
    name: the kind's name, such as "slow_close".
    """

    def describe_effect(params: Params, node: int, links: Sequence[str]) -> str:
        return f"hit by {name.replace('_', ' ')}{listed(params)}"

    return describe_effect
