"""Plants the bug before KIP-279: the leader answers with the epoch and the offset at which two logs diverge, and the
follower uses only the offset.
"""

from __future__ import annotations

from squall.broker.replication import Divergence, EpochCachePort, Partition, truncation
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def divergence(
    self: Partition, epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int
) -> Divergence | None:
    """Return a divergence only if the follower's log is too long, whatever the epoch of its last record is."""
    parted = truncation.divergence(epochs, last_fetched_epoch, fetch_offset, self.log_end_offset)
    if parted is None or parted.is_undefined or parted.end_offset < fetch_offset:
        return parted
    return None


def truncation_target(self: Partition, epochs: EpochCachePort, epoch: int, end_offset: int) -> int:
    """Return the end offset that the leader answered for `epoch`, even if the follower's log has no records of this
    epoch. The correct function then truncates to the end of an earlier epoch.
    """
    return min(end_offset, self.log_end_offset)


def plan(seed: int) -> Plan:
    """Return a plan in which leadership moves to and fro between two logs that were never in sync: one broker dies, the
    other leads after an unclean election, and dies.
    """
    rng = draw(seed, "2")
    at_s, order = 0.5, rng.sample((1, 2, 3), 2)
    faults = [fault(0.2, 9.0, "latency", "all", latency_ms=rng.choice((20, 60, 120)), jitter_ms=20)]
    for turn in range(6):
        down_s = rng.uniform(0.9, 1.5)
        faults.append(fault(at_s, down_s, "kill", f"node:{order[turn % 2]}"))
        at_s += down_s * rng.uniform(0.6, 0.95) + rng.uniform(0.0, 0.4)
    return hunt_plan(
        seed,
        faults,
        settings={"unclean.leader.election.enable": "true"},
        workload={"replication_factor": 2, "min_isr": 1, "rate": 80},
    )


MUTANT = Mutant(
    id="2",
    name="ignore-answered-epoch",
    title="truncates to the offset that the leader answered, whatever its epoch",
    source="KAFKA-6361, KIP-279",
    replaces=(
        ReplacedFunction(PartitionRules, "divergence", divergence),
        ReplacedFunction(PartitionRules, "truncation_target", truncation_target),
    ),
    expected=(
        "log-matching",
        "committed-prefix",
        "batches-in-epochs",
        "replicas-agree",
        "inconsistent-offset",
        "duplicate",
        "replica-divergence",
    ),
    faults=("kill", "latency"),
    plan=plan,
)
