"""Defines what all faults of links share: their duration and side, the number of brokers that they need, and their
words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.chaos.faults.kind import SIDES, TRAFFIC, ChoiceParameter, NumericParameter, Params, PlanTraits, listed

ON_S = NumericParameter(0.2, 600, 4)
PEERS = ChoiceParameter(SIDES, "peers")
BETWEEN_BROKERS = ("peers", *TRAFFIC)
"""Sides that are connections between brokers, and nothing else."""
MEASURED_BYTES = 30_000
"""A probe's largest request: what a link does to bytes is measured with as many. A client id holds 32,767."""


def both_ends(params: Params) -> int:
    """A link between brokers needs two brokers."""
    return 2 if params["side"] in BETWEEN_BROKERS else 1


def on_clients_side(params: Params) -> dict[str, Any]:
    """The same parameters on clients' links."""
    return {**params, "side": "clients"}


def indistinct_traffic(params: Params, setting: PlanTraits) -> str:
    """Why a plan cannot tell this traffic apart. Empty: it can, or it need not."""
    side = params["side"]
    if side not in TRAFFIC or setting.target == "squall":
        return ""
    return f"side = {side!r}: only what Squall's own brokers ask each other is told apart: side = 'peers'"


def off_peers(params: Params) -> dict[str, Any]:
    """An only broker has no peers: move the fault to clients' links."""
    return {**params, "side": "clients"} if params["side"] in BETWEEN_BROKERS else dict(params)


def hit_by(name: str) -> Any:
    """Return the function that says in words what such a fault does to a node."""

    def describe_effect(params: Params, node: int, links: Sequence[str]) -> str:
        return f"hit by {name.replace('_', ' ')}{listed(params)}"

    return describe_effect
