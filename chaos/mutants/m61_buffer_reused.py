"""Plants KAFKA-19012: a buffer is reused too early, and a batch goes to another partition than it was meant for."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from squall.broker.apis.produce import ProduceApi
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.chaos.mutants.appending import AppendCall, Appended, around_append
from squall.chaos.mutants.hunt_plans import hunt_plan, somewhat_late
from squall.chaos.mutants.mutant import Mutant
from squall.chaos.plans.plan import Plan

_LAST: WeakKeyDictionary[ProduceApi, tuple[HostedPartition, int, bytes]] = WeakKeyDictionary()
"""Maps each broker to the partition and time of its last batch, and to the batch's bytes."""


def mixed_up(append: AppendCall) -> Appended:
    """Append the broker's previous batch instead of this one, if both came in the same millisecond for different
    partitions. The CRC of the appended batch is right.
    """
    if append.records is not None:
        last = _LAST.get(append.api)
        _LAST[append.api] = (append.h, append.now_ms, bytes(append.records))
        if last is not None and last[0] is not append.h and last[1] == append.now_ms:
            # `checked` is about the batch that is replaced, so the other batch must be checked anew.
            append = replace(append, records=memoryview(bytearray(last[2])), checked=None)
    return append.go()


def plan(seed: int) -> Plan:
    """Return a plan that sends batches of several partitions at once, from producers without sequence numbers."""
    load = {"idempotence": False, "linger_ms": 50, "rate": 300, "partitions": 9}
    return hunt_plan(seed, somewhat_late(seed, "61"), workload=load)


MUTANT = Mutant(
    id="61",
    name="buffer-reused",
    title="writes a batch of one partition into another one",
    source="KAFKA-19012 (2025)",
    replaces=(around_append(mixed_up),),
    expected=("acknowledged-offset", "acknowledged-is-committed", "phantom", "lost-write", "unseen"),
    faults=("latency",),
    plan=plan,
)
