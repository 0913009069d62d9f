"""Holds nodes and their replicas as they were at the last check, to find what an event has changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from squall.chaos.runtimes.sim.invariants import inspection
from squall.chaos.runtimes.sim.invariants.batches import LogCopy
from squall.chaos.runtimes.sim.invariants.group_journal import GroupJournal
from squall.chaos.runtimes.sim.invariants.models import PartitionModel
from squall.chaos.runtimes.sim.invariants.transaction_journal import TransactionJournal

if TYPE_CHECKING:
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.chaos.runtimes.sim.invariants.models import ReplicaSnapshot

Place = tuple[bytes, int]
NodeChangeStamp = tuple[Any, int, int]
"""Is a value that differs whenever a node must be checked: its state in the quorum (`QuorumNodeState`), its image's
offset, and how many topics it hosts.
"""
NOTHING_SEEN: NodeChangeStamp = (), -1, -1


class WatchedReplica:
    """Holds the state of a hosted replica at the last check, to find out whether an event has changed it."""

    __slots__ = (
        "copy",
        "durability",
        "ends",
        "followers",
        "hosted",
        "known",
        "log",
        "node",
        "numbers",
        "rank",
        "recovery_point",
        "shard",
        "state",
        "view",
    )

    def __init__(self, node: WatchedNode, hosted: HostedPartition, known: PartitionModel, copy: LogCopy) -> None:
        self.node, self.rank = node, -1
        """Hold the replica's node, and its index among the node's replicas; -1 once the node hosts it no more."""
        self.hosted, self.state, self.log = hosted, hosted.state, hosted.log
        self.durability = hosted.log.durability
        self.known, self.copy = known, copy
        self.numbers: tuple[Any, ...] = ()
        """Holds offsets, epochs and other values of the replica at the last check; if one has changed, the replica is
        checked again.
        """
        self.ends: tuple[int, ...] = ()
        """Holds the log ends that a leader believed its followers to have at the last check; empty for a follower."""
        self.followers: Any = None
        """Is the leader's dict of follower states that was last entered into `WatchedReplicas._owners`. If the leader
        has made a new dict since then, the new follower states must be entered, too.
        """
        self.recovery_point = -1, -1
        """Holds (recovery point, generation) of the log at the last check. The generation counts the log's truncations.
        """
        self.view: ReplicaSnapshot | None = None
        self.shard: Any = None
        """Is the coordinator that the node ran at the last check for this replica of an internal topic; None if it ran
        none.
        """

    def numbers_now(self) -> tuple[Any, ...]:
        """Return the replica's present offsets, partition epoch, ISR and role, in the order of `numbers`."""
        # Each attribute by its name: `attrgetter` takes twice as long.
        state, log = self.state, self.log
        return (
            state.high_watermark,
            state.log_end_offset,
            state.partition_epoch,
            state.maximal_isr,
            state.isr,
            state.is_leader,
            log.log_end_offset,
            log.generation,
            log.log_start_offset,
            self.durability.recovery_point,
        )

    def ends_now(self) -> tuple[int, ...]:
        """Return the log ends that the replica, as leader, believes its followers to have now; empty if it does not
        lead.
        """
        if not self.state.is_leader:
            return ()
        return tuple([follower.log_end_offset for follower in self.state.followers.values()])


class WatchedNode:
    """Holds the state of a node at the last check, to find out whether an event has changed it."""

    __slots__ = (
        "before",
        "broker",
        "by_id",
        "coordinators_due",
        "due",
        "id",
        "image",
        "incarnation",
        "inspect",
        "loading",
        "places",
        "quorum",
        "rank",
        "replicas",
        "shards",
        "sim",
    )

    def __init__(self, sim: inspection.InspectedNode, rank: int) -> None:
        """Start as if nothing of the node was seen yet. `rank`: its index among the nodes."""
        self.sim, self.id, self.rank = sim, sim.id, rank
        self.broker: Any = None
        self.incarnation = -1
        self.image: Any = None
        self.replicas: list[WatchedReplica] = []
        self.places: dict[Place, WatchedReplica] = {}
        self.before = NOTHING_SEEN
        """Holds the stamp of the node's state at the last check. If the present stamp differs, the node is checked
        again.
        """
        self.due = inf
        """Is the time at which a quorum leader is checked again, even if nothing has changed."""
        self.coordinators_due = -inf
        """Is the time at which the time-outs of the node's coordinators are checked again."""
        self.shards: Mapping[type, Mapping[int, Any]] = {}
        """Holds the node's coordinators, by partition index: under the key `TransactionJournal` those of
        __transaction_state, under `GroupJournal` those of __consumer_offsets.
        """
        self.loading: list[WatchedReplica] = []
        """Lists the replicas of internal topics whose coordinators still load the log. Once such a coordinator serves,
        its whole state is compared with a replay of the log.
        """

    def now_runs(self, broker: Any) -> None:
        """Keep references to those objects of a started broker that are read after every event."""
        self.image, self.by_id = broker.feed.image, broker.replicas.by_id
        self.quorum, self.inspect = broker.control.quorum, broker.control.quorum.inspect
        self.shards = {TransactionJournal: broker.transactions.shards, GroupJournal: broker.groups.shards}
        self.loading = []
        self.before = NOTHING_SEEN

    def glance(self) -> NodeChangeStamp:
        """Return a stamp of the node's quorum state, image offset and number of hosted topics. If it differs from the
        last stamp, the node must be checked. Changes within its replicas are not part of it.
        """
        return self.inspect(), self.image.offset, len(self.by_id)


News = tuple[Sequence[WatchedReplica], Sequence[WatchedReplica]]
NOTHING_NEW: News = (), ()


class WatchedReplicas:
    """Holds the replicas of all nodes, and finds those that have changed."""

    def __init__(self, written: dict[Any, None] | None) -> None:
        """Start without replicas. `written`: the dict of `writes.note_writes`; None: writes are not noted, so all
        replicas are compared each time.
        """
        self._written = written
        self._owners: dict[Any, WatchedReplica] = {}
        """Maps a state machine, log or follower state to the replica to which it belongs. Follower states that a leader
        has replaced stay here: they are not written to any more.
        """

    def of(self, state: Any) -> WatchedReplica | None:
        """Return the replica with this state machine; None if it is not watched."""
        return self._owners.get(state)

    def host(self, node: WatchedNode, replicas: Iterable[WatchedReplica]) -> None:
        """Replace the list of a node's replicas."""
        for replica in node.replicas:
            replica.rank = -1
            for one in (replica.state, replica.log, replica.durability):
                self._owners.pop(one, None)
        node.replicas = list(replicas)
        for rank, replica in enumerate(node.replicas):
            replica.rank = rank
            self._owners.update(dict.fromkeys((replica.state, replica.log, replica.durability), replica))
            self._owns_followers(replica)

    def _owns_followers(self, replica: WatchedReplica) -> None:
        followers = replica.state.followers
        if followers is not replica.followers:
            replica.followers = followers
            self._owners.update(dict.fromkeys(followers.values(), replica))

    def changed(self, anew: Collection[WatchedNode], alive: Collection[WatchedNode]) -> News:
        """Return two lists, each in the order of nodes: the replicas whose offsets, epochs, role or ISR (`numbers`)
        have changed since the last call, and the leaders whose beliefs about their followers' log ends (`ends`) have
        changed.

        If writes are recorded, this compares the replicas of the nodes in `anew`, and all replicas that were written
        to. If they are not recorded, it compares all replicas of the nodes in `alive`.
        """
        written = self._written
        if written is None:
            return self._moved([replica for node in alive for replica in node.replicas])
        if not (written or anew):
            return NOTHING_NEW
        suspects = {replica: None for node in anew for replica in node.replicas} if anew else {}
        for one in written:
            replica = self._owners.get(one)
            # Tasks of a dead incarnation may still write to its objects, which belong to no running node.
            if replica is None or replica.rank < 0 or replica.node.sim.node is not replica.node.broker:
                continue
            suspects[replica] = None
            if one is replica.state:
                self._owns_followers(replica)
        news = self._moved(sorted(suspects, key=_place) if len(suspects) > 1 else suspects)
        for replica in news[0]:
            # One that is compared for another reason may have changed some time ago.
            own = replica.state, replica.log, replica.durability
            if not any(one in written for one in own) and replica.node not in anew:
                raise _missed(replica)
        written.clear()
        return news

    def check(self, nodes: Iterable[WatchedNode]) -> None:
        """Raise AssertionError if a replica of a running node has changed, but `writes.note_writes` has recorded no
        write to it.
        """
        if self._written is None:
            return
        # Written to in this event: `changed` has yet to compare them.
        pending = {self._owners.get(one) for one in self._written}
        for node in nodes:
            for replica in node.replicas if node.sim.node is node.broker else ():
                now = replica.numbers_now(), replica.ends_now()
                if now != (replica.numbers, replica.ends) and replica not in pending:
                    raise _missed(replica)

    @staticmethod
    def _moved(replicas: Iterable[WatchedReplica]) -> News:
        changed: list[WatchedReplica] = []
        believers: list[WatchedReplica] = []
        for replica in replicas:
            numbers, ends = replica.numbers_now(), replica.ends_now()
            if numbers != replica.numbers:
                replica.numbers = numbers
                changed.append(replica)
            if ends != replica.ends:
                replica.ends = ends
                if ends:
                    believers.append(replica)
        return changed, believers


def _missed(replica: WatchedReplica) -> AssertionError:
    return AssertionError(f"{replica.state} has changed, and no write to it was seen")


def _place(replica: WatchedReplica) -> tuple[int, int]:
    return replica.node.rank, replica.rank
