"""Makes the plans of a hunt for bugs of group coordinators: few members, few partitions, and acts (such as joining,
leaving or crashing) that are listed one by one.

The coordinators' logs have one partition each, so that there is one coordinator of each kind. Session time-outs are
short: a coordinator notices within a second or two that a member is gone.
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
"""Names the action in which all members leave the group, and then the group is deleted."""
BYTES = 100
OF_GROUPS: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "200",
}
"""Holds broker settings: one partition for committed offsets, so that one broker coordinates all groups; a low limit
for session time-outs; and a short wait for a new group's first members.
"""
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
"""Is the target of faults that hit the coordinator of the group of the workload `groups`."""
PIPELINE = "coordinator:squall-pipeline"
"""Is the target of faults that hit the coordinator of the group of the workload `pipeline`."""


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
    """Return a plan of a small cluster with these faults, and with these actions of group members (`acts`, made by
    `act`). For `time_s` seconds, producers send records to one partition after the other.

    load: the settings of the load, which `workload` overrides. to: the partitions that get records; empty: all.
    sends_s: how long records are sent, in s; 0: all the time.
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
    """Return the records that producers send until `until_s`, to one partition after the other. Their times depend on
    the seed. Each is an operation of the workload: [at_s, producer, SEND, partition, bytes].

    table: the settings of the load. to: the partitions that get records; empty: all.
    """
    to = to or range(table["partitions"])
    rng = Random(repr((seed, "hunt", "records")))
    found: list[list[Any]] = []
    interval_s = 1 / table["rate"]
    for number in range(int(until_s * table["rate"])):
        at_s = round((number + rng.random()) * interval_s, 3)
        if at_s < until_s:  # rounding may have moved the time to the end
            found.append([at_s, number % table["producers"], SEND, to[number % len(to)], BYTES])
    return found


def act(at_s: float, who: int, do: str, for_s: float = 0.0) -> list[Any]:
    """Return one action of a group member, or of a pipeline instance (a member that also produces), as an operation of
    the workload: [at_s, who, do, length in ms, 0]. The last number is the size of a record, which only SEND has.

    who: the member's number. do: the action, such as PAUSE. for_s: its length in s.
    """
    return [round(at_s, 3), who, do, round(for_s * 1000), 0]
