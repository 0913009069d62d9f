"""The load as data: which client does what, and when. Drawn from a plan's seed; it can be shrunk."""

from __future__ import annotations

from functools import partial
from typing import Any

from chaos.draws import rng_for
from chaos.plans.plan import Plan


def concrete(plan: Plan) -> Plan:
    """The same plan with its load written out as operations: running either one is the same run.

    In a simulation only: there a plan's rate always means these operations.
    """
    if plan.operations is not None:
        return plan
    # The parts are checked already, and checking as many operations as there may be takes long.
    return plan.model_copy(update={"operations": drawn(plan)})


def of_the_run(plan: Plan) -> tuple[Any, ...] | None:
    """The operations that a plan gives, counted from the beginning of the warm-up; None where it gives none."""
    if plan.operations is None:
        return None
    return tuple(each._replace(at_s=plan.warmup_s + each.at_s) for each in plan.operations)


def drawn(plan: Plan) -> tuple[Any, ...]:
    """The operations of a load as its workload draws them, in order of time, each client's from a stream of its own."""
    return plan.workload.drawn(partial(rng_for, plan.seed), -plan.warmup_s, plan.time_s)
