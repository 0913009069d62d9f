"""Plants KAFKA-14617 (KIP-903): a restarted broker joins an ISR because of the log that it had before the restart."""

from __future__ import annotations

from squall.broker.cluster.image import ClusterImage
from squall.broker.controller import isr
from squall.broker.protocol.schema.alter_partition import BrokerState
from squall.broker.replication import Partition
from squall.broker.replication.replica import FollowerReplicaState
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def controller_is_same_incarnation(image: ClusterImage, member: BrokerState) -> bool:
    """Return True if the broker id is the same, whatever the broker epoch is."""
    return True


def leader_is_same_incarnation(self: Partition, replica: FollowerReplicaState) -> bool:
    """Return True if the broker id is the same, whatever the broker epoch is."""
    return True


def is_stale_fetch(self: Partition, replica: FollowerReplicaState, broker_epoch: int) -> bool:
    """Return False: accept the fetch whatever its broker epoch is, even if it was sent before a restart of the
    follower.
    """
    return False


def plan(seed: int) -> Plan:
    """Return a plan in which a follower's fetch is late, so that the follower fetches again over another connection.
    Then the follower loses its power. When the late fetch arrives, the follower has restarted and has lost many
    records. Its link to the leader is slow, and no more records are written meanwhile.
    """
    rng = draw(seed, "13")
    node, last_s = f"node:{rng.randint(1, 3)}", 2.0
    late = {"act": "delay", "delay_ms": rng.randint(1300, 1900), "count": 3, "side": "peers"}
    faults = [
        fault(0.1, 8.0, "latency", node, latency_ms=30, jitter_ms=2),
        fault(last_s - 0.02, 0.2, "protocol", "leader:appends-0-0", api="Fetch", **late),
        fault(last_s + rng.uniform(0.5, 0.6), 0.3, "power_loss", node),
    ]
    operations = [[round(last_s - 0.1 * n, 3), n % 2, "appends-0", 0, 200] for n in range(20, -1, -1)]
    settings = {
        # One batch in each response: the restarted follower needs long to catch up.
        "replica.fetch.max.bytes": "1",
        "replica.lag.time.max.ms": "5000",
        "replica.socket.timeout.ms": "300",
        # Without sessions: a late fetch of a session would be refused for its epoch (KIP-227).
        "max.incremental.fetch.session.cache.slots": "0",
        "controller.quorum.fetch.timeout.ms": "4000",
        "controller.quorum.request.timeout.ms": "3000",
    }
    return hunt_plan(seed, faults, settings=settings, operations=operations, workload={"partitions": 1})


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which a follower's fetches are late, and it loses its power. After its restart it fetches from
    the new end of its log, and waits for the responses. Then the late fetches from before let it join the ISR, and its
    leader dies.
    """
    rng = draw(seed, "13: seen")
    faults = [
        seen.late_fetches(1.7, 0.4, seen.SECOND, seen.FIRST, 3300, "there"),
        fault(2.6, 0.3, "power_loss", f"node:{seen.SECOND}"),
        seen.late_fetches(2.75, 5.0, seen.SECOND, seen.FIRST, 6000, "back"),
        fault(rng.uniform(5.3, 5.7), 3.0, "kill", f"node:{seen.FIRST}"),
    ]
    settings = {
        "replica.socket.timeout.ms": "300",
        "replica.lag.time.max.ms": "5000",
        "max.incremental.fetch.session.cache.slots": "0",
    }
    return seen.client_visible_plan(seed, faults, settings=settings, operations=seen.until(1.6))


MUTANT = Mutant(
    id="13",
    name="earlier-incarnation-admitted",
    title="lets a broker into the ISR by what an earlier incarnation of it held",
    source="KAFKA-14617, KIP-903",
    replaces=(
        ReplacedFunction(isr, "is_same_incarnation", controller_is_same_incarnation),
        ReplacedFunction(PartitionRules, "is_same_incarnation", leader_is_same_incarnation),
        ReplacedFunction(PartitionRules, "is_stale_fetch", is_stale_fetch),
    ),
    expected=("strong-isr", "valid-high-watermark", "leader-completeness", "lost-write", "unseen"),
    faults=("power_loss", "protocol", "latency"),
    plan=plan,
    client_visible_plan=client_visible_plan,
)
