"""Finds plans that show a known anomaly when an option of replication is set: draws small plans from seeds until one
does.

    .venv/bin/python -m tests.sim.plans.find_plans loss 0 200

prints each seed that finds it, and the command that shrinks its run, which is below runs/.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate

Values = dict[str, Any]
ELIGIBLE = {"squall.bootstrap.features": "eligible.leader.replicas.version=1"}
TRUNCATION = {"squall.replication.truncation": "high-watermark"}
TOPIC = "appends-0"
DOWN_S = (0.2, 0.25, 0.3, 0.4, 0.5, 1, 2, 4)
APART_S = (0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)


def loss(seed: int) -> Plan:
    """Draw a plan with a few records, in which two brokers die or stop soon after one of them was written. Most plans
    have eligible leader replicas.
    """
    rng = Random(repr((seed, "kip-101 loss 3")))
    settings = ELIGIBLE if rng.random() < 0.7 else {}
    replicas = rng.choice((2, 2, 3))
    records = _records(rng, rng.choice((1, 2, 3)), 0.3)
    at_s = rng.choice(records)[0] + rng.uniform(0.02, 0.5)
    faults = []
    for node in rng.sample((1, 2, 3), 2):
        faults.append(_fault(at_s, rng.choice(DOWN_S), rng.choice(("kill", "stop")), f"node:{node}"))
        at_s += rng.choice(APART_S)
    if rng.random() < 0.3:
        begin_s, length_s = rng.uniform(0, 0.5), rng.choice((0.5, 1, 2))
        params = {"latency_ms": rng.choice((20, 50, 100)), "jitter_ms": rng.choice((10, 20))}
        faults.append(_fault(begin_s, length_s, "latency", "all", params))
    plan = _plan(seed, records, faults, {**TRUNCATION, **settings}, nodes=3, replicas=replicas, min_isr=2)
    return plan.model_copy(update={"expect": "safe"})


def divergence(seed: int) -> Plan:
    """Draw a plan with a record or two, after which both brokers lose power at nearly the same time, and more records.
    """
    rng = Random(repr((seed, "kip-101 divergence 2")))
    records = _records(rng, rng.choice((1, 2)), 0.1)
    at_s = rng.choice((rng.uniform(0.3, 1.0), rng.uniform(5, 6), rng.uniform(5, 6)))
    faults = []
    if rng.random() < 0.6:
        faults.append(_fault(at_s, rng.choice((0.2, 0.3, 0.5, 1)), "power_loss", "all"))
    else:
        for node in rng.sample((1, 2), 2):
            faults.append(_fault(at_s, rng.choice((0.2, 0.3, 0.5, 1)), "power_loss", f"node:{node}"))
            at_s += rng.choice((0.01, 0.05, 0.1, 0.2, 0.5))
    up_s = max(fault["at_s"] + fault["duration_s"] for fault in faults)
    records += [[round(up_s + rng.uniform(-0.2, 2.0), 1), 0, TOPIC, 0, 100] for _ in range(rng.choice((1, 2, 3)))]
    return _plan(seed, records, faults, TRUNCATION, nodes=2, replicas=2, min_isr=1)


def unclean(seed: int) -> Plan:
    """Draw a plan in which two of three brokers are down, one after the other, with records before and between. No
    record may be lost in it.
    """
    rng = Random(repr((seed, "unclean election")))
    first, then = rng.sample((1, 2, 3), 2)
    faults = [_fault(rng.uniform(0.3, 1), rng.choice((3, 4, 5)), rng.choice(("kill", "stop")), f"node:{first}")]
    at_s = faults[0]["at_s"] + rng.uniform(1, faults[0]["duration_s"])
    faults.append(_fault(at_s, rng.choice((2, 4, 6)), "kill", f"node:{then}"))
    records = [[round(rng.uniform(0, at_s), 1), 0, TOPIC, 0, 100] for _ in range(rng.choice((2, 3, 4)))]
    plan = _plan(seed, records, faults, {}, nodes=3, replicas=2, min_isr=1)
    workload = plan.workload.model_copy(update={"topic_settings": {"unclean.leader.election.enable": "true"}})
    return plan.model_copy(update={"workload": workload, "expect": "safe"})


def _records(rng: Random, count: int, apart_s: float) -> list[list[Any]]:
    return [
        [round(apart_s * number + rng.uniform(0, 0.05), 2), 0, TOPIC, 0, rng.choice((100, 150))]
        for number in range(count)
    ]


def _fault(at_s: float, duration_s: float, action: str, target: str, params: Values | None = None) -> Values:
    times = {"at_s": round(at_s, 2), "duration_s": round(duration_s, 2)}
    return {**times, "action": action, "target": target, "params": params or {}}


def _plan(
    seed: int,
    records: list[list[Any]],
    faults: list[Values],
    settings: dict[str, str],
    *,
    nodes: int,
    replicas: int,
    min_isr: int,
) -> Plan:
    end_s = max([f["at_s"] + f["duration_s"] for f in faults] + [record[0] + 0.5 for record in records])
    workload = {"topics": 1, "partitions": 1, "replication_factor": replicas, "min_isr": min_isr}
    return make_plan(
        {
            "seed": seed,
            "runtime": "sim",
            "warmup_s": 0,
            "time_s": round(end_s + 1, 1),
            "cluster": {"nodes": nodes, "settings": {**FAST_FAILOVER, **settings}},
            "workload": {**workload, "producers": 1, "readers": 1, "min_bytes": 100, "max_bytes": 200},
            "faults": sorted(faults, key=lambda fault: float(fault["at_s"])),
            "operations": sorted(records),
        }
    )


DRAWN: dict[str, tuple[Callable[[int], Plan], str]] = {
    "loss": (loss, "lost-write"),
    "divergence": (divergence, "replicas-agree"),
    "unclean": (unclean, "lost-write"),
}
"""For each name on the command line, the function that draws a plan, and the anomaly to find."""


def main(which: str, first: int, end: int) -> None:
    """Try the seeds from `first` to `end` (exclusive)."""
    draw, wanted = DRAWN[which]
    for seed in range(first, end):
        result = simulate(draw(seed), stop_at_first=False)
        if wanted in result.anomalies or any(violation.name == wanted for violation in result.violations):
            saved = save(result, Path("runs"), f"seed {seed} of {__file__}")
            sys.stdout.write(f"seed {seed}: ./squall shrink {saved.path} --as {wanted}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
