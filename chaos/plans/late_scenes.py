"""Scenes of a swarm with transactional producers: what is said of a transaction comes after the transaction is over.

A late request harms the next transaction, if anything. So the client must have asked again before it comes, and the
next transaction must be open when it does. Slow links to clients keep transactions open for most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from chaos.plans.scenes import NODES, Faults, Scene

REQUEST_TIMEOUT_MS = 1000
BEGIN_S, EVERY_S, TIMES = 3.0, 4.0, 5
LASTS_S = 3.8
"""So long that a producer which pauses inside its transaction ends one meanwhile: a fault that met no request proves
nothing, and the seed would be unknown."""


def late_ends(rng: Random) -> Scene:
    """An EndTxn comes after the client has asked again and got its answer (KAFKA-17754)."""
    faults = _slow_clients(rng)
    for number in range(TIMES):
        late = {"act": "delay", "delay_ms": rng.randint(1300, 2200), "count": 1, "side": "clients"}
        faults.add(BEGIN_S + EVERY_S * number, LASTS_S, "protocol", "all", api="EndTxn", **late)
    return Scene(tuple(faults.made), _load(rng, (1, 2, 2)), {})


def late_markers(rng: Random) -> Scene:
    """A marker comes after the coordinator has written it again (KIP-1228). In the first generation it would end the
    next transaction, in Kafka too: a marker does not say which one it ends.
    """
    faults = _slow_clients(rng)
    for number in range(TIMES):
        late = {"act": "delay", "delay_ms": rng.randint(700, 1500), "count": rng.choice((1, 2)), "side": "peers"}
        faults.add(BEGIN_S + EVERY_S * number, LASTS_S, "protocol", "all", api="WriteTxnMarkers", **late)
    return Scene(tuple(faults.made), _load(rng, (2,)), {"request.timeout.ms": "500"})


def _slow_clients(rng: Random) -> Faults:
    faults = Faults()
    latency_ms = rng.randint(40, 100)
    faults.add(1.0, 23, "latency", "all", side="clients", latency_ms=latency_ms, jitter_ms=latency_ms // 4)
    return faults


def _load(rng: Random, generations: Sequence[int]) -> dict[str, Any]:
    return {
        "producers": 2,
        "partitions": 2,
        "rate": 5,
        "replication_factor": NODES,
        "min_isr": 2,
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "generation": rng.choice(generations),
        "isolation": "both",
    }


LATE_SCENES: tuple[Callable[[Random], Scene], ...] = (late_ends, late_markers)
