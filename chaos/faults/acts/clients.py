"""The workload's clients, for faults that hit them."""

from __future__ import annotations

from collections.abc import Sequence

from squall.chaos.faults.context import FaultContext, FaultExecution
from squall.chaos.faults.kind import Trait
from squall.chaos.faults.targets import Unresolved, check_target
from squall.workloads.control import ClientHandle


def handle_of(context: FaultContext, p: FaultExecution) -> ClientHandle:
    """The client that the fault's target names, or a drawn one. Raises Unresolved where there is none."""
    kind, number = check_target("target", p.fault.target)
    if context.clients is None:
        raise Unresolved("there is no workload")
    all_of, whose = context.clients.producers if kind == "producer" else context.clients.readers, ""
    numbers: Sequence[int] = range(len(all_of))
    if Trait.NEEDS_TRANSACTIONS in p.fault.traits:
        numbers, whose = context.clients.zombies, " with a transactional id"
    if number and int(number) not in numbers:
        raise Unresolved(f"there is no {kind} {number}{whose}: the workload has {len(numbers)}")
    return all_of[int(number) if number else context.rng(p, "target").choice(numbers)]
