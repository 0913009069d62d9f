"""Plants Redpanda #6326, PR 6785 (2022): the offsets of an open transaction exist only in the coordinator's memory.

When another coordinator took over, acknowledged offsets were gone, and the transaction committed without them.
"""

from __future__ import annotations

from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator, HostedGroupShard
from squall.chaos.mutants.group_plans import PIPELINE, PIPELINE_LOAD, act, group_plan
from squall.chaos.mutants.hunt_plans import Values, draw, fault
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def _serve(self: GroupCoordinator, shard: HostedGroupShard) -> None:
    """Drop the pending offsets of open transactions, which were loaded from the partition's log, and then start to
    answer requests.
    """
    shard.machine.ledger.pending.clear()
    _SOUND(self, shard)


_SOUND = GroupCoordinator._serve


def plan(seed: int) -> Plan:
    """Return a plan in which an instance of the workload `pipeline` crashes once it has committed a transaction. The
    coordinator of its group dies while the markers of that transaction are delayed.
    """
    rng = draw(seed, "75")
    at_s = rng.uniform(1.5, 2.0)
    late: Values = {"act": "delay", "api": "WriteTxnMarkers", "delay_ms": 2500, "count": 0, "side": "both"}
    faults = [
        fault(at_s, 1.5, "protocol", "all", **late),
        fault(at_s + rng.uniform(0.7, 0.9), 2.0, "kill", PIPELINE),
    ]
    crash = act(at_s + 0.1, 0, "crash ended", 0.2)
    settings = {"transaction.state.log.num.partitions": "3"}
    workload = {"instances": 1}
    return group_plan(seed, faults, [crash], time_s=7.0, load=PIPELINE_LOAD, settings=settings, workload=workload)


MUTANT = Mutant(
    id="75",
    name="pending-offsets-in-memory",
    title="forgets the offsets of open transactions when another coordinator takes over",
    source="Redpanda #6326, PR 6785 (2022)",
    replaces=(ReplacedFunction(GroupCoordinator, "_serve", _serve),),
    expected=("lost-position", "eos-duplicate"),
    faults=("protocol", "kill"),
    plan=plan,
    group=GROUPS,
    load="pipeline",
)
