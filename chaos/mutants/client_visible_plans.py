"""Makes plans for mutants of replication in which clients notice the bug. All that matters happens to one partition.

A wrong ISR or a wrong epoch does no harm as long as the leader runs. So these plans define which broker is cut off from
which, which dies, and in which order, until the replica that should not lead is the only one that can. The plans attack
the partition whose replicas are brokers 4, 5 and 6, in this order. None of these brokers is a voter of the metadata
quorum, so the controller stays. A correct broker loses nothing under such a plan, although power is lost or elections
may be unclean: the plans accept no loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from squall.chaos.mutants.hunt_plans import Values, fault, hunt_plan
from squall.chaos.plans.plan import Plan

FIRST, SECOND, THIRD = 4, 5, 6
"""Give the replicas of the partition that is attacked, in the order in which they are elected."""
NODES, PARTITIONS = 6, 30
"""Give the numbers of brokers and partitions. Each run places replicas differently. With so many partitions, one of
them has its replicas on brokers 4, 5 and 6, in this order.
"""
CONTROLLER = "controller"
ONE_BY_ONE: Mapping[str, Any] = {"min_bytes": 900, "max_bytes": 1000, "batch_bytes": 1024, "linger_ms": 0}
"""Holds settings of the load that put each record into a batch of its own. If two logs have diverged, batches begin at
the same offsets in both. So a follower can continue to copy from a log that differs from its own.
"""
NO_ELIGIBLE: Mapping[str, str] = {"squall.bootstrap.features": "eligible.leader.replicas.version=0"}
"""Disables eligible leader replicas (KIP-966): then the last member of an ISR stays in it, whatever it has lost."""
PATIENT_WITH_CONTROLLER: Mapping[str, str] = {
    "controller.quorum.fetch.timeout.ms": "6000",
    "controller.quorum.request.timeout.ms": "6000",
}
"""Holds time-outs long enough to wait for late responses of the controller."""


def cut_fetches(at_s: float, duration_s: float, follower: int, leader: int) -> Values:
    """Return a fault that stops a follower's fetches from a leader. All other requests between the two pass."""
    return fault(at_s, duration_s, "partition", f"link:{follower}->{leader}", side="replication")


def cut_from_controller(at_s: float, duration_s: float, broker: int) -> Values:
    """Return a fault that cuts a broker off from the controller: the broker is fenced, and does not learn of the
    controller's decisions. Followers still fetch from it, and it fetches from leaders.
    """
    return fault(at_s, duration_s, "partition", f"link:{broker}->{CONTROLLER}", side=CONTROLLER)


def late_fetches(at_s: float, duration_s: float, follower: int, leader: int, late_ms: int, stream: str) -> Values:
    """Return a fault that delays a follower's fetches by `late_ms`. stream: "there" delays the requests to the leader,
    "back" the responses.
    """
    return _late(at_s, duration_s, f"link:{follower}->{leader}", late_ms, "Fetch", stream, "replication")


def late_metadata(at_s: float, duration_s: float, broker: int, late_ms: int) -> Values:
    """Return a fault in which a broker learns late what the controller has decided, but is not fenced: its heartbeats
    pass.
    """
    return _late(at_s, duration_s, f"link:{broker}->{CONTROLLER}", late_ms, "Fetch", "back", CONTROLLER)


def late_proposals(at_s: float, duration_s: float, broker: int, late_ms: int, stream: str) -> Values:
    """Return a fault that delays a leader's AlterPartition requests by `late_ms`. stream: "there" delays the requests
    to the controller, "back" the responses.
    """
    return _late(at_s, duration_s, f"link:{broker}->{CONTROLLER}", late_ms, "AlterPartition", stream, CONTROLLER)


def _late(at_s: float, duration_s: float, link: str, late_ms: int, api: str, stream: str, side: str) -> Values:
    params = {"api": api, "act": "delay", "delay_ms": late_ms, "stream": stream, "side": side, "count": 0}
    return fault(at_s, duration_s, "protocol", link, **params)


def one_for_each(at_s: float) -> list[list[Any]]:
    """Return operations that send one record to each partition."""
    return [[round(at_s + 0.002 * index, 3), index % 2, "appends-0", index, 200] for index in range(PARTITIONS)]


def until(end_s: float) -> list[list[Any]]:
    """Return operations that send ten records a second to each partition until `end_s`, and none after that."""
    return [operation for tenth in range(int(10 * end_s)) for operation in one_for_each(0.05 + tenth / 10)]


def client_visible_plan(
    seed: int,
    faults: Sequence[Values],
    *,
    settings: Mapping[str, str] | None = None,
    workload: Mapping[str, Any] | None = None,
    **plan: Any,
) -> Plan:
    """Return a plan with these faults, for 6 brokers and 30 partitions under a light load, so that one partition has
    its replicas on brokers 4, 5 and 6. The plan counts every lost record as a failure (expect="safe").
    """
    return hunt_plan(
        seed,
        faults,
        nodes=NODES,
        settings={"replica.socket.timeout.ms": "5000", **(settings or {})},
        workload={"partitions": PARTITIONS, "rate": 200, **(workload or {})},
        expect="safe",
        **plan,
    )
