"""Defines the invariants of one replica: offsets in order, nothing goes back, epochs only rise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.chaos.runtimes.sim.invariants.models import FOLLOWER
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.models import PartitionModel, ReplicaSnapshot

OWN = "Kafka: Partition and ReplicaManager; no specification says it"


@invariant(
    "offsets-in-order", CheckTrigger.REPLICA, "Kafka: UnifiedLog (log start <= LSO <= high watermark <= log end)"
)
def offsets_in_order(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """Log start <= high watermark <= log end, and the last stable offset is not beyond the high watermark. The
    replication state machine's log end equals the log's own. (It may be less while the state machine must wait for a
    flush.)
    """
    if now.start <= now.hw <= now.leo <= now.log_end and now.lso <= now.hw:
        return None
    return f"log start {now.start}, LSO {now.lso}, high watermark {now.hw}, end {now.leo}, the log's own {now.log_end}"


@invariant("hw-monotone", CheckTrigger.LEADER, OWN)
def hw_monotone(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """While a node leads in one epoch, its high watermark does not go back. (A follower's may: by truncation, and
    because a new leader's high watermark lags behind its predecessor's.)
    """
    if before is None or not before.leads or before.leader_epoch != now.leader_epoch:
        return None
    return None if now.hw >= before.hw else f"from {before.hw} to {now.hw} in epoch {now.leader_epoch}"


@invariant("leader-append-only", CheckTrigger.LEADER, "Raft, figure 3: Leader Append-Only")
def leader_append_only(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """While a node leads in one epoch, its log is not truncated."""
    if before is None or not before.leads or before.leader_epoch != now.leader_epoch:
        return None
    if now.log_end >= before.log_end and now.generation == before.generation:
        return None
    return f"the log ended at {before.log_end} and ends at {now.log_end}, in epoch {now.leader_epoch}"


@invariant(
    "epochs-monotone", CheckTrigger.STANDING, "KIP-497 and KIP-320: decisions of the past are no news (KAFKA-9539)"
)
def epochs_monotone(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """Leader epoch and partition epoch of a replica never go back, and a new leader epoch comes with a new partition
    epoch."""
    if before is None:
        return None
    if now.leader_epoch < before.leader_epoch or now.partition_epoch < before.partition_epoch:
        return f"from {before.leader_epoch}/{before.partition_epoch} to {now.leader_epoch}/{now.partition_epoch}"
    if now.leader_epoch > before.leader_epoch and now.partition_epoch == before.partition_epoch:
        return f"leader epoch {now.leader_epoch} has the partition epoch of {before.leader_epoch}"
    return None


@invariant("epoch-cache", CheckTrigger.REPLICA, "KIP-101, KIP-279, KAFKA-10432")
def epoch_cache(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """The epochs in the epoch cache, and their first offsets, rise strictly. No epoch in it is newer than the replica's
    leader epoch, and none begins after the log's end. The newest epoch in a leader's cache is the one in which it
    leads.
    """
    entries = now.epochs
    if before is not None and before.epochs == entries and before.role == now.role and before.log_end <= now.log_end:
        return None
    for (epoch, start), (later, further) in zip(entries, entries[1:], strict=False):
        if not (epoch < later and start < further):
            return f"{(later, further)} follows {(epoch, start)}"
    if entries and entries[-1][1] > now.log_end:
        return f"epoch {entries[-1][0]} begins at {entries[-1][1]}, the log ends at {now.log_end}"
    # A replica of a starting node knows no epoch (-1) before its first order.
    if entries and 0 <= now.leader_epoch < entries[-1][0]:
        return f"knows epoch {entries[-1][0]} in epoch {now.leader_epoch}"
    if now.leads and (not entries or entries[-1][0] != now.leader_epoch):
        return f"leads in epoch {now.leader_epoch}, which its cache does not end with: {list(entries)}"
    return None


@invariant("isr-of-replicas", CheckTrigger.STANDING, "hachikuji: TypeOk")
def isr_of_replicas(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """ISR and maximal ISR are made of replicas, each once, and the maximal ISR contains the committed ISR."""
    # Both are tuples, so the same object was checked before.
    if before is not None and before.isr is now.isr and before.maximal_isr is now.maximal_isr:
        return None
    for members in (now.isr, now.maximal_isr):
        if len(set(members)) != len(members) or not set(members) <= set(now.replicas):
            return f"{list(members)} of the replicas {list(now.replicas)}"
    if not set(now.isr) <= set(now.maximal_isr):
        return f"the maximal ISR {list(now.maximal_isr)} lacks a member of the committed one, {list(now.isr)}"
    return None


@invariant("leader-in-isr", CheckTrigger.STANDING, "hachikuji: LeaderInIsr (where there is a leader)")
def leader_in_isr(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """A leader is in its own ISR."""
    if now.leads and now.node not in now.isr:
        return f"leads in epoch {now.leader_epoch} with the ISR {list(now.isr)}"
    return None


@invariant("one-leader-per-epoch", CheckTrigger.STANDING, "KRaft: NeverTwoLeadersInSameEpoch, for partitions")
def one_leader_per_epoch(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """One node leads in a leader epoch, and no other ever does. (Not promised if leaders are elected without a
    controller.)
    """
    if not now.leads or known.promise.without_controller:
        return None
    other = known.leaders.get(now.leader_epoch, now.node)
    return None if other == now.node else f"node {other} led in epoch {now.leader_epoch}, too"


@invariant("one-fetcher", CheckTrigger.STANDING, "Vanlightly: ValidFetcherState")
def one_fetcher(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """For a follower exactly one fetcher runs, which fetches from the leader of the follower's epoch. For any other
    replica no fetcher runs.
    """
    # The first five fields are role and epochs: nothing that matters here has changed.
    if now.fetching is None or (before is not None and before[:5] == now[:5] and before.fetching == now.fetching):
        return None
    wanted = ((now.leader, now.leader_epoch),) if now.role == FOLLOWER and now.leader >= 0 else ()
    return None if now.fetching == wanted else f"fetched from {list(now.fetching)}, should be {list(wanted)}"


@invariant("isr-superset", CheckTrigger.LEADER, "Vanlightly, KIP-966: ReplicationQuorumSuperset; KIP-497")
def isr_superset(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """The leader in the newest epoch waits for every member of the ISR that the control plane has decided: its maximal
    ISR contains that ISR.
    """
    truth = known.truth
    if truth is None or now.leader_epoch != truth.leader_epoch:
        return None
    missing = [member for member in truth.isr if member not in now.maximal_isr]
    if not missing:
        return None
    return f"the maximal ISR is {list(now.maximal_isr)}, the decided one {list(truth.isr)}"


@invariant("elr-superset", CheckTrigger.PARTITION, "Vanlightly, KIP-966: ReplicationQuorumSupersetProperty")
def elr_superset(known: PartitionModel) -> str | None:
    """If the ISR of the leader in the newest epoch has at least min ISR members, the leader's maximal ISR also contains
    every eligible leader replica that the control plane has decided. (Below min ISR the leader commits nothing, so
    eligible leader replicas cannot miss anything.)
    """
    truth = known.truth
    if truth is None or not truth.elr:
        return None
    leader = known.views.get(truth.leader)
    if leader is None or not leader.leads or leader.leader_epoch != truth.leader_epoch:
        return None
    if len(leader.isr) < known.promise.effective_min_isr(len(leader.replicas)):
        return None
    missing = [member for member in truth.elr if member not in leader.maximal_isr]
    if not missing:
        return None
    return f"the maximal ISR is {list(leader.maximal_isr)}, the decided ISR {list(truth.isr)}, ELR {list(truth.elr)}"


@invariant("epoch-durable-before-append", CheckTrigger.EPOCH, "KAFKA-16541; KIP-101: leader-epoch-checkpoint")
def epoch_durable_before_append(epoch: int, durable: tuple[int, ...]) -> str | None:
    """The start of a leader epoch is durable before any batch of that epoch is in the log."""
    return None if epoch in durable else f"the log has batches of epoch {epoch}, the file beside it {list(durable)}"


@invariant(
    "recovery-point-is-durable", CheckTrigger.FLUSHED, "KAFKA-10471, KAFKA-1194; Kafka: UnifiedLog.recoveryPoint"
)
def recovery_point_is_durable(recovery_point: int, end: int) -> str | None:
    """Everything before a log's recovery point is durable: a power loss takes no batch of it. (Not checked for a node
    whose disk was damaged, or forgets synced data.)
    """
    return None if recovery_point <= end else f"the recovery point is {recovery_point}, durable is what is before {end}"
