"""Plants KAFKA-6857: if a leader is asked for the end of an epoch that it never saw, it answers the end of its log."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

from squall.broker.log.epochs import UNDEFINED, EpochCache
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def end_offset_for(self: EpochCache, epoch: int, log_end_offset: int) -> tuple[int, int]:
    """Do what the correct function does, but return the log's end for an epoch above or below all known epochs."""
    if epoch < 0:
        return UNDEFINED
    following = bisect_right(self.entries, epoch, key=itemgetter(0))
    if following == 0 or following == len(self.entries):
        return epoch, log_end_offset
    return self.entries[following - 1][0], self.entries[following][1]


def plan(seed: int) -> Plan:
    """Return a plan in which the first leaders write their first records without a follower, and brokers with empty
    logs lead after them.
    """
    rng = draw(seed, "4")
    node = f"node:{rng.randint(1, 3)}"
    faults = [
        fault(0.0, rng.uniform(1.8, 2.6), "partition", node, shape="isolate", manner=rng.choice(("drop", "refuse"))),
        fault(3.5, rng.uniform(0.8, 1.2), "kill", f"node:{rng.randint(1, 3)}"),
    ]
    return hunt_plan(seed, faults, warmup_s=0.0, workload={"partitions": 6, "rate": 60})


MUTANT = Mutant(
    id="4",
    name="undefined-epoch-as-log-end",
    title="answers for an epoch that it does not know with its log's end",
    source="KAFKA-6857",
    replaces=(ReplacedFunction(EpochCache, "end_offset_for", end_offset_for),),
    expected=(
        "committed-prefix",
        "strong-isr",
        "epoch-cache",
        "replicas-agree",
        "inconsistent-offset",
        "not-converged",
        "replica-divergence",
    ),
    faults=("partition", "kill"),
    plan=plan,
)
