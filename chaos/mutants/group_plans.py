"""The plans of a hunt for bugs of group coordinators: a few members, few partitions, and acts given one by one.

The coordinators' logs have one partition each, so that there is one coordinator of each kind. Sessions are short: who
is gone is missed within a second or two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from squall.chaos.mutants.hunt_plans import Values, hunt_plan
from squall.chaos.mutants.txn_plans import COORDINATED
from squall.chaos.plans.plan import Plan

SEND, PAUSE, HALT, LEAVE, CRASH, TWIN, ABORT = "send", "pause", "halt", "leave", "crash", "twin", "abort"
DELETE = "delete"
"""What members and instances do (`workloads/groups/acts.py`, `workloads/pipeline/steps.py`)."""
BYTES = 100
OF_GROUPS: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "200",
}
"""One coordinator, which does not wait long for a group's first members."""
COMMON: Mapping[str, Any] = {
    "replication_factor": 3,
    "min_isr": 2,
    "producers": 1,
    "rate": 10,
    "record_bytes": BYTES,
    "churn": 0,
    "poll_pause_ms": 50,
    "request_timeout_ms": 800,
    "delivery_timeout_ms": 6000,
    "session_timeout_ms": 1500,
    "max_poll_interval_ms": 3000,
}
GROUPS_LOAD: Mapping[str, Any] = {**COMMON, "name": "groups", "partitions": 3, "members": 2, "commit_every_ms": 100}
PIPELINE_LOAD: Mapping[str, Any] = {
    **COMMON,
    "name": "pipeline",
    "partitions": 2,
    "instances": 2,
    "transaction_timeout_ms": 2000,
}
GROUP = "coordinator:squall-group"
"""A target of faults: the coordinator of the group of `groups`."""
PIPELINE = "coordinator:squall-pipeline"
"""That of the group of `pipeline`."""


def group_plan(
    seed: int,
    faults: Sequence[Values],
    acts: Iterable[Sequence[Any]],
    *,
    time_s: float,
    load: Mapping[str, Any] = GROUPS_LOAD,
    settings: Mapping[str, str] | None = None,
    workload: Values | None = None,
    to: Sequence[int] = (),
    sends_s: float = 0.0,
    **plan: Any,
) -> Plan:
    """A small cluster under these acts of members, a record to one partition after the other, and these faults. The
    load goes on for `time_s`. `to`: the partitions that get any records; empty: all. `sends_s`: records are sent for so
    long; 0: all the time.
    """
    table = {**load, **(workload or {})}
    return hunt_plan(
        seed,
        faults,
        settings={**COORDINATED, **OF_GROUPS, **(settings or {})},
        bare=True,
        workload=table,
        operations=sorted([*records(seed, table, sends_s or time_s, to), *(list(each) for each in acts)]),
        time_s=time_s,
        **plan,
    )


def records(seed: int, table: Mapping[str, Any], until_s: float, to: Sequence[int]) -> list[list[Any]]:
    """Return the records that producers send, to one partition after the other, at times that depend on the seed."""
    to = to or range(table["partitions"])
    rng = Random(repr((seed, "hunt", "records")))
    found: list[list[Any]] = []
    interval_s = 1 / table["rate"]
    for number in range(int(until_s * table["rate"])):
        at_s = round((number + rng.random()) * interval_s, 3)
        if at_s < until_s:  # rounding may have brought it there
            found.append([at_s, number % table["producers"], SEND, to[number % len(to)], BYTES])
    return found


def act(at_s: float, who: int, do: str, for_s: float = 0.0) -> list[Any]:
    """One thing that a member or an instance does, as the workload's operation."""
    return [round(at_s, 3), who, do, round(for_s * 1000), 0]
