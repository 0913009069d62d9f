"""Writes a load as data: which client does which operation, and when. A plan's seed draws the load; it can be shrunk.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from squall.chaos.draws import rng_for
from squall.chaos.plans.plan import Plan


def concrete(plan: Plan) -> Plan:
    """Return the same plan with its load written out as operations. Both plans give the same run.

    This holds only in a simulation: there a plan's rate always means these operations.
    """
    if plan.operations is not None:
        return plan
    # The parts are already checked, and checking many operations again takes long.
    return plan.model_copy(update={"operations": drawn(plan)})


def of_the_run(plan: Plan) -> tuple[Any, ...] | None:
    """Return the plan's operations, with times from the beginning of the warm-up. None if the plan lists none."""
    if plan.operations is None:
        return None
    return tuple(each._replace(at_s=plan.warmup_s + each.at_s) for each in plan.operations)


def drawn(plan: Plan) -> tuple[Any, ...]:
    """Return the operations of a load as its workload draws them, in order of time. Each client draws from its own
    stream.
    """
    return plan.workload.drawn(partial(rng_for, plan.seed), -plan.warmup_s, plan.time_s)
