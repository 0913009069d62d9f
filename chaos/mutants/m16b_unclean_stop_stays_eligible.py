"""Plants a bug against KIP-966: the controller believes that a broker which lost power has stopped cleanly, and lets it
lead again.
"""

from __future__ import annotations

from squall.broker.cluster.image import Broker
from squall.broker.controller import brokers
from squall.chaos.mutants.hunt_plans import ELIGIBLE, draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def stopped_cleanly(existing: Broker, previous_broker_epoch: int) -> bool:
    """Return True after every shutdown, even after a power loss."""
    return True


def plan(seed: int) -> Plan:
    """Return a plan with eligible leader replicas: a follower lags and leaves the ISR, and the last in-sync replica
    loses its power.
    """
    rng = draw(seed, "16b")
    at_s, faults = 0.4, []
    for _ in range(3):
        leader, held = rng.sample((1, 2, 3), 2)
        held_s = rng.uniform(2.0, 2.6)
        faults.append(fault(at_s, held_s, "pause", f"node:{held}"))
        faults.append(fault(at_s + rng.uniform(0.9, 1.3), rng.uniform(0.3, 0.6), "power_loss", f"node:{leader}"))
        at_s += held_s + 2.5
    return hunt_plan(
        seed,
        faults,
        settings=ELIGIBLE,
        workload={"rate": 300},
    )


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which no follower can fetch from two of three brokers. One of these loses its power and comes
    back with fewer records, and the other dies: only the third broker, which has all records, may lead now. So the plan
    accepts no loss.
    """
    rng = draw(seed, "16b: seen")
    at_s, faults = 0.5, []
    for _ in range(2):
        first, second = rng.sample((1, 2, 3), 2)
        faults.append(fault(at_s, 4.0, "partition", f"node:{first}", side="replication"))
        faults.append(fault(at_s + 0.05, 4.0, "partition", f"node:{second}", side="replication"))
        faults.append(fault(at_s + rng.uniform(0.8, 1.1), 0.4, "power_loss", f"node:{first}"))
        faults.append(fault(at_s + rng.uniform(2.3, 2.7), 0.9, "kill", f"node:{second}"))
        at_s += 6.5
    return hunt_plan(seed, faults, settings=ELIGIBLE, workload={"rate": 300, "readers": 2}, expect="safe")


MUTANT = Mutant(
    id="16b",
    name="unclean-stop-stays-eligible",
    title="lets a broker that did not stop cleanly stay an eligible leader",
    source="KIP-966",
    replaces=(ReplacedFunction(brokers, "stopped_cleanly", stopped_cleanly),),
    expected=("strong-isr", "leader-completeness", "lost-write", "unseen"),
    faults=("pause", "power_loss"),
    plan=plan,
    client_visible_plan=client_visible_plan,
)
