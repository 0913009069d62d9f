"""Plans how one partition changes: its leader, its ISR, its epochs (mechanisms R1, R10, R11, E1 in docs/mechanisms.md).

`PartitionChange` collects the wanted changes and plans the record. A replica is acceptable as leader if its broker is
alive and not about to stop. An acceptable replica is valid if it is in the ISR or, if the ISR is empty, an eligible
leader replica (KIP-966). The first of these rules that applies gives the leader:

1. The present leader, if it is valid.
2. The first valid replica in replica order.
3. If there are no ISR and no eligible leader replicas: the last known leader (KIP-966), if it is acceptable.
4. If the topic allows unclean elections: the first acceptable replica.

A leader by rule 3 or 4 is alone in the new ISR, and RECOVERING. If no rule applies, the partition has no leader.

Without the ELR feature the last member of an ISR is never removed, because it alone is known to hold every committed
record.
"""

# Eligible leader replicas are on in new clusters, as in Kafka since 4.1. Even so a power loss of the last in-sync
# replica counts as one of all replicas: a kill is an unclean stop too and ends the eligibility of the killed replica,
# and in the end the last known leader leads with what it had synced.

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from squall.broker.cluster.image import ELR_FEATURE, RECOVERING, PartitionImage
from squall.broker.cluster.replay import LEADER_UNCHANGED
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema.metadata_records import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.cluster.image import ClusterImage
    from squall.broker.controller.decision import Command

PARTITION_CHANGE_VERSION = 2


class ElectionType(Enum):
    """Names the kinds of leader elections, which differ in the replicas that may be elected."""

    PREFERRED = "preferred"
    """Elects the preferred leader if it is in the ISR (or eligible), even if another replica leads; else works like
    ONLINE.
    """
    ONLINE = "online"
    """Elects ISR members and eligible leader replicas, so no committed record is lost. If there are none, the last
    known leader may be elected, which may lose committed records.
    """
    UNCLEAN = "unclean"
    """Works like ONLINE but, if that gives no leader, elects any live replica, which may lose committed records."""


@dataclass(slots=True)
class PartitionChange:
    """Holds the wanted change of a partition, whose present state is `before`. A field that is None stays as in
    `before`.
    """

    topic_id: bytes
    index: int
    before: PartitionImage
    acceptable: Callable[[int], bool]
    """Returns whether a broker may lead: it is alive and not about to stop."""
    min_isr: int
    """Gives the topic's min.insync.replicas, at most the replication factor."""
    election: ElectionType = ElectionType.ONLINE
    elr_enabled: bool = False
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    unclean_shutdown: tuple[int, ...] = ()
    """Lists replicas that may have lost records in an unclean shutdown, and so leave the ELR."""

    def plan(self) -> PartitionChangeRecord | None:
        """Return the record that makes the change, or None if nothing changes."""
        before, target = self.before, _PlannedPartition(self)
        target.complete_reassignment()
        target.keep_eligible(self)
        leader, unclean = self._elect(target)
        assert leader == NO_NODE or leader in target.replicas
        assert not unclean or leader != NO_NODE
        record = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.index)
        if leader != before.leader:
            record.leader = leader
            if unclean:
                # RECOVERING until the new leader reports its recovery: before, no follower joins the ISR (KIP-704).
                target.isr, target.elr = (leader,), ()
                if before.leader_recovery_state != RECOVERING:
                    record.leader_recovery_state = RECOVERING
            # It has every committed record, and the others of the ELR are followers that have to catch up with it.
            elif leader in target.elr:
                target.isr = (leader,)
                target.elr = tuple(replica for replica in target.elr if replica != leader)
        elif not set(before.replicas) <= set(target.replicas):
            # A new leader epoch fences the replicas that leave the partition (KIP-455).
            record.leader = before.leader
        assert leader == NO_NODE or leader in target.isr
        assert set(target.isr) <= set(target.replicas)
        assert not set(target.isr) & set(target.elr)
        assert set(target.elr) <= set(target.replicas)
        assert set(target.adding) <= set(target.replicas)
        assert set(target.removing) <= set(target.replicas)
        assert not set(target.adding) & set(target.removing)
        self._fill(record, target)
        return None if record == PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.index) else record

    def _elect(self, target: _PlannedPartition) -> tuple[int, bool]:
        """Return the leader, and whether its election is unclean."""
        assert target.replicas
        valid = [replica for replica in target.replicas if self._valid(replica, target)]
        preferred = target.replicas[0]
        if self.election is ElectionType.PREFERRED and preferred in valid:
            return preferred, False
        # A valid leader stays whatever the replica order, because each change of leader costs a leader epoch.
        if self.before.leader in valid:
            return self.before.leader, False
        if valid:
            return valid[0], False
        if self._last_known_leader_may_lead(target):
            return self.before.last_known_elr[0], True
        if self.election is ElectionType.UNCLEAN:
            for replica in target.replicas:
                if self.acceptable(replica):
                    return replica, True
        return NO_NODE, False

    def _valid(self, replica: int, target: _PlannedPartition) -> bool:
        """Return whether a replica's broker may lead and the replica holds every committed record: it is in the planned
        ISR or, if that is empty, in the planned ELR.
        """
        complete = replica in (target.isr or target.elr)
        return complete and self.acceptable(replica)

    def _last_known_leader_may_lead(self, target: _PlannedPartition) -> bool:
        if not self.elr_enabled or target.isr or target.elr or len(self.before.last_known_elr) != 1:
            return False
        return self.acceptable(self.before.last_known_elr[0])

    def _fill(self, record: PartitionChangeRecord, target: _PlannedPartition) -> None:
        before = self.before
        # Without ELR an ISR never becomes empty; with ELR it may.
        if target.isr != before.isr and (target.isr or self.elr_enabled):
            record.isr = list(target.isr)
        elr = target.elr if self.elr_enabled else ()
        if elr != before.elr:
            record.eligible_leader_replicas = list(elr)
        self._fill_last_known_leader(record)
        if target.replicas != before.replicas:
            record.replicas = list(target.replicas)
        if target.adding != before.adding:
            record.adding_replicas = list(target.adding)
        if target.removing != before.removing:
            record.removing_replicas = list(target.removing)
        wanted = self.leader_recovery_state
        if wanted is not None and wanted != before.leader_recovery_state:
            record.leader_recovery_state = wanted

    def _fill_last_known_leader(self, record: PartitionChangeRecord) -> None:
        before = self.before
        leader = before.leader if record.leader == LEADER_UNCHANGED else record.leader
        if leader != NO_NODE or not self.elr_enabled:
            if before.last_known_elr:
                record.last_known_elr = []
        elif record.isr == [] and before.leader != NO_NODE and before.last_known_elr != (before.leader,):
            record.last_known_elr = [before.leader]


class _PlannedPartition:
    """Holds the new state of the partition while it is planned."""

    __slots__ = ("adding", "elr", "isr", "removing", "replicas")

    def __init__(self, change: PartitionChange) -> None:
        before = change.before
        self.isr = before.isr if change.isr is None else change.isr
        self.replicas = before.replicas if change.replicas is None else change.replicas
        self.adding = before.adding if change.adding is None else change.adding
        self.removing = before.removing if change.removing is None else change.removing
        self.elr: tuple[int, ...] = ()

    def complete_reassignment(self) -> None:
        """Finish a reassignment once every added and at least one remaining replica is in the ISR (KIP-455)."""
        assert set(self.isr) <= set(self.replicas)
        if not self.adding and not self.removing:
            return
        isr = tuple(replica for replica in self.isr if replica not in self.removing)
        replicas = tuple(replica for replica in self.replicas if replica not in self.removing)
        if isr and replicas and set(self.adding) <= set(isr):
            self.isr, self.replicas, self.adding, self.removing = isr, replicas, (), ()

    def keep_eligible(self, change: PartitionChange) -> None:
        """Plan the eligible leader replicas (KIP-966). Replicas that leave the ISR stay eligible while it is smaller
        than min.insync.replicas: no record is committed in that time, so they miss none.
        """
        if not change.elr_enabled or len(self.isr) >= change.min_isr:
            return
        before = change.before
        self.elr = tuple(
            replica
            for replica in self.replicas
            if (replica in before.isr or replica in before.elr)
            and replica not in self.isr
            and replica not in change.unclean_shutdown
        )


def election_for(command: Command, topic: str) -> ElectionType:
    """Return UNCLEAN if the topic, or the brokers by default, allow unclean elections, else ONLINE."""
    unclean = command.settings.unclean_leader_election_enabled(command.image, topic)
    return ElectionType.UNCLEAN if unclean else ElectionType.ONLINE


def partition_change(command: Command, topic_id: bytes, index: int, before: PartitionImage) -> PartitionChange:
    """Return a `PartitionChange` that holds the topic's settings for elections and no new values yet: the caller sets
    the fields that shall change. `before` is the partition's present state.
    """
    image = command.image
    topic = image.topics_by_id[topic_id].name
    min_isr = min(command.settings.min_insync_replicas(image, topic), len(before.replicas))
    assert min_isr >= 1
    return PartitionChange(
        topic_id=topic_id,
        index=index,
        before=before,
        acceptable=image.is_active,
        min_isr=min_isr,
        election=election_for(command, topic),
        elr_enabled=elr_enabled(image),
    )


def elr_enabled(image: ClusterImage) -> bool:
    """Return whether the feature of eligible leader replicas is finalized on."""
    return image.features.get(ELR_FEATURE, 0) >= 1
