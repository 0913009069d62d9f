"""Plants Redpanda PR 28554 (2025): the group router lost the flag require_stable of OffsetFetch on its way.

So a member that takes over a partition may get an offset from before a transaction that is just being committed. It
reads the inputs of that transaction again, and produces their outputs a second time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.values import FetchOffsets
from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator
from squall.chaos.mutants.group_plans import LEAVE, PIPELINE_LOAD, act, group_plan
from squall.chaos.mutants.hunt_plans import Values, draw, fault
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.values import Request
    from squall.broker.replicas.coordinators.group_coordinator import OnAnswer


def submit(self: GroupCoordinator, request: Request, answer: OnAnswer) -> None:
    """Do what the correct function does, but without the flag require_stable."""
    if isinstance(request, FetchOffsets):
        request = replace(request, stable=False)
    _SOUND(self, request, answer)


_SOUND = GroupCoordinator.submit


def plan(seed: int) -> Plan:
    """Return a plan in which the pipeline instance that owns the only partition leaves the group while markers are
    late. Another instance takes the partition over. It fetches the committed offset before the marker of the first
    instance's final transaction arrives.
    """
    rng = draw(seed, "73")
    faults, acts = [], []
    for n in range(2):
        at_s = 1.5 + 3.0 * n + rng.uniform(0.0, 0.4)
        late: Values = {"act": "delay", "api": "WriteTxnMarkers", "delay_ms": 1200, "count": 0, "side": "both"}
        faults.append(fault(at_s, 1.8, "protocol", "all", **late))
        begins_s = at_s + rng.uniform(0.1, 0.5)
        acts += [act(begins_s, who, LEAVE, 1.0 + 0.4 * who) for who in range(2)]
    workload = {"partitions": 1, "instances": 2}
    settings = {"transaction.state.log.num.partitions": "3"}
    return group_plan(seed, faults, acts, time_s=8.0, load=PIPELINE_LOAD, settings=settings, workload=workload)


MUTANT = Mutant(
    id="73",
    name="unstable-offsets-told",
    title="tells the position of a group while a transaction is about to change it",
    source="Redpanda PR 28554 (2025)",
    replaces=(ReplacedFunction(GroupCoordinator, "submit", submit),),
    expected=("eos-duplicate",),
    faults=("protocol",),
    plan=plan,
    group=GROUPS,
    load="pipeline",
)
