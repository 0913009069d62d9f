"""Runs the invariants on every node that an event changed, and records violations.

Unchanged state is skipped, or costs one comparison. A replica's offsets, epochs and ISR are compared only if an
attribute of the replica was assigned to (`writes`). Every node's state in the quorum and its image's offset are
compared each time. What has changed is passed to `PartitionChecks`, which runs the invariants concerned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from squall.chaos.runtimes.sim.invariants import inspection
from squall.chaos.runtimes.sim.invariants.ack_watch import ack_of
from squall.chaos.runtimes.sim.invariants.batches import LogCopy
from squall.chaos.runtimes.sim.invariants.call_checks import CallChecks
from squall.chaos.runtimes.sim.invariants.derived import kept_start
from squall.chaos.runtimes.sim.invariants.durable import durable_end, recovery_points
from squall.chaos.runtimes.sim.invariants.group_journal import GroupJournal
from squall.chaos.runtimes.sim.invariants.group_watch import GROUPS_LOG, GroupWatch
from squall.chaos.runtimes.sim.invariants.guarantee_cache import TopicGuaranteeCache
from squall.chaos.runtimes.sim.invariants.image_watch import ImageWatch
from squall.chaos.runtimes.sim.invariants.leaders import SettingsOfImage
from squall.chaos.runtimes.sim.invariants.models import ClusterModel, PartitionModel
from squall.chaos.runtimes.sim.invariants.partition_checks import Change, PartitionChecks, check
from squall.chaos.runtimes.sim.invariants.quorum_watch import QuorumWatch
from squall.chaos.runtimes.sim.invariants.stuck import convergence_problems
from squall.chaos.runtimes.sim.invariants.table import INVARIANTS, CheckTrigger, Invariant
from squall.chaos.runtimes.sim.invariants.transaction_journal import TransactionJournal
from squall.chaos.runtimes.sim.invariants.txn_watch import COORDINATORS_LOG, TransactionWatch, journal_of
from squall.chaos.runtimes.sim.invariants.violation import InvariantViolation
from squall.chaos.runtimes.sim.invariants.watched import (
    NodeChangeStamp,
    Place,
    WatchedNode,
    WatchedReplica,
    WatchedReplicas,
)

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.config import BrokerConfig
    from squall.broker.replication.partition import Partition
    from squall.chaos.runtimes.sim.invariants.broker_calls import BrokerCallObserver
    from squall.chaos.runtimes.sim.invariants.connections import ConnectionOrderWatch
    from squall.chaos.runtimes.sim.invariants.decision_log import MetadataReplay, PartitionDecision
    from squall.chaos.runtimes.sim.invariants.models import ReplicaSnapshot
    from squall.chaos.runtimes.sim.invariants.request_order import RequestEffect
    from squall.chaos.runtimes.sim.invariants.topic_guarantees import TopicGuarantees

WHOLE_EVERY = 64
"""Is how often all replicas are compared, whether they were written to or not: at each 64th call of `look`."""
LOOK_S = 1.0
"""Gives the virtual seconds between two checks of the time-outs that a node's coordinators must keep."""
LOOKS = 5
"""Is how many checks of a quorum leader fit into the time after which it must resign if no majority fetches from it."""

COORDINATED: Final = {GroupJournal: GROUPS_LOG, TransactionJournal: COORDINATORS_LOG}
"""Maps the class that replays a coordinator's log to the internal topic of such logs."""


class CheckedSimulation(Protocol):
    """Lists what the invariant checks use of a simulation: its clock, its nodes and its violations."""

    @property
    def kernel(self) -> Any:
        """Returns the simulation's kernel, whose `now` is the virtual time in seconds."""

    @property
    def nodes(self) -> Mapping[int, Any]:
        """Maps a node id to its `inspection.InspectedNode`."""

    @property
    def violations(self) -> list[InvariantViolation]:
        """Returns the list to which violations are added."""


class InvariantChecker:
    """Checks the invariants of a simulation: call `look` after every event, `acknowledged` whenever a client gets an
    acknowledgement, and `final` at the end.
    """

    def __init__(
        self,
        world: CheckedSimulation,
        promise: TopicGuarantees | None = None,
        written: dict[Any, None] | None = None,
        connections: ConnectionOrderWatch | None = None,
        calls: BrokerCallObserver | None = None,
    ) -> None:
        """Start without nodes.

        `promise`: what the cluster's configuration promises; by default it is derived from the nodes' configuration.
        `written`: the dict of `writes.note_writes`; without it, each call of `look` compares every replica.
        `connections`: observes requests; without it, their order is not checked. `calls`: observes calls inside
        brokers; without it, time-outs of groups and responses to readers are not checked.
        """
        self._world, self._kernel = world, world.kernel
        self._promise, self._promises = promise, TopicGuaranteeCache()
        self.partitions: dict[Place, PartitionModel] = {}
        self.cluster = ClusterModel()
        self.quorum = QuorumWatch(self._report)
        self._checks = PartitionChecks(self._report)
        self._txns = TransactionWatch(self._report, self.partitions)
        self._groups = GroupWatch(self._report, None if calls is None else calls.clock)
        self._of: dict[type, Any] = {TransactionJournal: self._txns, GroupJournal: self._groups}
        self._nodes: dict[str, WatchedNode] = {}
        """Maps a node's name to its last seen state."""
        self._replicas, self._looks = WatchedReplicas(written), 0
        self._by_name: dict[tuple[str, int], PartitionModel] = {}
        self.images = ImageWatch(self._report, self.cluster, self._decided)
        self._config: Any = None
        """Is the configuration of the node whose image has changed last."""
        self._calls, self._settings = calls, SettingsOfImage()
        self._reported: set[tuple[str, str | None, int | None]] = set()
        self._committed: dict[tuple[int, PartitionModel], int] = {}
        """Maps (node, partition of a coordinators' log) to the partition's high watermark at the last check of
        time-outs.
        """
        if calls is not None:
            calls.observer = CallChecks(self._report, self._replicas, self._txns)
        if connections is not None:
            connections.tell = self._out_of_order
            self.cluster.asked = connections.asked

    # ------------------------------------------------------------------------------------------------------- looking

    def look(self, dirty_nodes: Set[str] | None = None) -> None:
        """Check everything that the last event has changed. `dirty_nodes`: the names of the nodes that may have
        changed; None: any node may have changed.
        """
        images: list[WatchedNode] = []
        alive: list[WatchedNode] = []
        loading: list[WatchedNode] = []
        if dirty_nodes is None:
            nodes = self._all_nodes()
        else:  # Most often there is one: to sort it costs as much as to glance at it.
            nodes = map(self._nodes.__getitem__, sorted(dirty_nodes) if len(dirty_nodes) > 1 else dirty_nodes)
        for seen in nodes:
            broker = seen.sim.node
            if broker is None or broker is not seen.broker:
                self._incarnation_changed(seen)
                if broker is None:
                    continue
            glance = seen.glance()
            if glance != seen.before or self._kernel.now >= seen.due:
                self._look_closer(seen, glance, images)
            if self._kernel.now >= seen.coordinators_due:
                self._look_at_times(seen)
            alive.append(seen)
            if seen.loading:
                loading.append(seen)
        changed, believers = self._replicas.changed(images, alive)
        self._looks += 1
        if not self._looks % WHOLE_EVERY:
            self._replicas.check(alive)
        if changed or images or believers:
            self._update(changed, images, believers)
        for seen in loading:
            self._coordinators_loaded(seen)

    def _all_nodes(self) -> Iterable[WatchedNode]:
        for sim in self._world.nodes.values():
            if sim.name not in self._nodes:
                self._nodes[sim.name] = WatchedNode(sim, len(self._nodes))
        return self._nodes.values()

    def _look_closer(self, seen: WatchedNode, glance: NodeChangeStamp, images: list[WatchedNode]) -> None:
        """Check a node's quorum state; add the node to `images` if its image has changed. `glance`: its new stamp."""
        now, before = self._kernel.now, seen.before
        seat, offset, topics = seen.before = glance
        if seat != before[0] or (now >= seen.due and not seen.sim.env.paused):
            # A leader that is cut off on all sides changes nothing: so it is looked at now and then.
            seen.due = now + seen.quorum.majority_timeout_ms / 1000 / LOOKS if seat.leads else inf
            self.quorum.update(seen.id, seen.incarnation, seen.broker, seen.sim.disk)
        if offset != before[1] or topics != before[2]:
            self._hosting_changed(seen)
            images.append(seen)

    def _update(
        self, changed: Sequence[WatchedReplica], images: list[WatchedNode], believers: Sequence[WatchedReplica]
    ) -> None:
        touched: dict[PartitionModel, list[Change]] = {}
        for replica in changed:
            known, seen = replica.known, replica.node
            now = inspection.view_of(seen.id, seen.incarnation, replica.hosted, seen.broker.fetchers)
            before = replica.view
            replica.view = now
            known.views[seen.id] = now
            self._read(seen, replica, now)
            if before is not None and now.start < before.start:
                self._checks.went_back(known, seen.id, before.start, now.start, now.leo, cut=True)
            touched.setdefault(known, []).append((before, now))
        for seen in images:
            self._image_moved(seen, touched)
        news = [each.known for each in believers if each.known.note_beliefs(each.state)] if believers else ()
        for known, changes in touched.items():
            self._checks.settle(known, changes)
        for seen in images:
            self.cluster.imaged[seen.id] = seen.image.offset
        for known in news:
            if known not in touched:
                self._checks.believed(known)
        self._txns.settle(touched)
        for replica in changed:
            if replica.copy.journal is not None:
                self._coordinator_changed(replica.node, replica)

    def _coordinator_changed(self, seen: WatchedNode, replica: WatchedReplica) -> None:
        journal = replica.copy.journal
        shard = seen.shards[type(journal)].get(replica.known.partition)
        if shard is not replica.shard:
            replica.shard = shard
            if shard is not None and replica not in seen.loading:
                seen.loading.append(replica)
        if shard is not None and shard.serves and replica not in seen.loading:
            self._of[type(journal)].coordinator(seen.id, replica.known, journal, shard.machine, whole=False)

    def _coordinators_loaded(self, seen: WatchedNode) -> None:
        """Compare the state of each coordinator that has begun to serve with a replay of its whole log."""
        for replica in list(seen.loading):
            journal = replica.copy.journal
            shard = seen.shards[type(journal)].get(replica.known.partition)
            if shard is None or shard is not replica.shard:
                seen.loading.remove(replica)
            elif shard.serves:
                seen.loading.remove(replica)
                self._of[type(journal)].coordinator(seen.id, replica.known, journal, shard.machine, whole=True)

    def _look_at_times(self, seen: WatchedNode) -> None:
        """Run a node's periodic checks: replicas' settings, waiting ISR proposals, and coordinators' time-outs."""
        now = self._kernel.now
        # If this check is later than that, the node was down or did nothing meanwhile.
        ran = now - seen.coordinators_due <= LOOK_S and not seen.sim.env.paused
        seen.coordinators_due = now + LOOK_S
        if self._calls is not None:
            self._calls.look(seen.broker.proposals, now if ran else None)
            for replica in seen.replicas:
                found = self._settings.compare(seen.broker.config, seen.image, replica.state, replica.log.config)
                check(self._report, CheckTrigger.SETTINGS, found, node=seen.id, known=replica.known)
                replica.known.index_interval = max(replica.known.index_interval, found.image.index_interval_bytes)
        if seen.id in self.cluster.rotten:
            return
        for kind, topic in COORDINATED.items():
            for index, shard in seen.shards[kind].items():
                known = self._by_name.get((topic, index))
                if shard.serves and known is not None:
                    # What a coordinator cannot write down it cannot do.
                    able = self._may_write(seen, known, shard.log.hosted.state) and ran
                    self._of[kind].look(seen, known, shard, able=able)

    def _may_write(self, seen: WatchedNode, known: PartitionModel, log: Partition) -> bool:
        """Return whether a coordinator could write to this log since the last check: its node leads with at least min
        ISR in-sync replicas, and the high watermark has moved or is at the log's end.
        """
        before, self._committed[seen.id, known] = self._committed.get((seen.id, known), -1), log.high_watermark
        moves = log.high_watermark > before or log.high_watermark == log.log_end_offset
        return log.is_leader and moves and not log.under_min_isr_before_append()

    def _read(self, seen: WatchedNode, replica: WatchedReplica, view: ReplicaSnapshot) -> None:
        copy, known, log = replica.copy, replica.known, replica.log
        point = log.durability.recovery_point, log.generation
        if point != replica.recovery_point:
            replica.recovery_point = point
            self._checks.flushed(known, seen.id, point[0], durable_end(log, seen.sim.disk))
        self._start_went_back(seen, replica)
        if copy.generation == log.generation:
            if copy.low < log.log_start_offset:
                # Each replica deletes by its own retention, a follower sometimes before its leader, and one that lives
                # before a permitted loss further than what is committed goes.
                known.ledger.deleted(min(log.log_start_offset, copy.matched))
            if copy.end == log.log_end_offset:
                if copy.low != log.log_start_offset:
                    copy.low = log.log_start_offset
                    self._checks.derived(known, seen.id, log, seen.sim.disk, anew=False)
                return
        held, truncated = copy.matched if copy.same else 0, copy.generation != log.generation
        found = inspection.follow(copy, log, seen.sim.disk)
        self._checks.wrote(known, view, copy.newest(len(found)))
        if truncated or copy.replay.changed_ids or copy.journal is not None:
            self._txns.log_changed(seen.id, known, copy, log, seen.sim.disk, anew=truncated)
        if found and not truncated and len(found) < len(copy.batches):
            epoch = found[-1].epoch
            if epoch != copy.batches[-len(found) - 1].epoch:
                self._checks.began(known, seen.id, epoch, inspection.durable_epochs(seen.sim.disk, log.directory))
        if truncated:
            known.named.pop(seen.id, None)
            self._checks.derived(known, seen.id, log, seen.sim.disk, anew=True)
            self._checks.shortened(CheckTrigger.TRUNCATED, known, seen.id, held)

    def _start_went_back(self, seen: WatchedNode, replica: WatchedReplica) -> None:
        copy, log = replica.copy, replica.log
        if log.log_start_offset < copy.low:
            end, cut = log.log_end_offset, log.generation != copy.generation
            self._checks.went_back(replica.known, seen.id, copy.low, log.log_start_offset, end, cut=cut)

    # ---------------------------------------------------------------------------------------------- what is decided

    def _image_moved(self, seen: WatchedNode, touched: dict[PartitionModel, list[Change]]) -> None:
        image: ClusterImage = seen.image
        offset = image.offset
        if offset < 0:
            return
        self._config = seen.broker.config
        log, alive = inspection.metadata_log(seen.broker), seen.sim.node is seen.broker
        if not self.images.moved(seen.id, image, log, seen.sim.disk, alive=alive):
            return
        self.cluster.offset = offset
        for topic, index, _ in image.partitions():
            known = self._known(topic.id, topic.name, index)
            known.promised(self._promised(self._config, image, topic.name), offset)
            touched.setdefault(known, [])
        for place in [place for place in self.partitions if place[0] not in image.topics_by_id]:
            gone = self.partitions.pop(place)
            gone.deleted = True
            touched.pop(gone, None)

    def _decided(self, decided: PartitionDecision) -> None:
        """Check one decision of the control plane. `self.images.log` has replayed the metadata log exactly up to it."""
        topic, index, partition = decided
        known = self._by_name[topic.name, index] = self._known(topic.id, topic.name, index)
        known.promised(self._promised(self._config, self.images.log, topic.name), self.images.log.offset)
        known.decided.setdefault(partition.leader_epoch, self.images.log.offset)
        if partition != known.truth:
            self._checks.decided(known, partition)

    def _promised(self, config: BrokerConfig, image: ClusterImage | MetadataReplay, topic: str) -> TopicGuarantees:
        return self._promise or self._promises.of(config, image, topic)

    def _known(self, topic_id: bytes, topic: str, index: int) -> PartitionModel:
        known = self.partitions.get((topic_id, index))
        if known is None:
            known = self.partitions[topic_id, index] = PartitionModel(topic, index, topic_id, cluster=self.cluster)
            # A node that starts hosts deleted topics for a moment: the name belongs to the one that was made since.
            self._by_name.setdefault((topic, index), known)
            if self._promise is not None:
                known.promise = self._promise
        return known

    # -------------------------------------------------------------------------------------------------- life and death

    def _incarnation_changed(self, seen: WatchedNode) -> None:
        if seen.broker is not None:
            self._died(seen)
            self.cluster.imaged.pop(seen.id, None)
        seen.broker, seen.incarnation = seen.sim.node, seen.sim.incarnation
        if seen.broker is not None:
            seen.now_runs(seen.broker)
            for log in seen.broker.logs.logs.values():
                known = self.partitions.get((log.topic_id, log.partition))
                if known is not None:
                    self._loaded(seen, known, log)

    def _loaded(self, seen: WatchedNode, known: PartitionModel, log: Any) -> None:
        """Check a log that a starting node has loaded: it must equal the log that was on the disk."""
        before = known.copies.get(seen.id)
        copy = known.copies[seen.id] = LogCopy(log.segments[0].base_offset, journal=journal_of(known))
        inspection.follow(copy, log, seen.sim.disk, checked=True)
        self._txns.log_changed(seen.id, known, copy, log, seen.sim.disk, anew=True)
        self._checks.loaded(known, seen.id, copy.end, log.log_end_offset)
        self._checks.derived(known, seen.id, log, seen.sim.disk, anew=True)
        self._checks.started(known, seen.id, log, kept_start(log, seen.sim.disk, seen.broker.logs.log_dir))
        if before is not None:
            self._checks.shortened(CheckTrigger.RECOVERED, known, seen.id, before.compare(known.ledger))

    def _died(self, seen: WatchedNode) -> None:
        """Check the last state of an incarnation that has ended, and replace its logs by those on its disk."""
        # What it decided, committed and deleted in the moment that it died in, nobody has looked at yet.
        self._image_moved(seen, {})
        for replica in seen.replicas:
            self._start_went_back(seen, replica)
            if replica.copy.generation == replica.log.generation and replica.copy.low < replica.log.log_start_offset:
                replica.known.ledger.deleted(min(replica.log.log_start_offset, replica.copy.matched))
            if replica.state.is_leader and replica.state.high_watermark > replica.known.ledger.end:
                inspection.follow(replica.copy, replica.log, seen.sim.disk)
                self._checks.commit(replica.known, inspection.view_of(seen.id, seen.incarnation, replica.hosted))
                if replica.known.topic == COORDINATORS_LOG:
                    self._txns.take_decisions(replica.known)
        seen.places = {}
        self._replicas.host(seen, ())
        disk = seen.sim.disk
        points = recovery_points(disk, seen.broker.logs.log_dir)
        for log in seen.broker.logs.logs.values():
            known = self.partitions.get((log.topic_id, log.partition))
            if known is not None:
                left = inspection.copy_on_disk(disk, log.directory, journal_of(known))
                self._checks.died(known, seen.id, left)
                self._checks.flushed(known, seen.id, points.get((log.topic, log.partition), 0), left.end)
        self.quorum.died(seen.id, seen.broker, disk)

    def _hosting_changed(self, seen: WatchedNode) -> None:
        """Update the list of replicas that a node hosts."""
        places = {}
        for hosted in seen.broker.replicas.hosted():
            state = hosted.state
            place = state.topic_id, state.index
            replica = seen.places.get(place)
            if replica is None or replica.hosted is not hosted:
                known = self._known(state.topic_id, state.topic, state.index)
                copy = known.copies.get(seen.id)
                if copy is None or (replica is not None and replica.hosted is not hosted):
                    base = hosted.log.segments[0].base_offset
                    copy = known.copies[seen.id] = LogCopy(base, journal=journal_of(known))
                replica = WatchedReplica(seen, hosted, known, copy)
            places[place] = replica
        for place, replica in seen.places.items():
            if place not in places:
                replica.known.copies.pop(seen.id, None)
                replica.known.named.pop(seen.id, None)
                replica.known.views.pop(seen.id, None)
                replica.known.lost.pop(seen.id, None)
        if places != seen.places:
            self._replicas.host(seen, places.values())
            seen.places = places

    # -------------------------------------------------------------------------------------------------- reporting

    def damaged(self, node: int, *, rotten: bool) -> None:
        """Note that a node's disk was damaged on purpose (flipped bits, a failed fsync). From then on, missing records
        on it are no violation; nor are wrong records, if bits may have flipped (`rotten`).
        """
        self.cluster.damaged.add(node)
        self.quorum.damaged.add(node)
        if rotten:
            self.cluster.rotten.add(node)

    def acknowledged(
        self, topic: str, partition: int, offset: int, value: bytes | None, acks: int, min_isr: int
    ) -> None:
        """Check a successful send of a client. `acks`: -1 is all. `value`: the beginning of the record's value, unique
        to this record; None if it is not known.
        """
        known = self._by_name.get((topic, partition))
        if known is not None and acks != 0:
            self._checks.acknowledged(known, ack_of(self._nodes.values(), known, offset, value, acks, min_isr))

    def served(self, topic: str, partition: int, epoch: int, records: Iterable[tuple[int, int]]) -> None:
        """Check the records that a reader got from the leader of this epoch. `records`: (offset, number that identifies
        the record's value; -1 if the value is not readable).
        """
        known = self._by_name.get((topic, partition))
        if known is not None:
            self._checks.served(known, epoch, records)

    def _out_of_order(self, node: int, now: RequestEffect, last: RequestEffect) -> None:
        check(self._report, CheckTrigger.ORDER, now, last, node=node, details={"now": now, "last": last})

    def final(self) -> list[InvariantViolation]:
        """Check a cluster that should have converged. Returns the new violations."""
        already = len(self._world.violations)
        self.look()
        for known in self.partitions.values():
            self._checks.final(known)
        self.quorum.final()
        return self._world.violations[already:]

    def stuck(self) -> list[str]:
        """Return a line for each reason why the cluster has not converged."""
        return convergence_problems(self._world.nodes, self.partitions.values(), self.cluster)

    def _report(
        self, broken: Invariant, wrong: str, node: int | None, known: PartitionModel | None, details: Mapping[str, Any]
    ) -> None:
        topic, partition = (None, None) if known is None else (known.topic, known.partition)
        mark = (broken.name, topic, partition)
        if mark in self._reported:
            return
        self._replicas.check(self._nodes.values())  # What is missed is trouble of ours, and says nothing of a broker.
        self._reported.add(mark)
        if known is not None:
            details = {**details, **_situation(known)}
        self._world.violations.append(
            InvariantViolation(broken.name, wrong, self._kernel.now, node, topic, partition, details)
        )


def _situation(known: PartitionModel) -> dict[str, Any]:
    return {
        "committed": known.ledger.end,
        "decided": repr(known.truth),
        "replicas": {node: view._asdict() for node, view in known.views.items()},
        "logs": {n: {"start": c.low, "matched": c.matched, "end": c.end} for n, c in known.copies.items()},
        "harmed": {node: asdict(lost) for node, lost in known.lost.items()},
        "promise": asdict(known.promise),
    }


__all__ = ["INVARIANTS", "InvariantViolation", "InvariantChecker"]
