"""Faults of links, and what a probe over the link tells while each is on."""

from __future__ import annotations

from chaos.runtimes.contract import (
    Bandwidth,
    Cut,
    Latency,
    LimitData,
    Link,
    LinkFault,
    Manner,
    ResetPeer,
    Runtime,
    Slicer,
    SlowClose,
    Stream,
)

CUTS: list[tuple[LinkFault, str]] = [
    (Cut(Manner.REFUSE), "refused"),
    (Cut(Manner.DROP), "timed out"),
    (Cut(Manner.DROP, Stream.THERE), "timed out"),
    (Cut(Manner.DROP, Stream.BACK), "timed out"),
    (Cut(Manner.HOLD), "timed out"),
    (Cut(Manner.HOLD, Stream.BACK), "timed out"),
    (LimitData(3), "ended: the connection was closed"),
    (ResetPeer(), "ended: Connection reset by peer"),
]
"""Nothing passes, and the probe's error through a real Toxiproxy; what comes before the colon is every world's."""
SLOW: list[tuple[LinkFault, float]] = [
    (Latency(40), 80),
    (Latency(40, stream=Stream.BACK), 40),
    (Slicer(1, 0, 1000), 20),
]
"""Everything passes, and the least that a round trip takes, in ms."""
WORSE: list[LinkFault] = [Bandwidth(1), SlowClose(100)]
"""A probe is too small to notice."""


async def is_quick_again(runtime: Runtime, link: Link, least_ms: float, tries: int = 10) -> bool:
    """Whether one of some probes takes less than any can while the link is slow: one may meet a busy machine."""
    for _ in range(tries):
        if (await runtime.probe(link)).round_trip_ms < least_ms:
            return True
    return False
