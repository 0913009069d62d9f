"""What groups need of brokers: a coordinators' log that finds enough of them, and sessions as short as theirs."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

FACTOR = "offsets.topic.replication.factor"
PARTITIONS, SEGMENT_BYTES = "offsets.topic.num.partitions", "offsets.topic.segment.bytes"
SHORTEST_SESSION = "group.min.session.timeout.ms"
FIRST_REBALANCE = "group.initial.rebalance.delay.ms"
FLUSH = "log.flush.interval.messages"
DEFAULT_FACTOR = 3


def suited_to_groups(nodes: int) -> dict[str, str]:
    """Settings for a cluster of this size. A member that is gone is missed within seconds."""
    few = {FACTOR: str(nodes)} if nodes < DEFAULT_FACTOR else {}
    return {**few, PARTITIONS: "5", SHORTEST_SESSION: "500", FIRST_REBALANCE: "500"}


def drawn_of_groups(rng: Random, nodes: int, workload: Mapping[str, Any]) -> dict[str, str]:
    """Settings for one plan of a swarm: few partitions of the coordinators' log, sometimes many segments."""
    found = {**suited_to_groups(nodes), PARTITIONS: rng.choice(("1", "2", "3"))}
    found[FIRST_REBALANCE] = rng.choice(("0", "500"))
    if workload["topic_settings"].get("flush.messages") == "1":
        found[FLUSH] = "1"  # else offsets could be lost where no record may be
    if rng.random() < 0.3:
        found[SEGMENT_BYTES] = rng.choice(("1500", "6000"))
    return found
