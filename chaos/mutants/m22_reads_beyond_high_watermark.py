"""Plants KAFKA-9835: reads end at the log end offset and not at the high watermark, so consumers get uncommitted
records.
"""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants.hunt_plans import hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def read_limit(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
    """Return the log end offset, where the correct limit is the high watermark."""
    return self.log_end_offset


def plan(seed: int) -> Plan:
    """Return a plan in which leaders die under load while followers lag."""
    return hunt_plan(seed, killings_behind(seed, "22"), workload={"rate": 300, "readers": 2})


MUTANT = Mutant(
    id="22",
    name="reads-beyond-high-watermark",
    title="lets consumers read beyond the high watermark",
    source="KAFKA-9835",
    replaces=(ReplacedFunction(PartitionRules, "read_limit", read_limit),),
    expected=("served-is-committed", "unseen", "inconsistent-offset", "nonmonotonic-poll", "lso-violation"),
    faults=("kill", "latency"),
    plan=plan,
)
