"""Models one partition as the simulation knows it: what was committed, its holders, each replica's view, the decisions.
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
"""`PartitionImage.leader_recovery_state` of a leader from outside the ISR."""
LEADER, FOLLOWER, IDLE = "leader", "follower", "idle"


class ReplicaSnapshot(NamedTuple):
    """Holds one running replica's view at one instant. First its standing, then how far it has got."""

    node: int
    incarnation: int
    role: str
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]
    replicas: tuple[int, ...]
    leader: int
    """Who leads, as this replica has heard; -1 where it has not."""
    fetching: tuple[tuple[int, int], ...] | None
    """(leader, leader epoch) of every fetcher that follows this partition; None where fetching has ended for good."""
    start: int
    """The log's start."""
    hw: int
    leo: int
    """The log's end, as the state machine has it."""
    log_end: int
    """The log's end, as the log has it."""
    lso: int
    """Where readers of committed data stop."""
    generation: int
    """Counts the log's truncations."""
    epochs: tuple[tuple[int, int], ...]
    """The epoch cache: (epoch, first offset)."""
    leads: bool
    """It thinks that it is the leader: its role, once more."""


STANDING: Final = ReplicaSnapshot._fields.index("start")
"""So many of a view's fields are the replica's standing: what stays as records come and are committed."""


class LeaderView(NamedTuple):
    """Holds a leader's beliefs of where its followers' logs end."""

    leader: int
    leader_epoch: int
    ends: tuple[tuple[int, int], ...]
    """(follower, end): exclusive; -1 where it has not heard."""


class ServedRecord(NamedTuple):
    """A record that a reader was served."""

    offset: int
    value: int
    epoch: int
    """Of the leader that answered."""


@dataclass(slots=True)
class LostTail:
    """A power loss took batches from a replica."""

    upto: int
    """It held everything before this offset; until it does so again it counts as harmed."""
    broker_epoch: int
    """Of its registration then. A later one must not count on what it held."""


Asked = dict[tuple[str, int], set[tuple[int, ...] | None]]
"""(topic, partition) to all the replicas that it was ever asked to have; None among them: a move was called off."""


@dataclass(slots=True)
class ClusterModel:
    """Holds the newest metadata of the brokers."""

    brokers: Mapping[int, Broker] = field(default_factory=dict)
    offset: int = -1
    """Of the newest record that any node has replayed."""
    damaged: set[int] = field(default_factory=set)
    """Nodes whose disks were damaged on purpose: what they lack is not held against them."""
    rotten: set[int] = field(default_factory=set)
    """Those of them that may have bytes that nobody wrote: what they have is not held against them either."""

    asked: Asked | None = None
    imaged: dict[int, int] = field(default_factory=dict)
    """Node to the offset of the metadata log that its image had before this event."""
    """What controllers were asked to move; None where nobody listens."""

    def broker_epoch(self, node: int) -> int:
        """Return the broker epoch of the registration in force; -1 without one."""
        broker = self.brokers.get(node)
        return -1 if broker is None else broker.epoch

    def is_fenced(self, node: int) -> bool:
        """True for one that is not registered, too."""
        broker = self.brokers.get(node)
        return broker is None or broker.fenced


@dataclass(slots=True, eq=False)
class PartitionModel:
    """Models one partition."""

    topic: str = "t"
    partition: int = 0
    topic_id: bytes = bytes(16)
    promise: TopicGuarantees = field(default_factory=TopicGuarantees)
    min_isrs: list[tuple[int, int]] = field(default_factory=list)
    """Each min ISR that was promised, with the offset of the metadata log from which on, in order."""
    decided: dict[int, int] = field(default_factory=dict)
    """Leader epoch to the offset of the metadata log at which it was decided."""
    always_durable: bool = True
    """Whether it promised to be durable from the beginning on: as settings change, so does what is promised of what
    was written before."""
    cluster: ClusterModel = field(default_factory=ClusterModel)
    ledger: CommittedBatches = field(default_factory=CommittedBatches)
    copies: dict[int, LogCopy] = field(default_factory=dict)
    """Every node's log, those of dead nodes as their disks have them."""
    views: dict[int, ReplicaSnapshot] = field(default_factory=dict)
    """Those of the running replicas."""
    deleted: bool = False
    """The newest metadata has its topic no more. A leader that has not heard of it goes on while others drop their
    logs."""
    truth: PartitionImage | None = None
    """The newest decision of the control plane that any node knows of."""
    leaders: dict[int, int] = field(default_factory=dict)
    """Leader epoch to the node that led in it."""
    void_epoch: int = -1
    """Leaders of earlier epochs no longer count: a permitted loss has overtaken them."""
    stale: set[int] = field(default_factory=set)
    """Nodes whose high watermark may be from before a permitted loss."""
    lost: dict[int, LostTail] = field(default_factory=dict)
    believed: LeaderView | None = None
    """Of the leader that has heard from a follower last, among those of the newest epoch that any of them knew."""
    producers: dict[int, ExpectedSequence] = field(default_factory=dict)
    """Producer id to what its committed batches say."""
    replay: LogReplay = field(default_factory=LogReplay)
    """What all committed batches say of producers and transactions."""
    records: Decoded = field(default_factory=dict)
    """Of a coordinator's log: what each batch says that any replica had."""
    written: dict[tuple[int, int], BatchInLog] = field(default_factory=dict)
    """(base offset, leader epoch) to the batch that was first seen there."""
    served: dict[int, ServedRecord] = field(default_factory=dict)
    """Offset to what a reader was served there first, since the last permitted loss of that offset."""

    def promised(self, promise: TopicGuarantees, offset: int) -> None:
        """That is what the configuration promises since this offset of the metadata log."""
        if not self.min_isrs or self.min_isrs[-1][1] != promise.min_isr:
            self.min_isrs.append((offset, promise.min_isr))
        self.promise = promise
        self.always_durable = self.always_durable and promise.durable

    def least_min_isr(self, leader: ReplicaSnapshot) -> int:
        """The smallest min ISR that a leader may go by in this event, in which it may have learnt of the later ones:
        the one that it knew before, or the one as its leadership was decided, or one of those since.
        """
        knew = max(self.cluster.imaged.get(leader.node, -1), self.decided.get(leader.leader_epoch, -1))
        known = [value for at, value in self.min_isrs if at <= knew][-1:]
        return min(known + [value for at, value in self.min_isrs if at > knew], default=self.promise.min_isr)

    def counts(self, view: ReplicaSnapshot) -> bool:
        """False for a replica that lives before a permitted loss: what it thinks is committed is not."""
        return view.leader_epoch >= self.void_epoch and view.node not in self.stale

    def serves(self, epoch: int) -> bool:
        """Return whether reads from the leader of this epoch count. False for one that a permitted loss has overtaken
        and for one whose disk rots; also if the configuration lets committed records change.
        """
        if epoch < 0 or epoch < self.void_epoch or self.promise.hw_truncation or self.promise.without_controller:
            return False
        return not self.cluster.rotten or self.leaders.get(epoch) not in self.cluster.rotten

    def epochs_at(self, offset: int) -> set[int]:
        """The leader epochs of all batches that any log ever had at this offset. Slow: it goes through all of them."""
        return {epoch for (base, epoch), it in self.written.items() if base <= offset < it.batch.end}

    def holds(self, node: int, end: int) -> bool:
        """Return whether a node's log, or the disk of a dead one, has all committed batches before `end`."""
        ledger = self.ledger
        if end <= ledger.low:
            return True
        copy = self.copies.get(node)
        return copy is not None and copy.compare(ledger) >= end and copy.low <= ledger.low

    def lacking(self, nodes: Iterable[int], end: int) -> Sequence[int]:
        """Those nodes that do not hold all committed batches before `end`, in order, as they were last compared."""
        low = self.ledger.low
        if end <= low:
            return ()
        copies, lacking = self.copies, []
        for node in nodes:
            copy = copies.get(node)
            if copy is None or copy.matched < end or copy.low > low:
                lacking.append(node)
        return lacking

    def believes(self, leader: Partition) -> bool:
        """Note where a leader believes that its followers' logs end. True if that is news. What a leader believes whom
        another one has followed is none: it must not hide what that one believes.
        """
        if self.believed is not None and leader.leader_epoch < self.believed.leader_epoch:
            return False
        ends = tuple([(replica.broker_id, replica.log_end_offset) for replica in leader.followers.values()])
        now = LeaderView(leader.local_id, leader.leader_epoch, ends)
        before, self.believed = self.believed, now
        return now != before

    def share(self, one: int, other: int, end: int) -> bool:
        """Return whether the logs of two nodes are one and the same before `end`, as far as it has not been deleted."""
        if end <= self.ledger.low:
            return True
        mine, its = self.copies.get(one), self.copies.get(other)
        if mine is None or its is None:
            return False
        # Most often both hold the same of what is committed.
        return (end <= mine.matched and end <= its.matched) or are_alike(mine, its, end)

    def held_once(self, node: int, end: int) -> bool:
        """Return whether a node holds all committed batches before `end`, or did until a power loss took them, or may
        have until bits rotted.
        """
        if self.holds(node, end) or node in self.cluster.rotten:
            return True
        lost = self.lost.get(node)
        return lost is not None and lost.upto >= end

    def has_uncommitted(self, node: int, offset: int) -> bool:
        """Return whether a node's log, or the disk of a dead one, has a record at an offset that is not committed yet.
        """
        copy = self.copies.get(node)
        return copy is not None and offset >= self.ledger.end and copy.low <= offset < copy.end

    def is_excused(self, node: int) -> bool:
        """Return whether a member of the ISR may lack what is committed: a power loss took it, and either the control
        plane does not know yet that this was another incarnation, or it is the last member, which nothing removes
        (without KIP-966).
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
        """Return whether a node has lost something with the power, and the control plane still counts on the
        incarnation that had it: it may keep that one in an ISR, and elect it, until the next one registers.
        """
        lost = self.lost.get(node)
        return lost is not None and not self.promise.durable and self.cluster.broker_epoch(node) <= lost.broker_epoch

    @property
    def is_recovering(self) -> bool:
        """True if the leader was elected from outside of ISR and ELR."""
        return self.truth is not None and self.truth.leader_recovery_state == RECOVERING

    def void_from(self, offset: int, epoch: int, leader: int) -> None:
        """Committed batches from `offset` on are gone, as is permitted, since `leader` was elected in `epoch`: what it
        has is the truth now.
        """
        self.ledger.cut(offset)
        self.void_epoch = epoch
        for node, copy in self.copies.items():
            copy.ledger_was_cut(self.ledger)
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
