"""KAFKA-19012: a buffer is used again too early, and a batch goes where another one was meant to go."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from broker.apis.produce import ProduceApi
from broker.replicas.hosted import Hosted
from broker.replicas.waiters import AwaitedAppend, ProduceResult
from chaos.mutants.hunt_plans import hunt_plan, somewhat_late
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plans.plan import Plan

Appended = tuple[ProduceResult, AwaitedAppend | None]
_SOUND = ProduceApi._append
_LAST: WeakKeyDictionary[ProduceApi, tuple[Hosted, int, bytes]] = WeakKeyDictionary()
"""Of each broker: where the last batch went, when, and its bytes."""


def _append(self: ProduceApi, h: Hosted, index: int, records: memoryview | None, *rest: Any) -> Appended:
    """What comes for another partition in the same millisecond is not what came. Its CRC is right all the same."""
    version, acks, now_ms, wall_ms, checked = rest
    if records is not None:
        last = _LAST.get(self)
        _LAST[self] = (h, now_ms, bytes(records))
        if last is not None and last[0] is not h and last[1] == now_ms:
            records, checked = memoryview(bytearray(last[2])), None
    return _SOUND(self, h, index, records, version, acks, now_ms, wall_ms, checked)


def plan(seed: int) -> Plan:
    """Batches of several partitions come at once, of producers whose sequences nobody looks at."""
    load = {"idempotence": False, "linger_ms": 50, "rate": 300, "partitions": 9}
    return hunt_plan(seed, somewhat_late(seed, "61"), workload=load)


MUTANT = Mutant(
    id="61",
    name="buffer-reused",
    title="writes a batch of one partition into another one",
    source="KAFKA-19012 (2025)",
    replaces=(Replaced(ProduceApi, "_append", _append),),
    expected=("acknowledged-offset", "acknowledged-is-committed", "phantom", "lost-write", "unseen"),
    faults=("latency",),
    plan=plan,
)
