"""Plants a bug: requests of one connection have no order, because the next request is read while an earlier request
still waits to take effect.
"""

from __future__ import annotations

from squall.broker.net.connection import Connection
from squall.chaos.mutants.hunt_plans import draw, hunt_plan, somewhat_late
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def hold(self: Connection, *, when_closed: bool = False) -> None:
    """Do nothing, where the correct function delays the next request of the connection."""


def plan(seed: int) -> Plan:
    """Return a plan with producers that have five requests in flight. The broker validates the records of each batch.
    It does this off the event loop for a large batch, so a small batch that was sent later can overtake it.
    """
    rng = draw(seed, "80")
    workload = {
        "idempotence": rng.random() < 0.5,
        "max_in_flight": 5,
        "min_bytes": 64,
        "max_bytes": 60_000,
        "batch_bytes": 65_536,
        "linger_ms": 0,
        "partitions": 1,
        "topic_settings": {"squall.record.validation.enable": "true"},
    }
    return hunt_plan(seed, somewhat_late(seed, "80"), workload=workload)


MUTANT = Mutant(
    id="80",
    name="no-order-of-requests",
    title="takes a connection's next request while one before it waits to take effect",
    source="our own issue: four pipelined IncrementalAlterConfigs ended with a wrong value",
    replaces=(ReplacedFunction(Connection, "hold", hold),),
    expected=("one-order-per-connection", "send-reorder"),
    unseen="the sequence numbers of idempotent producers refuse what comes too early, other producers with several "
    "requests in flight are promised no order, and no client of a workload alters one setting twice at once",
    faults=("latency",),
    plan=plan,
)
