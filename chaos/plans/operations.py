"""The load as data: which producer hands over which record, and when. Drawn from a plan's seed; it can be shrunk."""

from __future__ import annotations

from chaos.draws import rng_for
from chaos.plans.plan import Operation, Plan, topic_names


def concrete(plan: Plan) -> Plan:
    """The same plan with its load written out as operations: running either one is the same run.

    In a simulation only: there a plan's rate always means these operations.
    """
    if plan.operations is not None:
        return plan
    # The parts are checked already, and checking as many operations as there may be takes long.
    return plan.model_copy(update={"operations": drawn(plan)})


def drawn(plan: Plan) -> tuple[Operation, ...]:
    """The records of a load at the workload's rate, in order of time, each producer from a stream of its own."""
    w = plan.workload
    places = [(topic, partition) for topic in topic_names(w.topics) for partition in range(w.partitions)]
    interval_s = w.producers / w.rate
    found = []
    for producer in range(w.producers):
        random = rng_for(plan.seed, "operations", producer).random
        count = int((plan.warmup_s + plan.time_s) / interval_s)
        for number in range(count):
            at_s = round((number + random()) * interval_s - plan.warmup_s, 4)
            if at_s < plan.time_s:
                topic, partition = places[int(random() * len(places))]
                size = w.min_bytes + int(random() * (w.max_bytes - w.min_bytes + 1))
                found.append(Operation(at_s, producer, topic, partition, size))
    found.sort()
    return tuple(found)
