"""Faults of links, and the result of a probe over the link while each is active."""

from __future__ import annotations

import trio

from squall.chaos.runtimes.contract import (
    Bandwidth,
    Cut,
    CutMode,
    Latency,
    LimitData,
    Link,
    LinkFault,
    ResetPeer,
    Runtime,
    Slicer,
    SlowClose,
    StreamDirection,
)
from tests.support.patience import LONG_S

CUTS: list[tuple[LinkFault, str]] = [
    (Cut(CutMode.REFUSE), "refused"),
    (Cut(CutMode.DROP), "timed out"),
    (Cut(CutMode.DROP, StreamDirection.THERE), "timed out"),
    (Cut(CutMode.DROP, StreamDirection.BACK), "timed out"),
    (Cut(CutMode.HOLD), "timed out"),
    (Cut(CutMode.HOLD, StreamDirection.BACK), "timed out"),
    (LimitData(3), "ended: the connection was closed"),
    (ResetPeer(), "ended: Connection reset by peer"),
]
"""Faults that stop all data, with the probe's error through a real Toxiproxy. The part before a colon is the same in
every world.
"""
SLOW: list[tuple[LinkFault, float]] = [
    (Latency(40), 80),
    (Latency(40, stream=StreamDirection.BACK), 40),
    (Slicer(1, 0, 1000), 20),
]
"""Faults that delay data, with the least round-trip time in ms."""
WORSE: list[LinkFault] = [Bandwidth(1), SlowClose(100)]
"""Faults that a probe is too small to notice."""


async def answers(runtime: Runtime, link: Link) -> bool:
    """Return whether a probe is answered at all."""
    return (await runtime.probe(link, timeout_s=LONG_S)).ok


async def is_quick_again(runtime: Runtime, link: Link, least_ms: float) -> bool:
    """Return whether a probe takes less than is possible while the link is slow. The first probes may be late on a busy
    machine.
    """
    with trio.move_on_after(LONG_S):
        while (await runtime.probe(link, timeout_s=LONG_S)).round_trip_ms >= least_ms:
            await trio.sleep(0.02)
        return True
    return False
