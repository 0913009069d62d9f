"""What faults of links have in common: their length and side, how many brokers they need, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chaos.faults.kind import SIDES, Choice, Number, Params, listed

ON_S = Number(0.2, 600, 4)
PEERS = Choice(SIDES, "peers")
MEASURED_BYTES = 30_000
"""A probe's largest request: what a link does to bytes is measured with as many. A client id holds 32,767."""


def both_ends(params: Params) -> int:
    """A link between brokers needs two of them."""
    return 2 if params["side"] == "peers" else 1


def on_clients_side(params: Params) -> dict[str, Any]:
    """The same on clients' links."""
    return {**params, "side": "clients"}


def off_peers(params: Params) -> dict[str, Any]:
    """On an only broker, which has no peers: the same on clients' links instead."""
    return {**params, "side": "clients"} if params["side"] == "peers" else dict(params)


def hit_by(name: str) -> Any:
    """What is done to a node by such a fault, in words."""

    def done(params: Params, node: int, links: Sequence[str]) -> str:
        return f"hit by {name.replace('_', ' ')}{listed(params)}"

    return done
