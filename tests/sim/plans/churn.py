"""Counts how often the ISR changes if lag is limited in messages, as before KAFKA-1546, and if it is limited in time.

    .venv/bin/python -m tests.sim.plans.churn

simulates one bursty load twice, over links with a delay of 30 ms each way, and prints the table of docs/replication.md.
Its numbers are those of early Kafka divided by a thousand: bursts of 100 records a second, and a permitted lag of 4
messages (the default was 4,000).
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.simulation import simulate

BY_MESSAGES = {"replica.lag.max.messages": "4"}
FIRST_AT_S, EVERY_S, BURST_S, BURSTS, PER_S = 0.5, 3.0, 1.5, 4, 100
"""The bursts of the load. A burst lasts as long as the interval at which a leader checks its followers, which is half
of replica.lag.time.max.ms.
"""
LOAD_S = FIRST_AT_S + BURSTS * EVERY_S


class Churn(NamedTuple):
    """The changes of the ISR under the load."""

    verdict: str
    changes: int
    """How many changes the leader proposed."""
    alone_s: float
    """How long the leader was the only member of the ISR."""

    @property
    def per_minute(self) -> float:
        """Changes per minute of virtual time."""
        return self.changes * 60 / LOAD_S


def bursty(seed: int, settings: dict[str, str]) -> Plan:
    """Return a plan with three replicas and this load. Its only difficulty is the delay between followers and leader.
    """
    records = [
        [round(FIRST_AT_S + burst * EVERY_S + number / PER_S, 3), 0, "appends-0", 0, 100]
        for burst in range(BURSTS)
        for number in range(int(BURST_S * PER_S))
    ]
    slow: dict[str, Any] = {"latency_ms": 30, "jitter_ms": 0}
    return make_plan(
        {
            "seed": seed,
            "runtime": "sim",
            "warmup_s": 0,
            "time_s": LOAD_S,
            "cluster": {"nodes": 3, "settings": {**FAST_FAILOVER, **settings}},
            "workload": {"topics": 1, "partitions": 1, "min_isr": 1, "producers": 1, "readers": 1},
            "faults": [{"at_s": 0, "duration_s": LOAD_S, "action": "latency", "target": "all", "params": slow}],
            "operations": records,
        }
    )


def measure(seed: int, settings: dict[str, str]) -> Churn:
    """Simulate the load with these settings of the brokers."""
    result = simulate(bursty(seed, settings))
    proposals = [(float(line["t"]), line["isr"]) for line in result.trace if line["e"] == "isr_proposed"]
    times = [at for at, _ in proposals]
    alone_s = sum(end - at for (at, isr), end in zip(proposals, times[1:], strict=False) if len(isr) == 1)
    return Churn(result.verdict, len(proposals), alone_s)


def main() -> None:
    """Print the table."""
    sys.stdout.write("| lag is | ISR changes | a minute | leader alone |\n|---|---|---|---|\n")
    for name, settings in (("a time", {}), ("a count of messages", BY_MESSAGES)):
        found = measure(1, settings)
        sys.stdout.write(f"| {name} | {found.changes} | {found.per_minute:.0f} | {found.alone_s:.1f} s |\n")


if __name__ == "__main__":
    main()
