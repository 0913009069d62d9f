"""What transactions need of the brokers: a log of the coordinators that finds enough brokers, and time-outs in time."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

FACTOR = "transaction.state.log.replication.factor"
MIN_ISR = "transaction.state.log.min.isr"
"""Both of the coordinators' log, `__transaction_state`."""
DEFAULT_FACTOR, DEFAULT_MIN_ISR = 3, 2
"""Kafka's, and ours."""
PARTITIONS, SEGMENT_BYTES = "transaction.state.log.num.partitions", "transaction.state.log.segment.bytes"
FLUSH = "log.flush.interval.messages"
EXPIRE_AFTER = "transactional.id.expiration.ms"
EXPIRE_EVERY = "transaction.remove.expired.transaction.cleanup.interval.ms"
FIRST_EPOCH = "squall.transaction.first.producer.epoch"
ADD_PATIENCE = "add.partitions.to.txn.retry.backoff.max.ms"
ABORT_EVERY = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
"""So often a coordinator looks for transactions whose time-out is over; 10 s by default."""


def suited(nodes: int) -> dict[str, str]:
    """Settings for a cluster of this size. What outlives its time-out is aborted a second later at most."""
    return {**_small(nodes), ABORT_EVERY: "1000"}


def drawn(rng: Random, nodes: int, workload: Mapping[str, Any]) -> dict[str, str]:
    """Settings for one plan of a swarm. What is rare with Kafka's defaults, some plans have often: coordinators whose
    log has many segments, ids that expire while a fault lasts, producer ids whose epochs are used up.
    """
    found = {**suited(nodes), PARTITIONS: rng.choice(("1", "2", "3"))}
    if nodes < DEFAULT_FACTOR:
        # With fewer than the partitions of a load have, decisions could be lost where no record may be.
        found[MIN_ISR] = str(nodes)
    if workload["topic_settings"].get("flush.messages") == "1":
        found[FLUSH] = "1"  # for the same reason
    if rng.random() < 0.3:
        found[SEGMENT_BYTES] = rng.choice(("400", "1500", "6000"))
    if rng.random() < 0.25:
        found[EXPIRE_AFTER], found[EXPIRE_EVERY] = rng.choice(("1500", "4000")), rng.choice(("300", "1000"))
    if rng.random() < 0.25:
        found[FIRST_EPOCH] = rng.choice(("32755", "32764", "32766"))
    if rng.random() < 0.2:
        found[ADD_PATIENCE] = rng.choice(("0", "1000"))
    if rng.random() < 0.3:
        found[ABORT_EVERY] = rng.choice(("200", "3000"))
    return found


def impossible(nodes: int, settings: Mapping[str, str]) -> str:
    """Why no producer would get its id in this cluster, and what to set; empty where each gets one."""
    factor = settings.get(FACTOR, str(DEFAULT_FACTOR))
    if not factor.isdigit() or int(factor) <= nodes:
        return ""  # what is no number is the broker's to refuse
    cluster = "1 broker" if nodes == 1 else f"{nodes} brokers"
    wanted = {FACTOR: str(nodes), **_small(nodes)}
    change = " and ".join(f"{name}={value}" for name, value in wanted.items())
    return f"{FACTOR} is {factor}, and the cluster has {cluster}, so no producer would get its id: set {change}"


def _small(nodes: int) -> dict[str, str]:
    """By default the log needs three brokers, and two of them in sync."""
    return {FACTOR: str(nodes), MIN_ISR: "1"} if nodes < DEFAULT_FACTOR else {}
