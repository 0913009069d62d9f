"""Finds the workload's clients that a fault hits."""

from __future__ import annotations

from collections.abc import Sequence

from squall.chaos.faults.context import FaultContext, FaultExecution
from squall.chaos.faults.kind import FaultTrait
from squall.chaos.faults.targets import UnresolvedTargetError, check_target
from squall.workloads.control import ClientHandle, LoadHandle


def handle_of(context: FaultContext, p: FaultExecution) -> ClientHandle:
    """Return the client that the fault's target names, or a random client if the target names none. Raise
    UnresolvedTargetError if there is no such client.
    """
    kind, number = check_target("target", p.fault.target)
    if context.clients is None:
        raise UnresolvedTargetError("there is no workload")
    all_of, whose = context.clients.producers if kind == "producer" else context.clients.readers, ""
    numbers: Sequence[int] = range(len(all_of))
    if FaultTrait.NEEDS_TRANSACTIONS in p.fault.traits:
        numbers, whose = context.clients.zombies, " with a transactional id"
    if number and int(number) not in numbers:
        raise UnresolvedTargetError(f"there is no {kind} {number}{whose}: the workload has {len(numbers)}")
    return all_of[int(number) if number else context.rng(p, "target").choice(numbers)]


def load_of(context: FaultContext, p: FaultExecution) -> LoadHandle:
    """Return the load that the fault's target names, or a random load if the target names none. Raise
    UnresolvedTargetError if there is no such load.
    """
    _, number = check_target("target", p.fault.target)
    loads = context.clients.loads if context.clients is not None else []
    if not loads or (number and int(number) >= len(loads)):
        raise UnresolvedTargetError(f"there is no load {number}: the workload has {len(loads)}")
    return loads[int(number)] if number else context.rng(p, "target").choice(loads)
