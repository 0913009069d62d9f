"""Faults of links, and what a probe over the link tells while each is on."""

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
"""Nothing passes, and the probe's error through a real Toxiproxy; what comes before the colon is every world's."""
SLOW: list[tuple[LinkFault, float]] = [
    (Latency(40), 80),
    (Latency(40, stream=StreamDirection.BACK), 40),
    (Slicer(1, 0, 1000), 20),
]
"""Everything passes, and the least that a round trip takes, in ms."""
WORSE: list[LinkFault] = [Bandwidth(1), SlowClose(100)]
"""A probe is too small to notice."""


async def answers(runtime: Runtime, link: Link) -> bool:
    """Return whether a probe is answered at all."""
    return (await runtime.probe(link, timeout_s=LONG_S)).ok


async def is_quick_again(runtime: Runtime, link: Link, least_ms: float) -> bool:
    """Return whether a probe takes less than any can while the link is slow: the first ones may meet a busy machine."""
    with trio.move_on_after(LONG_S):
        while (await runtime.probe(link, timeout_s=LONG_S)).round_trip_ms >= least_ms:
            await trio.sleep(0.02)
        return True
    return False
