"""Plants a bug: the controller applies an AlterPartition that was made from an older state of the partition."""

from __future__ import annotations

from squall.broker.cluster.image import PartitionImage
from squall.broker.controller import isr
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def check_partition_epoch(partition: PartitionImage, partition_epoch: int) -> None:
    """Accept every partition epoch: a compare-and-swap without the comparison."""


def plan(seed: int) -> Plan:
    """Return a plan in which a leader's request to add a follower to the ISR is late. The leader sends it again, and
    the follower joins, lags and leaves the ISR. Then the late request arrives.
    """
    rng = draw(seed, "11")
    faults = []
    for turn in range(4):
        at_s, node = 0.3 + 3.0 * turn, f"node:{rng.randint(1, 3)}"
        faults.append(fault(at_s, 0.6, "pause", node))
        late_ms = rng.randint(600, 1000)
        faults.append(
            fault(at_s + 0.5, 0.7, "protocol", "all", api="AlterPartition", act="delay", delay_ms=late_ms, side="peers")
        )
        faults.append(fault(at_s + rng.uniform(0.8, 1.0), 0.7, "pause", node))
    settings = {"replica.lag.time.max.ms": "200", "broker.session.timeout.ms": "1000"}
    return hunt_plan(seed, faults, settings=settings, workload={"rate": 60})


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which a leader's request to add a follower to the ISR is late. The leader sends it again, and
    the follower joins, gets no more records, and leaves. Then the late request adds the follower again. The leader does
    not learn that, continues without the follower, and dies.
    """
    rng = draw(seed, "11: seen")
    faults = [
        seen.cut_fetches(0.6, 0.8, seen.SECOND, seen.FIRST),
        seen.late_proposals(1.35, 0.4, seen.FIRST, 1800, "there"),
        seen.cut_fetches(2.3, 5.0, seen.SECOND, seen.FIRST),
        seen.late_metadata(2.9, 3.0, seen.FIRST, 4000),
        fault(rng.uniform(3.4, 3.7), 3.0, "kill", f"node:{seen.FIRST}"),
    ]
    settings = {
        "replica.lag.time.max.ms": "200",
        "broker.session.timeout.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "6000",
    }
    return seen.client_visible_plan(seed, faults, settings=settings)


MUTANT = Mutant(
    id="11",
    name="partition-epoch-ignored",
    title="applies ISR changes made from an older state of the partition",
    source="KIP-497",
    replaces=(ReplacedFunction(isr, "check_partition_epoch", check_partition_epoch),),
    expected=(
        "strong-isr",
        "valid-high-watermark",
        "isr-superset",
        "leader-completeness",
        "lost-write",
        "unseen",
        "inconsistent-offset",
    ),
    faults=("protocol", "pause"),
    plan=plan,
    client_visible_plan=client_visible_plan,
)
