"""What all faults of links share: their duration and side, the number of brokers that they need, and their words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chaos.faults.kind import SIDES, Choice, Number, Params, listed

ON_S = Number(0.2, 600, 4)
PEERS = Choice(SIDES, "peers")
MEASURED_BYTES = 30_000
"""A probe's largest request: what a link does to bytes is measured with as many. A client id holds 32,767."""


def both_ends(params: Params) -> int:
    """A link between brokers needs two brokers."""
    return 2 if params["side"] == "peers" else 1


def on_clients_side(params: Params) -> dict[str, Any]:
    """The same parameters on clients' links."""
    return {**params, "side": "clients"}


def off_peers(params: Params) -> dict[str, Any]:
    """An only broker has no peers: move the fault to clients' links."""
    return {**params, "side": "clients"} if params["side"] == "peers" else dict(params)


def hit_by(name: str) -> Any:
    """What is done to a node by such a fault, in words."""

    def done(params: Params, node: int, links: Sequence[str]) -> str:
        return f"hit by {name.replace('_', ' ')}{listed(params)}"

    return done
