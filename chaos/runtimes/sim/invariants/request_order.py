"""Defines the invariant of the order of one connection's requests."""

from __future__ import annotations

from typing import NamedTuple

from squall.broker.protocol.apis import ApiKey
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant


class RequestEffect(NamedTuple):
    """Identifies a request that took effect, by its number on its connection and its API key."""

    number: int
    """Is the request's number on its connection, from 1 on."""
    key: int
    """Is the request's API key."""

    def __str__(self) -> str:
        return f"request {self.number} ({ApiKey(self.key).name})"


@invariant(
    "one-order-per-connection", CheckTrigger.ORDER, "Kafka protocol guide, Network; SocketServer mutes a busy channel"
)
def one_order_per_connection(now: RequestEffect, last: RequestEffect) -> str | None:
    """Requests of one connection take effect in the order in which they were sent, even if an earlier one must wait."""
    if now.number >= last.number:
        return None
    return f"{now} of a connection took effect after {last}, which was sent later"
