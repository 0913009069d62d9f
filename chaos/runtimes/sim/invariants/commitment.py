"""Defines the invariants of committed batches: all logs agree on them, leaders and in-sync replicas hold all of them,
and none is ever removed.

The configuration may permit the loss of committed batches, for example by an unclean election: see
`PartitionModel.is_excused` and `losing_is_permitted`. `InvariantChecker` removes such batches from its list of
committed batches (the ledger). So the checks need no exception for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from squall.broker.cluster.image import PartitionImage
    from squall.chaos.runtimes.sim.invariants.batches import BatchInLog
    from squall.chaos.runtimes.sim.invariants.models import PartitionModel, ReplicaSnapshot


def lacks(known: PartitionModel, node: int) -> str:
    """Describe in words how a node's log differs from the committed batches."""
    copy = known.copies.get(node)
    if copy is None:
        return f"node {node} has no log"
    mine, committed = copy.first_difference(known.ledger)
    if mine is None and committed is not None:
        return f"the log of node {node} ends at {copy.end}, and {committed.where} is committed"
    has = f"ends at {copy.end}" if mine is None else f"has {mine}"
    return f"node {node} {has}, committed is {committed if committed is not None else 'nothing'}"


@invariant("committed-prefix", CheckTrigger.REPLICA, "hachikuji: StrongIsr; Vanlightly: NoLogDivergence")
def committed_prefix(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """Below its high watermark a replica holds exactly the batches that some leader committed, unless they have been
    deleted since. (Not promised with truncation to the high watermark, nor on a disk with flipped bits. Not checked
    after a loss that the configuration permits, until the replica's high watermark is known to be newer than the loss.)
    """
    if known.promise.hw_truncation or not known.counts(now) or now.node in known.cluster.rotten:
        return None
    copy = known.copies[now.node]
    if now.hw <= copy.matched:
        return None
    return f"high watermark {now.hw}, but {lacks(known, now.node)}; the ledger ends at {known.ledger.end}"


@invariant(
    "hw-held-by-min-isr", CheckTrigger.LEADER, "KAFKA-15583, KIP-966: nothing is committed below min.insync.replicas"
)
def hw_held_by_min_isr(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """When a leader's high watermark moves, at least min ISR replicas hold everything below it; the disks of dead nodes
    count, too. (A replica still counts if a power loss has taken some of its records since it reported its end. After a
    change of min ISR, a leader may apply the previous value until it learns of the change, but not if it was elected
    after the change.)
    """
    if before is None or now.hw <= before.hw or not known.counts(now):
        return None
    if known.promise.hw_truncation:
        return None
    needed = known.promise.effective_min_isr(len(now.replicas))
    if len(known.copies) - len(known.lacking(known.copies, now.hw)) >= needed:
        return None
    holders = [node for node in known.copies if known.held_once(node, now.hw)]
    if len(holders) >= min(needed, known.least_min_isr(now)):
        return None
    return f"high watermark {now.hw} is held by {holders} only; min ISR is {needed}"


@invariant("weak-isr", CheckTrigger.LEADER, "hachikuji: WeakIsr")
def weak_isr(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel) -> str | None:
    """The leader of the newest epoch and the members of the ISR that this leader knows have the same log below the
    leader's high watermark.
    """
    truth = known.truth
    if truth is None or truth.leader_epoch != now.leader_epoch or not known.counts(now):
        return None
    if before is not None and before.hw == now.hw and before.isr is now.isr and before.leads:
        return None
    if known.promise.hw_truncation:
        return None
    end = min(now.hw, known.ledger.end)
    for member in known.lacking(now.isr, end):
        if not known.held_once(member, end) and not known.is_excused(member):
            return f"high watermark {now.hw}, ISR {list(now.isr)}: {lacks(known, member)}"
    return None


@invariant(
    "strong-isr", CheckTrigger.PARTITION, "hachikuji: StrongIsr; Vanlightly, KIP-966: LeaderCandidateCompleteness"
)
def strong_isr(known: PartitionModel) -> str | None:
    """Every member of the ISR and of the eligible leader replicas, as the control plane has decided them, holds every
    committed batch. (Exceptions: a member whose disk was damaged; a member that lost batches in a power loss, until its
    broker has registered again, or for good if it is the last member of the ISR.)
    """
    truth = known.truth
    if truth is None or known.promise.hw_truncation:
        return None
    for member in known.lacking(truth.isr + truth.elr, known.ledger.end):
        if not known.is_excused(member):
            which = "ISR" if member in truth.isr else "ELR"
            return f"{which} {list(truth.isr if which == 'ISR' else truth.elr)}: {lacks(known, member)}"
    return None


@invariant("valid-high-watermark", CheckTrigger.PARTITION, "hachikuji: AsyncIsr.ValidHighWatermark")
def valid_high_watermark(known: PartitionModel) -> str | None:
    """The log of each member of the ISR reaches the leader's high watermark. (Checked only while the leader is in the
    newest leader epoch that the control plane has decided.)
    """
    truth = known.truth
    if truth is None or known.promise.hw_truncation:
        return None
    leader = known.views.get(truth.leader)
    if leader is None or not leader.leads or leader.leader_epoch != truth.leader_epoch:
        return None
    for member in truth.isr:
        copy = known.copies.get(member)
        end = 0 if copy is None else copy.end
        if end < leader.hw and not known.is_excused(member):
            return f"node {member} of the ISR {list(truth.isr)} ends at {end}, the high watermark is {leader.hw}"
    return None


@invariant("believed-end-is-shared", CheckTrigger.BELIEF, "KIP-903; Raft, figure 2: matchIndex")
def believed_end_is_shared(known: PartitionModel) -> str | None:
    """The newest leader keeps a log end offset for each follower, from the follower's Fetch requests. Before this
    offset the logs of the leader and the follower are the same. (Exception: after that Fetch request a power loss took
    records from the follower's log, and the configuration does not promise that they were flushed.)
    """
    truth, believed = known.truth, known.believed
    if truth is None or believed is None or known.promise.hw_truncation or known.promise.without_controller:
        return None
    leader = believed.leader
    view = known.views.get(leader)
    if view is None or not view.leads or view.replicas != truth.replicas:
        return None
    if (leader, believed.leader_epoch) != (truth.leader, truth.leader_epoch) or view.leader_epoch != truth.leader_epoch:
        return None
    for follower, end in believed.ends:
        if end <= 0 or known.share(leader, follower, end):
            continue
        if not known.cluster.damaged.isdisjoint((leader, follower)):
            continue
        lost = known.lost.get(follower)
        if lost is None or lost.upto < end or known.always_durable:
            return f"node {leader} believes that node {follower} has all before {end}: {lacks(known, follower)}"
    return None


@invariant(
    "leader-completeness", CheckTrigger.DECISION, "Raft, figure 3: Leader Completeness; KRaft: LeaderHasAllAckedValues"
)
def leader_completeness(before: PartitionImage | None, now: PartitionImage, known: PartitionModel) -> str | None:
    """An elected leader holds every committed batch. (Not promised of unclean elections, of the last member of an ISR
    if it lost batches in a power loss, nor with truncation to the high watermark. Not checked if the elected broker
    lost batches in a power loss that the controller has not noticed. That broker must register again before it can
    lead, and the controller then removes it from the ISR.)
    """
    if now.leader < 0 or (before is not None and before.leader_epoch == now.leader_epoch):
        return None
    if known.holds(now.leader, known.ledger.end) or known.is_unnoticed(now.leader) or losing_is_permitted(now, known):
        return None
    return f"elected in epoch {now.leader_epoch} from the ISR {list(now.isr)}: {lacks(known, now.leader)}"


def losing_is_permitted(elected: PartitionImage, known: PartitionModel) -> bool:
    """Return whether the leader that this decision elects may lack committed batches."""
    promise = known.promise
    if promise.hw_truncation or promise.without_controller:
        return True
    if promise.unclean and elected.leader_recovery_state:
        return True
    if elected.leader in known.cluster.damaged:
        return True
    if elected.leader not in known.lost or promise.durable:
        return False
    # The last replica standing lost them with the power: without KIP-966 it leads again, with it only where no
    # eligible one is left.
    return elected.isr == (elected.leader,) and (not promise.elr or bool(elected.leader_recovery_state))


@invariant(
    "log-matching", CheckTrigger.WRITTEN, "Raft, figure 3: Log Matching; Vanlightly: LogMatching, MetadataLogMatching"
)
def log_matching(
    now: BatchInLog, first: BatchInLog, view: ReplicaSnapshot | None, known: PartitionModel | None
) -> str | None:
    """Batches with the same leader epoch and offset are identical in all logs, committed or not, and so are the batches
    right before them. `now`: a batch that was just written to a log; `first`: the batch that was seen first with this
    epoch and offset. (The batches before them may differ in three cases: with truncation to the high watermark; if the
    leader has deleted them (see `LogCopy.compare`); if flipped bits have made a gap before `now`.)
    """
    if now.batch != first.batch:
        return f"{now.batch}; it was {first.batch}"
    if now.previous is None or first.previous is None or now.previous == first.previous:
        return None
    if known is not None and (known.promise.hw_truncation or now.batch.base <= known.ledger.low):
        return None
    hole = now.previous.end < now.batch.base
    if hole and known is not None and view is not None and view.node in known.cluster.rotten:
        return None  # A batch's base offset has no checksum: a rotten one may leave a hole that nobody wrote.
    return f"{now.batch} follows {now.previous}; where it was first seen, {first.previous}"


@invariant("batches-in-epochs", CheckTrigger.WRITTEN, "KIP-101: the epoch cache follows from the batches")
def batches_in_epochs(
    now: BatchInLog, first: BatchInLog, view: ReplicaSnapshot | None, known: PartitionModel | None
) -> str | None:
    """A replica's epoch cache (in `view`) has the right leader epoch for a batch that was just written to the replica's
    log (`now`): the epoch in the batch's header. `first` is not used. (Not checked in the metadata log.)
    """
    batch = now.batch
    if view is None:
        return None
    found = None
    for epoch, start in view.epochs:
        if start > batch.base:
            break
        found = epoch
    if found == batch.epoch or batch.base < view.start or batch.base >= view.log_end:
        return None
    return f"{batch}, but the epoch cache says {found}: {list(view.epochs)}"


@invariant("truncation-keeps-committed", CheckTrigger.TRUNCATED, "KIP-101, KIP-279, KAFKA-6361, KAFKA-2143")
def truncation_keeps_committed(node: int, before: int, now: int, known: PartitionModel) -> str | None:
    """A follower's truncation removes no committed batch, unless the leader has deleted the batch. `before`: the offset
    up to which the log equalled the committed batches before the truncation; `now`: the offset up to which it does now.
    (Not promised with truncation to the high watermark.)
    """
    if known.promise.hw_truncation or known.promise.without_controller or now >= min(before, known.ledger.end):
        return None
    if min(before, known.ledger.end) <= known.ledger.low:
        return None
    return f"held what is committed up to {min(before, known.ledger.end)}, now up to {now}"


@invariant(
    "recovery-keeps-committed", CheckTrigger.RECOVERED, "KAFKA-10471, KAFKA-10432: recovery after an unclean stop"
)
def recovery_keeps_committed(node: int, before: int, now: int, known: PartitionModel) -> str | None:
    """Loading a log removes no committed batch that was complete on the disk. `before`: the offset up to which the disk
    held the committed batches; `now`: the offset up to which the loaded log holds them. (Not checked for a node whose
    own disk was damaged.)
    """
    if now >= min(before, known.ledger.end) or min(before, known.ledger.end) <= known.ledger.low:
        return None
    if node in known.cluster.damaged:
        return None
    return f"the disk held what is committed up to {min(before, known.ledger.end)}, the loaded log up to {now}"


@invariant(
    "loaded-log-is-whole", CheckTrigger.LOADED, "KAFKA-10471, KAFKA-15375: an unclean stop must not be taken for clean"
)
def loaded_log_is_whole(node: int, whole: int, now: int, known: PartitionModel) -> str | None:
    """A log that was just loaded consists of complete batches with the right checksums. `whole`: the offset where such
    batches end; `now`: the log's end. (Not checked for a node whose own disk was damaged.)
    """
    if whole >= now or node in known.cluster.damaged:
        return None
    return f"ends at {now}, but its batches are sound up to {whole} only"


@invariant("replicas-agree", CheckTrigger.FINAL, "TigerBeetle: the liveness phase of its simulator")
def replicas_agree(known: PartitionModel) -> str | None:
    """Every replica holds every committed batch, and the leader has committed its whole log, at the end of a
    simulation, when the cluster has converged. (On a disk with flipped bits, a replica's log may differ, but must end
    at the same offset.)
    """
    if known.truth is None:
        return None
    for node in known.truth.replicas:
        view = known.views.get(node)
        if view is None:
            return f"node {node} does not run its replica"
        if node in known.cluster.rotten:
            if view.leo != known.ledger.end:
                return f"node {node} ends at {view.leo}, committed up to {known.ledger.end}"
        elif not known.holds(node, known.ledger.end):
            return lacks(known, node)
        if view.leads and not known.ledger.end == view.hw == view.leo:
            return f"node {node} ends at {view.leo}, high watermark {view.hw}, committed up to {known.ledger.end}"
    return None
