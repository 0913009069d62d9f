"""Chooses broker settings for transactional loads: for the topic __transaction_state, and for how often coordinators
look for timed-out transactions and expired transactional ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from squall.workloads.scenario import BrokerLimit

FACTOR = "transaction.state.log.replication.factor"
"""Names the setting for the replication factor of __transaction_state. If the factor is higher than the number of
brokers, the topic cannot be created, and no transactional producer gets a producer id.
"""
PARTITIONS, SEGMENT_BYTES = "transaction.state.log.num.partitions", "transaction.state.log.segment.bytes"
FLUSH = "log.flush.interval.messages"
EXPIRE_AFTER = "transactional.id.expiration.ms"
EXPIRE_EVERY = "transaction.remove.expired.transaction.cleanup.interval.ms"
FIRST_EPOCH = "squall.transaction.first.producer.epoch"
ADD_PATIENCE = "add.partitions.to.txn.retry.backoff.max.ms"
ABORT_EVERY = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
"""Names the interval at which a coordinator looks for timed-out transactions; 10 s by default."""


SUITED: Mapping[str, str] = {ABORT_EVERY: "1000"}
"""Maps broker settings to values that suit this workload: with these, a coordinator aborts a transaction at most a
second after its time-out.
"""


def timeout_limit(timeout_ms: int) -> BrokerLimit:
    """Return the broker setting that bounds transaction time-outs, with the time-out that this workload asks for."""
    why = "no producer gets its transactional id"
    return BrokerLimit("transaction.max.timeout.ms", timeout_ms, "transaction_timeout_ms", why)


def drawn(rng: Random, workload: Mapping[str, Any]) -> dict[str, str]:
    """Draw broker settings for one random plan. Some plans make frequent what is rare with Kafka's defaults: a
    coordinator's log with many segments, transactional ids that expire while a fault lasts, producer ids whose epochs
    are used up.
    """
    found = {**SUITED, PARTITIONS: rng.choice(("1", "2", "3"))}
    if workload["topic_settings"].get("flush.messages") == "1":
        found[FLUSH] = "1"  # else decisions could be lost where no record may be
    if rng.random() < 0.3:
        found[SEGMENT_BYTES] = rng.choice(("400", "1500", "6000"))
    if rng.random() < 0.25:
        found[EXPIRE_AFTER], found[EXPIRE_EVERY] = rng.choice(("3000", "6000")), rng.choice(("300", "1000"))
    # Epochs are 16 bits: so near to 32767 a producer soon needs a new producer id.
    if rng.random() < 0.25:
        found[FIRST_EPOCH] = rng.choice(("32755", "32764", "32766"))
    if rng.random() < 0.2:
        found[ADD_PATIENCE] = rng.choice(("0", "1000"))
    if rng.random() < 0.3:
        found[ABORT_EVERY] = rng.choice(("200", "3000"))
    return found
