"""The load as data: which client does what, and when. A plan's seed draws it; it can be shrunk."""

from __future__ import annotations

from functools import partial
from typing import Any

from squall.chaos.draws import rng_for
from squall.chaos.plans.plan import Plan


def concrete(plan: Plan) -> Plan:
    """The same plan with its load written out as operations. Both plans give the same run.

    Only in a simulation: there a plan's rate always means these operations.
    """
    if plan.operations is not None:
        return plan
    # The parts are already checked, and checking many operations again takes long.
    return plan.model_copy(update={"operations": drawn(plan)})


def of_the_run(plan: Plan) -> tuple[Any, ...] | None:
    """The plan's operations, counted from the beginning of the warm-up. None if the plan gives none."""
    if plan.operations is None:
        return None
    return tuple(each._replace(at_s=plan.warmup_s + each.at_s) for each in plan.operations)


def drawn(plan: Plan) -> tuple[Any, ...]:
    """The operations of a load as its workload draws them, in order of time. Each client draws from a stream of its
    own.
    """
    return plan.workload.drawn(partial(rng_for, plan.seed), -plan.warmup_s, plan.time_s)
