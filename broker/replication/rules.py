"""The rules of replication, one method each. None of them changes anything.

Every rule here is what some released broker once got wrong, and what it protects is in its docstring. They are methods
so that a planted bug can replace exactly one (`chaos/mutants`), and so that tests can ask them directly.
"""

from __future__ import annotations

from typing import Final

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication import truncation
from squall.broker.replication.replica import EPOCH_NOT_LEARNT, FollowerReplicaState
from squall.broker.replication.truncation import Divergence, EpochCachePort
from squall.broker.replication.values import (
    NO_EPOCH,
    UNKNOWN_OFFSET,
    BrokerStatuses,
    LeaderAndIsr,
    ProposeIsr,
    ReplicationSettings,
)

READ_COMMITTED: Final = 1
"""Kafka's isolation level of the same name; 0 is read_uncommitted."""

# The controller says that this very proposal was not applied and that our partition epoch is the newest: going back to
# the committed ISR is safe after these two and after no other error (KIP-497, KIP-841).
NOT_APPLIED: Final = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
# The proposal is dead, but something newer than we know was decided: stay as careful as before until metadata tells.
AWAIT_METADATA: Final = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NEW_LEADER_ELECTED,
)


class PartitionRules:
    """State of one partition on one broker, and the rules over it. `Partition` adds what changes the state."""

    __slots__ = (
        "brokers",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "index",
        "is_follower",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_id",
        "local_id",
        "log_end_offset",
        "log_start_offset",
        "maximal_isr",
        "partition_epoch",
        "pending",
        "replicas",
        "settings",
        "topic",
        "topic_id",
    )

    topic: str
    index: int
    topic_id: bytes
    local_id: int
    settings: ReplicationSettings
    brokers: BrokerStatuses

    is_leader: bool
    is_follower: bool
    leader_id: int
    """Broker id, or NO_NODE."""
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    """The committed ISR: the last one that the controller confirmed."""
    maximal_isr: tuple[int, ...]
    """Every broker that is in the ISR or may be: the committed members and those of a pending proposal."""
    replicas: tuple[int, ...]
    pending: ProposeIsr | None
    """The proposal in flight. At most one."""

    log_start_offset: int
    log_end_offset: int
    """Exclusive: the offset of the next record."""
    high_watermark: int
    """Exclusive: records below it are committed."""
    epoch_start_offset: int
    """Where the log ended when this node began to lead in this epoch; -1 while it does not lead."""
    followers: dict[int, FollowerReplicaState]
    """On the leader, every other replica in assignment order; empty elsewhere."""

    # ------------------------------------------------------------------------------------------------------- fencing

    def check_leader_epoch(self, request_epoch: int) -> ErrorCode:
        """Return the error of a request that believes in `request_epoch`; NONE if this leader may serve it in its
        present epoch.

        It fences both ways: a zombie that still follows an old leader, and a leader that does not know yet that it is
        an old one (R1, E3, KIP-320). For Fetch, ListOffsets and OffsetForLeaderEpoch, from followers and consumers.
        """
        if request_epoch == self.leader_epoch or request_epoch == NO_EPOCH:
            return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        newer = request_epoch > self.leader_epoch
        return ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH

    def is_stale_state(self, state: LeaderAndIsr) -> bool:
        """Return whether a decision of the control plane is no news: old ones arrive late, and twice (KAFKA-9539,
        KIP-570).

        One of the partition epoch that is in force here is an echo. Applying it would forget the pending proposal,
        which is still in flight.
        """
        return state.leader_epoch < self.leader_epoch or state.partition_epoch <= self.partition_epoch

    def is_stale_stop(self, leader_epoch: int) -> bool:
        """Return whether an order to stop, given in `leader_epoch`, is older than what is in force here (KIP-570)."""
        return leader_epoch != NO_EPOCH and leader_epoch < self.leader_epoch

    def is_stale_fetch(self, replica: FollowerReplicaState, broker_epoch: int) -> bool:
        """Return whether a fetch was sent by an earlier incarnation of the follower, which may have held more
        (KIP-903).
        """
        return NO_EPOCH < broker_epoch < replica.broker_epoch

    def accepts_fetched(self, leader_epoch: int, fetch_offset: int) -> bool:
        """Return whether records that were asked for in `leader_epoch` from `fetch_offset` may be appended now."""
        return self.is_follower and leader_epoch == self.leader_epoch and fetch_offset == self.log_end_offset

    # ------------------------------------------------------------------------------------------------- high watermark

    def effective_min_isr(self) -> int:
        """min.insync.replicas, as far as there are that many replicas at all."""
        return min(self.settings.min_insync_replicas, len(self.replicas))

    def is_high_watermark_frozen(self) -> bool:
        """Below min ISR nothing more is committed: the last replica standing may be one that loses it (KAFKA-15583)."""
        return len(self.isr) < self.effective_min_isr()

    def counts_for_high_watermark(self, replica: FollowerReplicaState, now_ms: int) -> bool:
        """Return whether the high watermark waits for this follower: it is in the maximal ISR, or soon asks to be."""
        if replica.in_maximal_isr:
            return True
        return not self.is_out_of_sync(replica, now_ms) and self.is_isr_eligible(replica)

    def next_high_watermark(self, now_ms: int) -> int:
        """The smallest log end of all who count, if that is further than it was; a leader's never goes back (R4)."""
        if self.is_high_watermark_frozen():
            return self.high_watermark
        lowest = self.log_end_offset
        for replica in self.followers.values():
            if replica.log_end_offset < lowest and self.counts_for_high_watermark(replica, now_ms):
                lowest = replica.log_end_offset
        return lowest if lowest > self.high_watermark else self.high_watermark

    def followed_high_watermark(self, leader_high_watermark: int) -> int:
        """A follower's high watermark: the leader's, as far as the follower's own log goes."""
        return min(leader_high_watermark, self.log_end_offset)

    # ------------------------------------------------------------------------------------------------------------ ISR

    def maximal_of(self, committed: tuple[int, ...], proposed: tuple[int, ...]) -> tuple[int, ...]:
        """All who may be in the ISR while a proposal is in flight, since the controller may apply it or not: those to
        be removed until that is confirmed, and those to be added at once (KIP-497).
        """
        return committed + tuple(broker_id for broker_id in proposed if broker_id not in committed)

    def is_followed(self, since_s: float) -> bool:
        """Return whether no other replica led at that time: all others that may lead after this leader have followed it
        since. Each was answered since, and has fetched again in this leader epoch. A leader alone in the ISR has no
        rival to fear (but for unclean elections).
        """
        return all(each.followed_s >= since_s for each in self.followers.values() if each.in_maximal_isr)

    def is_caught_up(self, replica: FollowerReplicaState, now_ms: int) -> bool:
        """At the leader's log end now, or some time within the lag time."""
        if replica.log_end_offset == self.log_end_offset:
            return True
        return now_ms - replica.last_caught_up_ms <= self.settings.replica_lag_time_max_ms

    def is_out_of_sync(self, replica: FollowerReplicaState, now_ms: int) -> bool:
        """Return whether a member of the ISR is to leave it (R2)."""
        return self.is_too_many_behind(replica) or not self.is_caught_up(replica, now_ms)

    def is_too_many_behind(self, replica: FollowerReplicaState) -> bool:
        """The old measure of lag, where it is switched on: by messages, so that any burst throws everybody out
        (R12, KAFKA-1546).
        """
        most = self.settings.replica_lag_max_messages
        return 0 <= most < self.log_end_offset - replica.log_end_offset and replica.log_end_offset != UNKNOWN_OFFSET

    def has_reached_isr(self, replica: FollowerReplicaState) -> bool:
        """Return whether a follower holds all that is committed: its log reaches the high watermark *and* the start of
        this epoch, for a new leader's high watermark lags behind what its predecessor committed (R3, KAFKA-7128).
        """
        return replica.log_end_offset >= self.high_watermark and replica.log_end_offset >= self.epoch_start_offset

    def is_isr_eligible(self, replica: FollowerReplicaState) -> bool:
        """Return whether the controller would let this follower be in the ISR."""
        return self.is_in_service(replica.broker_id) and self.is_same_incarnation(replica)

    def is_in_service(self, broker_id: int) -> bool:
        """Neither fenced nor shutting down: others are about to be removed from every ISR (KIP-841, KAFKA-13916)."""
        return broker_id not in self.brokers.fenced and broker_id not in self.brokers.shutting_down

    def is_same_incarnation(self, replica: FollowerReplicaState) -> bool:
        """Return whether the broker's present incarnation fetched: an earlier one may have held records that the
        present one has lost (KIP-903, KAFKA-14617).
        """
        registered = self.brokers.epochs.get(replica.broker_id)
        if registered is None or replica.broker_epoch == EPOCH_NOT_LEARNT:
            return False
        return replica.broker_epoch in (NO_EPOCH, registered)

    # ----------------------------------------------------------------------------------------------- writes and reads

    def under_min_isr_before_append(self) -> bool:
        """acks=all is refused with NOT_ENOUGH_REPLICAS: asked of the committed ISR, before the append (R7)."""
        return len(self.isr) < self.effective_min_isr()

    def under_min_isr_after(self) -> bool:
        """acks=all is answered NOT_ENOUGH_REPLICAS_AFTER_APPEND: asked of the maximal ISR, once the record is
        committed. The record exists all the same.
        """
        return len(self.maximal_isr) < self.effective_min_isr()

    def latest_offset_available(self) -> bool:
        """Return whether "latest" can be answered: a new leader's high watermark may lag behind what consumers have
        seen. It is no answer before it reaches the epoch's start (R6, KIP-207, KAFKA-2334). Else:
        OFFSET_NOT_AVAILABLE.
        """
        return self.high_watermark >= self.epoch_start_offset

    def last_stable_offset(self, first_unstable_offset: int | None) -> int:
        """Exclusive end for read_committed (R5), given the log's first undecided transactional offset (None: none).

        A transaction that began before the log's start, for its first records were deleted, holds it at that start.
        """
        high_watermark = self.high_watermark
        stable = high_watermark if first_unstable_offset is None else min(high_watermark, first_unstable_offset)
        if stable < self.log_start_offset:
            stable = self.log_start_offset
        assert stable <= high_watermark
        assert high_watermark <= self.log_end_offset
        return stable

    def read_limit(self, isolation: int, first_unstable_offset: int | None) -> int:
        """Exclusive end for a consumer's fetch. (Replicas read to the log's end.) Take it once, before reading: what is
        appended or committed meanwhile belongs to the next fetch (KAFKA-9835, KAFKA-9807).
        """
        if isolation == READ_COMMITTED:
            return self.last_stable_offset(first_unstable_offset)
        return self.high_watermark

    # ----------------------------------------------------------------------------------------------------- truncation

    def divergence(self, epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int) -> Divergence | None:
        """Leader: whether a follower's log parts from this one. If so, answer that, send no records and do not tell
        `follower_fetched`: a log that will be truncated has reached nothing.

        To be asked before whether the offset is beyond the log's end: a follower whose log is too long must learn where
        it parts.
        """
        if last_fetched_epoch == self.leader_epoch and fetch_offset <= self.log_end_offset:
            return None
        return self.settings.truncation.divergence(epochs, last_fetched_epoch, fetch_offset, self.log_end_offset)

    def end_of_epoch(self, epochs: EpochCachePort, epoch: int) -> tuple[int, int]:
        """Leader: the answer to OffsetForLeaderEpoch; (-1, -1) where it knows nothing of that epoch (KAFKA-6857)."""
        return epochs.end_offset_for(epoch, self.log_end_offset)

    def truncation_target(self, epochs: EpochCachePort, epoch: int, end_offset: int) -> int:
        """Follower: where to truncate after the leader's diverging (epoch, end offset)."""
        return truncation.truncation_target(epochs, epoch, end_offset, self.log_end_offset)

    def first_truncation(self, latest_epoch: int | None) -> int | None:
        """Follower: where to truncate before the first fetch of a leader epoch; None: nowhere, the leader will tell."""
        return self.settings.truncation.before_first_fetch(self.high_watermark, latest_epoch)

    def epoch_to_send(self, latest_epoch: int | None) -> int:
        """Follower: the last fetched epoch of its next fetch, by which the leader sees whether the logs part."""
        return self.settings.truncation.epoch_to_send(latest_epoch)

    # ---------------------------------------------------------------------------------------------- deleting records

    def deletion_offset(self, offset: int) -> int | None:
        """Return where the log is to begin after DeleteRecords before `offset` (-1: all that is committed); None:
        refused with OFFSET_OUT_OF_RANGE. Records that are not committed cannot be deleted.
        """
        wanted = self.high_watermark if offset == UNKNOWN_OFFSET else offset
        return wanted if 0 <= wanted <= self.high_watermark else None

    def low_watermark(self) -> int:
        """The smallest log start of the replicas that are in service (those that are fenced cannot be waited for); -1
        while one of them has not reported its own.
        """
        starts = [r.log_start_offset for r in self.followers.values() if r.broker_id not in self.brokers.fenced]
        return min([self.log_start_offset, *starts])
