"""Plants KAFKA-9807: the last stable offset is computed from two high watermarks, one from before and one from after an
advance.
"""

from __future__ import annotations

from squall.broker.replicas.hosted_partition import HostedPartition
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series, txn_plan
from squall.chaos.plans.plan import Plan

_SOUND = HostedPartition.first_unstable_offset
BEFORE, NOW = "high_watermark_before", "high_watermark_now"


def first_unstable_offset(self: HostedPartition) -> int | None:
    """Return None, as if no transaction were open, if the first open transaction begins at or above the previous value
    of the high watermark. Otherwise return the correct offset.
    """
    seen, high_watermark = vars(self.log), self.state.high_watermark
    if seen.get(NOW) != high_watermark:
        seen[BEFORE], seen[NOW] = seen.get(NOW, 0), high_watermark
    first = _SOUND(self)
    return None if first is not None and first >= seen[BEFORE] else first


def plan(seed: int) -> Plan:
    """Return a plan in which readers fetch again and again while transactions begin and are aborted."""
    rng = draw(seed, "30")
    return txn_plan(seed, [], series(rng, 2.0), time_s=2.5, workload={"poll_pause_ms": 0})


MUTANT = Mutant(
    id="30",
    name="two-high-watermarks",
    title="compares open transactions with the high watermark before it moved, and reads up to where it is now",
    source="KAFKA-9807",
    replaces=(ReplacedFunction(HostedPartition, "first_unstable_offset", first_unstable_offset),),
    expected=("G1a", "dirty-read", "offset-regression"),
    faults=(),
    plan=plan,
    group=TRANSACTIONS,
)
