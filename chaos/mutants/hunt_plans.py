"""Makes the plans of a hunt for mutants: small clusters with short time-outs, few partitions, few records, and faults
close together.

A bug mostly needs two things at once: a follower that lags, and a leader that fails. So the time-outs here are a tenth
of a run's, and the faults overlap. All faults stay inside what the configuration promises to survive: under the same
plan the correct broker must raise no alarm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from squall.chaos.faults.kinds import KINDS
from squall.chaos.plans.plan import Plan, make_plan

POWER_LOSS = "W1"
"""Is the fault class of a power loss (`FaultKind.fault_class`): a node loses what was not synced."""

Values = dict[str, Any]

QUICK: Mapping[str, str] = {
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "600",
    "replica.lag.time.max.ms": "600",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
    "replica.socket.timeout.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "controller.quorum.election.timeout.ms": "250",
    "controller.quorum.fetch.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.request.timeout.ms": "400",
}
"""Holds broker settings with short time-outs, so that brokers notice within a second that another one is gone."""
REBALANCING: Mapping[str, str] = {
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}
"""Holds the settings that move leadership back to the preferred leader as soon as that replica is in sync. So each
failover moves leadership twice.
"""

ELIGIBLE: Mapping[str, str] = {"squall.bootstrap.features": "eligible.leader.replicas.version=1"}
"""Enables eligible leader replicas (KIP-966). Without them, the last in-sync replica stays the only one that may lead,
even if a power loss has taken records from it that other replicas hold. No min.insync.replicas helps then.
"""


def draw(seed: int, mutant: str) -> Random:
    """Return the random stream of a hunt for a mutant, so that no two mutants get the same plans."""
    # The text of the tuple: Random takes no tuple, and hashes of texts differ between processes.
    return Random(repr((seed, "hunt", mutant)))


def fault(at_s: float, duration_s: float, action: str, target: str = "random", **params: Any) -> Values:
    """Return one fault as a plan has it, with rounded times, so that the plan is readable."""
    return {
        "at_s": round(at_s, 3),
        "duration_s": round(duration_s, 3),
        "action": action,
        "target": target,
        "params": params,
    }


def hunt_plan(
    seed: int,
    faults: Sequence[Values],
    *,
    nodes: int = 3,
    settings: Mapping[str, str] | None = None,
    workload: Values | None = None,
    bare: bool = False,
    **plan: Any,
) -> Plan:
    """Return a plan of a small cluster under a light load, with these faults. After the last fault there is time to
    converge. bare: `workload` is the whole table of the load; otherwise it is added to `SMALL`.
    """
    end_s = max((f["at_s"] + f["duration_s"] for f in faults), default=0.0)
    values: Values = {
        "seed": seed,
        "runtime": "sim",
        "warmup_s": 0.5,
        "time_s": round(end_s + 2.0, 3),
        "cluster": {"nodes": nodes, "settings": {**QUICK, **(settings or {})}},
        "workload": {**({} if bare else SMALL), **(workload or {})},
        "limits": {"converge_s": 20, "final_read_s": 20, "stuck_s": 15},
        "faults": sorted(faults, key=lambda f: float(f["at_s"])),
    }
    return make_plan({**values, **plan})


SMALL: Mapping[str, Any] = {
    "topics": 1,
    "partitions": 3,
    "replication_factor": 3,
    "min_isr": 2,
    "producers": 2,
    "readers": 1,
    "rate": 150,
    "min_bytes": 64,
    "max_bytes": 200,
    "linger_ms": 5,
    "request_timeout_ms": 800,
    "delivery_timeout_ms": 6000,
}
"""Holds the load's settings: every node leads one partition, and there are always requests in flight."""


# -------------------------------------------------------------------------------------------- what several mutants need


def killings(rng: Random, *, rounds: int = 6, nodes: int = 3, action: str = "kill") -> list[Values]:
    """Return faults that take nodes down one after the other, each a moment after the previous node has come back.

    After a power loss, the next fault waits until the node has probably caught up. Otherwise several replicas could
    lose the same unsynced records, which no configuration without fsync survives.
    """
    gaps = (1.6, 2.0, 2.5) if KINDS[action].fault_class == POWER_LOSS else (0.15, 0.3, 0.5, 0.9)
    at_s, found, last = 0.3, [], 0
    for _ in range(rounds):
        last = rng.choice([n for n in range(1, nodes + 1) if n != last])
        down_s = rng.uniform(0.7, 1.3)
        found.append(fault(at_s, down_s, action, f"node:{last}"))
        at_s += down_s + rng.choice(gaps)
    return found


def killings_behind(rng: Random, *, rounds: int = 4, most_ms: int = 80) -> list[Values]:
    """Return faults that take nodes down one after the other while links are slow, so that responses are in flight and
    followers lag. most_ms: the longest delay of a link, without jitter.
    """
    kills = killings(rng, rounds=rounds)
    return [slow_links(rng, 0.0, kills[-1]["at_s"], most_ms=most_ms), *kills]


def somewhat_late(seed: int, mutant: str) -> list[Values]:
    """Return a list with one fault, which slows links for a while. It is for mutants that need no fault: with it, the
    order in which requests arrive differs from plan to plan.
    """
    rng = draw(seed, f"{mutant}: links")
    return [slow_links(rng, rng.uniform(0.1, 0.8), rng.uniform(0.8, 1.6), most_ms=40)]


def slow_links(rng: Random, at_s: float, duration_s: float, *, most_ms: int = 80) -> Values:
    """Return a fault that delays everything between brokers: followers lag, and responses are in flight for long.
    most_ms: the longest delay, without jitter.
    """
    latency_ms = rng.choice([ms for ms in (10, 20, 40, 80, 150, 250) if ms <= most_ms])
    return fault(at_s, duration_s, "latency", "all", latency_ms=latency_ms, jitter_ms=latency_ms // 2)
