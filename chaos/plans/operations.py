"""Writes a load as a list of operations: which client does what, and when. They are drawn from the plan's seed.
Shrinking a plan needs the list, to leave operations out.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from squall.chaos.draws import rng_for
from squall.chaos.plans.plan import Plan


def concrete(plan: Plan) -> Plan:
    """Return the same plan with its load as a list of operations instead of a rate. In a simulation both plans give the
    same run; in other runtimes they do not.
    """
    if plan.operations is not None:
        return plan
    # The parts are already checked, and checking many operations again takes long.
    return plan.model_copy(update={"operations": drawn(plan)})


def with_warm_up_times(plan: Plan) -> tuple[Any, ...] | None:
    """Return the plan's operations, with their times counted from the beginning of the warm-up instead of the load.
    None if the plan lists no operations.
    """
    if plan.operations is None:
        return None
    return tuple(each._replace(at_s=plan.warmup_s + each.at_s) for each in plan.operations)


def drawn(plan: Plan) -> tuple[Any, ...]:
    """Return the operations that the plan's workload draws from the seed, in order of time. Each client draws from a
    random stream of its own.
    """
    return plan.workload.drawn(partial(rng_for, plan.seed), -plan.warmup_s, plan.time_s)
