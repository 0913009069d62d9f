"""Plants KAFKA-10471 and KAFKA-15375: after a power loss, brokers trust their log files without recovery."""

from __future__ import annotations

from squall.broker.log.manager import LogManager
from squall.chaos.mutants.hunt_plans import draw, hunt_plan, killings
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def _ended_cleanly(self: LogManager, marker_epoch: int | None) -> bool:
    """Return True after every shutdown, even after a power loss."""
    return True


def plan(seed: int) -> Plan:
    """Return a plan with power losses under a load of large records, most of which are synced. The last write but one
    is torn: only its beginning is left. The last write is whole and follows it, so that the end of the log looks
    intact.
    """
    rng = draw(seed, "16")
    workload = {"rate": 60, "min_bytes": 3000, "max_bytes": 9000, "topic_settings": {"flush.messages": "3"}}
    return hunt_plan(seed, killings(rng, rounds=4, action="power_loss"), workload=workload)


MUTANT = Mutant(
    id="16",
    name="unclean-stop-as-clean",
    title="takes an unclean stop for a clean one",
    source="KAFKA-10471, KAFKA-15375",
    replaces=(ReplacedFunction(LogManager, "_ended_cleanly", _ended_cleanly),),
    expected=(
        "loaded-log-is-whole",
        "committed-prefix",
        "recovery-keeps-committed",
        "epoch-cache",
        "batches-in-epochs",
        "corrupt",
        "lost-write",
        "unseen",
        "replica-divergence",
    ),
    faults=("power_loss",),
    plan=plan,
)
