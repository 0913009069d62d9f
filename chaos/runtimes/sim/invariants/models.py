"""Models one partition for the invariants: the committed batches, the nodes that hold them, each replica's state, and
the control plane's decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from squall.chaos.runtimes.sim.invariants.batches import BatchInLog, CommittedBatches, LogCopy, are_alike
from squall.chaos.runtimes.sim.invariants.log_replay import LogReplay
from squall.chaos.runtimes.sim.invariants.producers import ExpectedSequence
from squall.chaos.runtimes.sim.invariants.topic_guarantees import TopicGuarantees
from squall.chaos.runtimes.sim.invariants.transaction_journal import Decoded

if TYPE_CHECKING:
    from squall.broker.cluster.image import Broker, PartitionImage
    from squall.broker.replication import Partition

RECOVERING: Final = 1
"""Is the value of `PartitionImage.leader_recovery_state` for a leader that was elected from outside the ISR."""
LEADER, FOLLOWER, IDLE = "leader", "follower", "idle"


class ReplicaSnapshot(NamedTuple):
    """Holds the state of one running replica at one instant: first its role and epochs, then its offsets."""

    node: int
    incarnation: int
    role: str
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]
    replicas: tuple[int, ...]
    leader: int
    """Is the leader that this replica knows; -1 if it knows none."""
    fetching: tuple[tuple[int, int], ...] | None
    """Lists (leader, leader epoch) of every fetcher that follows this partition. None if the node's fetchers were
    stopped, or were not inspected.
    """
    start: int
    """Is the log's start offset."""
    hw: int
    leo: int
    """Is the end of the records that followers may fetch and that may be committed. It is lower than `log_end` while
    appended records wait for a flush.
    """
    log_end: int
    """Is the end of all records in the log, including those that wait for a flush."""
    lso: int
    """Is the last stable offset: read_committed readers stop there."""
    generation: int
    """Counts the log's truncations."""
    epochs: tuple[tuple[int, int], ...]
    """Is the epoch cache: (epoch, first offset)."""
    leads: bool
    """Is True if the replica believes that it is the leader: its role, as a bool."""


STANDING: Final = ReplicaSnapshot._fields.index("start")
"""Is the number of fields of a `ReplicaSnapshot` before `start`. These fields describe role, epochs, ISR and fetchers;
appends and commits do not change them.
"""


class BelievedFollowerEnds(NamedTuple):
    """Holds the log end offsets that a leader believes its followers to have."""

    leader: int
    leader_epoch: int
    ends: tuple[tuple[int, int], ...]
    """Lists (follower, exclusive log end offset); -1 if the follower has not fetched yet."""


class ServedRecord(NamedTuple):
    """Describes a record that a reader received: its offset, a number that identifies its value, and the leader epoch
    in which it was sent.
    """

    offset: int
    value: int
    epoch: int
    """Is the leader epoch of the leader that answered."""


@dataclass(slots=True)
class LostTail:
    """Records that a power loss took the last batches of a replica."""

    upto: int
    """Is the end of the batches that the replica held before the power loss. Until it holds that much again, it may
    lack committed batches.
    """
    broker_epoch: int
    """Is the epoch of the broker's registration at the loss. Once the broker has registered again, the control plane
    must not count on the lost batches.
    """


Asked = dict[tuple[str, int], set[tuple[int, ...] | None]]
"""Maps (topic, partition) to the sets of replicas that reassignments have ever requested for it. None in place of a
set: the cancellation of a reassignment was requested.
"""


@dataclass(slots=True)
class ClusterModel:
    """Holds the newest cluster metadata that any node has, and which nodes' disks were damaged."""

    brokers: Mapping[int, Broker] = field(default_factory=dict)
    offset: int = -1
    """Is the offset of the newest metadata record that any node has replayed."""
    damaged: set[int] = field(default_factory=set)
    """Holds the nodes whose disks were damaged on purpose: missing records on them are no violation."""
    rotten: set[int] = field(default_factory=set)
    """Holds the damaged nodes whose disks may have flipped bits: neither missing nor wrong records on them are
    violations.
    """

    asked: Asked | None = None
    """Holds the reassignments that controllers were asked for; None if requests are not observed."""
    imaged: dict[int, int] = field(default_factory=dict)
    """Maps a node to the offset of the newest metadata record in its image, before the event that is being checked."""

    def broker_epoch(self, node: int) -> int:
        """Return the broker epoch of the registration in force; -1 if the node is not registered."""
        broker = self.brokers.get(node)
        return -1 if broker is None else broker.epoch

    def is_fenced(self, node: int) -> bool:
        """Return whether a node is fenced, or not registered."""
        broker = self.brokers.get(node)
        return broker is None or broker.fenced


@dataclass(slots=True, eq=False)
class PartitionModel:
    """Holds what the invariant checks know of one partition: its committed batches, each node's log and replica state,
    and the control plane's newest decision.
    """

    topic: str = "t"
    partition: int = 0
    topic_id: bytes = bytes(16)
    promise: TopicGuarantees = field(default_factory=TopicGuarantees)
    min_isrs: list[tuple[int, int]] = field(default_factory=list)
    """Lists each min ISR that was in force, with the offset of the metadata log at which it began, in order."""
    decided: dict[int, int] = field(default_factory=dict)
    """Maps a leader epoch to the offset of the metadata log at which it was decided."""
    always_durable: bool = True
    """Is True if the configuration has required flushes since the beginning. A change of settings can weaken the
    promise for records that were written before.
    """
    cluster: ClusterModel = field(default_factory=ClusterModel)
    ledger: CommittedBatches = field(default_factory=CommittedBatches)
    copies: dict[int, LogCopy] = field(default_factory=dict)
    """Maps every node to its log; for dead nodes, the log on their disks."""
    views: dict[int, ReplicaSnapshot] = field(default_factory=dict)
    """Maps each running node to the newest snapshot of its replica."""
    deleted: bool = False
    """Is True if the newest metadata no longer has the topic. A leader that does not know this yet still serves while
    others delete their logs.
    """
    truth: PartitionImage | None = None
    """Is the newest state of the partition that the control plane has decided, as far as any node knows."""
    leaders: dict[int, int] = field(default_factory=dict)
    """Maps a leader epoch to the node that led in it."""
    void_epoch: int = -1
    """Is the leader epoch in which committed batches were lost most recently, as the configuration permits; -1 if none
    were. High watermarks of leaders of earlier epochs, and reads from these leaders, are not checked.
    """
    stale: set[int] = field(default_factory=set)
    """Holds the nodes whose high watermark may be from before a permitted loss of committed batches."""
    index_interval: int = 0
    """Is the largest index.interval.bytes that the topic was seen with. A segment may have a smaller one, because a
    starting broker opens segments before it knows the topic's settings.
    """
    named: dict[int, int] = field(default_factory=dict)
    """Maps a node to the largest log start offset that it has sent in a Fetch response. A truncation of the node's log
    removes the entry.
    """
    lost: dict[int, LostTail] = field(default_factory=dict)
    believed: BelievedFollowerEnds | None = None
    """Holds the log ends that the newest leader believes its followers to have. If several nodes lead in the newest
    epoch, these are from the leader that got the last fetch.
    """
    producers: dict[int, ExpectedSequence] = field(default_factory=dict)
    """Maps a producer id to its epoch and next sequence, by the committed batches."""
    replay: LogReplay = field(default_factory=LogReplay)
    """Holds the producers and transactions that result from all committed batches."""
    records: Decoded = field(default_factory=dict)
    """Maps batches of a coordinators' log to their decoded records, so that each batch is decoded once for all
    replicas.
    """
    written: dict[tuple[int, int], BatchInLog] = field(default_factory=dict)
    """Maps (base offset, leader epoch) to the first batch that any log was seen to have there."""
    served: dict[int, ServedRecord] = field(default_factory=dict)
    """Maps an offset to the record that a reader received there first, since the last permitted loss of that offset."""

    def promised(self, promise: TopicGuarantees, offset: int) -> None:
        """Record what the configuration promises from this offset of the metadata log on."""
        if not self.min_isrs or self.min_isrs[-1][1] != promise.min_isr:
            self.min_isrs.append((offset, promise.min_isr))
        self.promise = promise
        self.always_durable = self.always_durable and promise.durable

    def least_min_isr(self, leader: ReplicaSnapshot) -> int:
        """Return the smallest min ISR that a leader may apply in the event that is being checked. The leader may apply
        the value that it knew before the event, or any later one, because the event may have brought it. It knew at
        least the value that was in force when its leadership was decided.
        """
        knew = max(self.cluster.imaged.get(leader.node, -1), self.decided.get(leader.leader_epoch, -1))
        known = [value for at, value in self.min_isrs if at <= knew][-1:]
        return min(known + [value for at, value in self.min_isrs if at > knew], default=self.promise.min_isr)

    def counts(self, view: ReplicaSnapshot) -> bool:
        """Return whether this replica's high watermark is trusted. It is not if it may be from before a permitted loss
        of committed batches, because it then covers the lost batches, too.
        """
        return view.leader_epoch >= self.void_epoch and view.node not in self.stale

    def serves(self, epoch: int) -> bool:
        """Return whether reads from the leader of this epoch are checked. They are not if a permitted loss happened in
        a later epoch, if the leader's disk has flipped bits, or if the configuration lets committed records change.
        """
        if epoch < 0 or epoch < self.void_epoch or self.promise.hw_truncation or self.promise.without_controller:
            return False
        return not self.cluster.rotten or self.leaders.get(epoch) not in self.cluster.rotten

    def epochs_at(self, offset: int) -> set[int]:
        """Return the leader epochs of all batches that any log ever had at this offset. Slow: it reads all of them."""
        return {epoch for (base, epoch), it in self.written.items() if base <= offset < it.batch.end}

    def holds(self, node: int, end: int) -> bool:
        """Return whether a node's log, or a dead node's disk, has all committed batches before `end`."""
        ledger = self.ledger
        if end <= ledger.low:
            return True
        copy = self.copies.get(node)
        return copy is not None and copy.compare(ledger) >= end and copy.low <= ledger.low

    def lacking(self, nodes: Iterable[int], end: int) -> Sequence[int]:
        """Return the nodes that do not hold all committed batches before `end`, in the order of `nodes`. Faster than
        `holds`: it compares no logs, and uses the result of each log's last comparison with the committed batches.
        """
        low = self.ledger.low
        if end <= low:
            return ()
        copies, lacking = self.copies, []
        for node in nodes:
            copy = copies.get(node)
            if copy is None or copy.matched < end or copy.low > low:
                lacking.append(node)
        return lacking

    def note_beliefs(self, leader: Partition) -> bool:
        """Store the log ends that a leader believes its followers to have. Returns True if they have changed. Those of
        a leader of an earlier epoch are ignored, because they must not replace the newer leader's.
        """
        if self.believed is not None and leader.leader_epoch < self.believed.leader_epoch:
            return False
        ends = tuple([(replica.broker_id, replica.log_end_offset) for replica in leader.followers.values()])
        now = BelievedFollowerEnds(leader.local_id, leader.leader_epoch, ends)
        before, self.believed = self.believed, now
        return now != before

    def share(self, one: int, other: int, end: int) -> bool:
        """Return whether the logs of two nodes are the same before `end`, apart from deleted offsets."""
        if end <= self.ledger.low:
            return True
        mine, its = self.copies.get(one), self.copies.get(other)
        if mine is None or its is None:
            return False
        # Most often both hold the same of what is committed.
        return (end <= mine.matched and end <= its.matched) or are_alike(mine, its, end)

    def held_once(self, node: int, end: int) -> bool:
        """Return whether a node holds all committed batches before `end`, or held them earlier: batches that a power
        loss took, or that flipped bits may have destroyed, count as held.
        """
        if self.holds(node, end) or node in self.cluster.rotten:
            return True
        lost = self.lost.get(node)
        return lost is not None and lost.upto >= end

    def has_uncommitted(self, node: int, offset: int) -> bool:
        """Return whether a node's log, or a dead node's disk, has a record at an offset that is not committed yet."""
        copy = self.copies.get(node)
        return copy is not None and offset >= self.ledger.end and copy.low <= offset < copy.end

    def is_excused(self, node: int) -> bool:
        """Return whether a member of the ISR may lack committed batches: because its disk was damaged, or because it
        lost them in a power loss. The power loss is an excuse until the control plane knows that the broker has
        restarted. Without KIP-966 it remains an excuse for the last ISR member, which is never removed.
        """
        if node in self.cluster.damaged:
            return True
        lost = self.lost.get(node)
        if lost is None or self.promise.durable:
            return False
        if self.is_unnoticed(node):
            return True
        alone = self.truth is not None and self.truth.isr == (node,)
        return alone and (not self.promise.elr or self.is_recovering)

    def is_unnoticed(self, node: int) -> bool:
        """Return whether a node has lost batches in a power loss that the control plane does not know of yet. Until the
        restarted broker registers, the control plane may keep it in an ISR, and elect it.
        """
        lost = self.lost.get(node)
        return lost is not None and not self.promise.durable and self.cluster.broker_epoch(node) <= lost.broker_epoch

    @property
    def is_recovering(self) -> bool:
        """Is True if the leader was elected from outside the ISR and the eligible leader replicas."""
        return self.truth is not None and self.truth.leader_recovery_state == RECOVERING

    def void_from(self, offset: int, epoch: int, leader: int) -> None:
        """Remove the committed batches from `offset` on, because they were lost when `leader` was elected in `epoch`,
        and the configuration permits that. From now on the log of this leader is the reference.
        """
        self.ledger.cut(offset)
        self.void_epoch = epoch
        for node, copy in self.copies.items():
            copy.ledger_was_cut(self.ledger)
            # Its high watermark may lie above the cut until it has followed the new leader.
            self.stale.add(node)
        self.stale.discard(leader)
        self.lost.clear()
        self.served = {offset: read for offset, read in self.served.items() if offset < self.ledger.end}
        self.producers.clear()
        self.replay = LogReplay()
        self.replay.take(self.ledger.batches)
        for batch in self.ledger.batches:
            # What retention deleted may still be known by a snapshot of the producers' state, or be lost with it.
            if batch.producer_id >= 0 and batch.base >= self.ledger.low:
                self.producers[batch.producer_id] = ExpectedSequence.after(batch)
