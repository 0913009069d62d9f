"""Defines capabilities that only some runtimes have, and functions that ask whether a runtime has them."""

from __future__ import annotations

from typing import Protocol, TypeGuard

from squall.chaos.runtimes.contract import CrashOp, Evidence


class CallCountingRuntime(Protocol):
    """Represents a runtime that counts its brokers' calls to disk and network."""

    def calls(self, node: int, op: CrashOp) -> int:
        """Return how many calls of `op` a node has made since the cluster was made, over all the node's incarnations.
        """


class ClockFakingRuntime(Protocol):
    """Represents a runtime that can also change a broker's clock from outside, without help from the broker."""

    async def fake_time(self, node: int, offset_ms: float) -> Evidence:
        """Set a node's wall clock to the true time plus `offset_ms`, by libfaketime; `clock_reports` reports this
        clock, too. Refused if the cluster was not made for fake time.
        """


def counts_calls(runtime: object) -> TypeGuard[CallCountingRuntime]:
    """Return whether a runtime counts its brokers' calls to disk and network.

    The test is not by `isinstance`: since Python 3.12 `isinstance` ignores methods that a wrapper of a runtime passes
    on by `__getattr__`.
    """
    return hasattr(runtime, "calls")


def fakes_time(runtime: object) -> TypeGuard[ClockFakingRuntime]:
    """Return whether a runtime can change a broker's clock from outside."""
    return hasattr(runtime, "fake_time")
