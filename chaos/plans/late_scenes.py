"""Defines scenes (groups of faults that only together reach a rare situation) for swarm plans with transactional
producers: requests about a transaction arrive late, twice, or at only some of the brokers.

A late request can harm only the next transaction. So the client must have retried the request before it arrives, and
the next transaction must be open when it arrives. Slow links to clients keep transactions open for most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from squall.chaos.plans.scenes import NODES, RarePathScene, SceneBuilder

REQUEST_TIMEOUT_MS = 1000
BEGIN_S, EVERY_S, TIMES = 3.0, 3.0, 7


def late_ends(rng: Random) -> RarePathScene:
    """Let an EndTxn request arrive only after the client has sent it again and got an answer (KAFKA-17754)."""
    faults = _slow_clients(rng)
    for number in range(TIMES):
        late = {"act": "delay", "delay_ms": rng.randint(1300, 2200), "count": 1, "side": "clients"}
        faults.add(BEGIN_S + EVERY_S * number, 2.5, "protocol", "all", api="EndTxn", **late)
    return RarePathScene(tuple(faults.made), _load(rng, (1, 2, 2)), {})


def late_markers(rng: Random) -> RarePathScene:
    """Let a transaction marker arrive only after the coordinator has sent it again (KIP-1228). With transactions V1
    (before KIP-890) the late marker would end the next transaction, in Kafka too: a marker does not say which
    transaction it ends.
    """
    faults = _slow_clients(rng)
    for number in range(TIMES):
        late = {"act": "delay", "delay_ms": rng.randint(700, 1500), "count": rng.choice((1, 2)), "side": "peers"}
        faults.add(BEGIN_S + EVERY_S * number, 2.5, "protocol", "all", api="WriteTxnMarkers", **late)
    return RarePathScene(tuple(faults.made), _load(rng, (2,)), {"request.timeout.ms": "500"})


def late_records(rng: Random) -> RarePathScene:
    """Let a record arrive only after its client has given it up and aborted the transaction (KAFKA-14402). There are
    few transactions and many partitions, because a later write to the same partition would fence the record.
    """
    faults = SceneBuilder()
    for number in range(4):
        late = {"act": "delay", "delay_ms": rng.randint(2600, 3000), "count": 0, "side": "clients"}
        faults.add(rng.uniform(2.0, 3.0) + 6.0 * number, 2.0, "protocol", "all", api="Produce", **late)
    waits = {"request_timeout_ms": 800, "delivery_timeout_ms": 1500, "transaction_timeout_ms": 4000}
    return RarePathScene(tuple(faults.made), {**_load(rng, (1,)), "partitions": 6, **waits}, {})


def lost_answers_to_markers(rng: Random) -> RarePathScene:
    """Drop brokers' responses to transaction markers, so that the coordinator sends these markers again. Meanwhile the
    markers to one other broker are lost, too (KAFKA-19999). The transaction completes only if brokers accept a marker
    that they already have.
    """
    faults = SceneBuilder()
    for number in range(4):
        at_s, others = rng.uniform(2.0, 3.0) + 6.0 * number, "not coordinator:squall-0"
        asked = {"api": "WriteTxnMarkers", "act": "drop", "count": 0, "side": "peers"}
        faults.add(at_s, rng.uniform(2.2, 2.6), "protocol", f"random {others}", **asked)
        faults.add(at_s, rng.uniform(1.4, 1.8), "protocol", f"all {others}", stream="back", **asked)
    settings = {"request.timeout.ms": "500", "transaction.state.log.num.partitions": "1"}
    load = {**_load(rng, (1, 2, 2)), "partitions": 6, "producers": 4, "rate": 15, "transaction_timeout_ms": 1500}
    return RarePathScene(tuple(faults.made), load, settings)


def unreplicated_markers(rng: Random) -> RarePathScene:
    """Delay transaction markers so that a leader appends them while no follower can fetch from it. Readers ask this
    leader for the last stable offset, and then it is killed. Markers to its successor are delayed as well.
    """
    faults = SceneBuilder()
    for number, node in enumerate(rng.sample((1, 2, 3), 3)):
        at_s, target = 2.5 + 8.0 * number, f"node:{node}"
        late = {"act": "delay", "delay_ms": 1500, "count": 0, "side": "peers"}
        faults.add(at_s, 6.0, "protocol", "all", api="WriteTxnMarkers", **late)
        faults.add(at_s + 0.4, 2.4, "partition", target, side="replication", manner="drop")
        faults.add(at_s + rng.uniform(2.3, 2.6), 2.5, "kill", target)
    many = {"partitions": 6, "readers": 8, "rate": 10, "poll_pause_ms": 0, "transaction_timeout_ms": 10_000}
    settings = {"replica.lag.time.max.ms": "6000", "transaction.state.log.num.partitions": "1"}
    return RarePathScene(tuple(faults.made), {**_load(rng, (1, 2, 2)), **many}, settings)


def markers_without_a_leader(rng: Random) -> RarePathScene:
    """Kill the only replica of a partition while transaction markers for this partition are late. The partition's
    transactions complete once the replica leads it again.
    """
    faults = SceneBuilder()
    for number in range(4):
        at_s = rng.uniform(2.0, 3.0) + 6.0 * number
        late = {"act": "delay", "delay_ms": 1000, "count": 0, "side": "peers"}
        faults.add(at_s - 0.5, 2.0, "protocol", "all", api="WriteTxnMarkers", **late)
        faults.add(at_s, rng.uniform(2.5, 3.5), "kill", "leader")
    load = {**_load(rng, (1, 2, 2)), "replication_factor": 1, "min_isr": 1, "transaction_timeout_ms": 4000}
    return RarePathScene(tuple(faults.made), load, {})


def completions_below_min_isr(rng: Random) -> RarePathScene:
    """Delay transaction markers, and meanwhile keep followers from fetching from the transaction coordinator. So the
    coordinator records the decision to commit or abort while its log's ISR is full, and has to record the completion
    when this ISR is below min ISR.
    """
    faults = SceneBuilder()
    for number in range(2):  # followers need some seconds to be in sync again
        at_s = rng.uniform(3.0, 4.0) + 12.5 * number
        late = {"act": "delay", "delay_ms": rng.randint(1800, 2200), "count": 0, "side": "peers"}
        faults.add(at_s - 1.5, 4.0, "protocol", "all", api="WriteTxnMarkers", **late)
        faults.add(at_s, 4.0, "partition", "coordinator:squall-0", side="replication", manner="drop")
    settings = {"replica.lag.time.max.ms": "1000", "transaction.state.log.num.partitions": "1"}
    many = {"partitions": 6, "producers": 4, "rate": 15, "transaction_timeout_ms": 10_000}
    return RarePathScene(tuple(faults.made), {**_load(rng, (1, 2, 2)), **many}, settings)


def _slow_clients(rng: Random) -> SceneBuilder:
    faults = SceneBuilder()
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


LATE_SCENES: tuple[Callable[[Random], RarePathScene], ...] = (
    late_ends,
    late_markers,
    late_records,
    lost_answers_to_markers,
    unreplicated_markers,
    markers_without_a_leader,
    completions_below_min_isr,
)
