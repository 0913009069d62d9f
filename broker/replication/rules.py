"""Defines the rules of replication, with one method for each rule. No rule changes any state.

Some released broker once got each of these rules wrong; the rule's docstring says what it protects. The rules are
methods so that a planted bug can replace exactly one rule (`chaos/mutants`), and so that tests can call them directly.
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
"""Is Kafka's isolation level read_committed; read_uncommitted is 0."""

# These two errors mean that the proposal was not applied and that our partition epoch is the newest: only after them is
# it safe to return to the committed ISR (KIP-497, KIP-841).
NOT_APPLIED: Final = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
# The proposal failed because of a newer decision: keep the maximal ISR until metadata with that decision arrives.
AWAIT_METADATA: Final = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NEW_LEADER_ELECTED,
)


class PartitionRules:
    """Holds the state of one partition on one broker, with the rules over that state. `Partition` adds the events that
    change the state.
    """

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
    """Holds the leader's broker id, or NO_NODE if there is no leader."""
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    """Holds the committed ISR: the last ISR that the controller confirmed."""
    maximal_isr: tuple[int, ...]
    """Holds every broker that is in the ISR or may be: the committed members and the members of a pending proposal."""
    replicas: tuple[int, ...]
    pending: ProposeIsr | None
    """Holds the ISR proposal that waits for the controller's response; None if there is none. There is at most one."""

    log_start_offset: int
    log_end_offset: int
    """Holds the log end offset: the offset of the next record."""
    high_watermark: int
    """Holds the high watermark: records below this offset are committed."""
    epoch_start_offset: int
    """Holds the log end offset at which this broker became leader of the current epoch; -1 while it does not lead."""
    followers: dict[int, FollowerReplicaState]
    """Holds the state of every other replica, in assignment order, if this broker leads the partition; is empty
    otherwise.
    """

    # ------------------------------------------------------------------------------------------------------- fencing

    def check_leader_epoch(self, request_epoch: int) -> ErrorCode:
        """Return the error for a request that names `request_epoch`, or NONE if this leader may serve the request in
        its current epoch.

        The check fences both sides: a follower or client that still uses an old leader epoch, and a leader that does
        not know yet that it was replaced (mechanisms R1 and E3, KIP-320). It applies to Fetch, ListOffsets and
        OffsetForLeaderEpoch, from followers and consumers.
        """
        if request_epoch == self.leader_epoch or request_epoch == NO_EPOCH:
            return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        newer = request_epoch > self.leader_epoch
        return ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH

    def is_stale_state(self, state: LeaderAndIsr) -> bool:
        """Return whether a decision of the control plane is outdated: old decisions may arrive late, or twice
        (KAFKA-9539, KIP-570).

        A decision with the partition epoch in force here is a repetition. Applying it would drop the pending proposal,
        which is still in flight.
        """
        return state.leader_epoch < self.leader_epoch or state.partition_epoch <= self.partition_epoch

    def is_stale_stop(self, leader_epoch: int) -> bool:
        """Return whether an order to stop the replica has an older leader epoch than the replica (KIP-570)."""
        return leader_epoch != NO_EPOCH and leader_epoch < self.leader_epoch

    def is_stale_fetch(self, replica: FollowerReplicaState, broker_epoch: int) -> bool:
        """Return whether a fetch came from an earlier incarnation of the follower, whose log may have been longer
        (KIP-903).
        """
        return NO_EPOCH < broker_epoch < replica.broker_epoch

    def accepts_fetched(self, leader_epoch: int, fetch_offset: int) -> bool:
        """Return whether the response to a fetch may still be applied: this replica must be a follower in the request's
        `leader_epoch`, and its log must still end at `fetch_offset`.
        """
        return self.is_follower and leader_epoch == self.leader_epoch and fetch_offset == self.log_end_offset

    # ------------------------------------------------------------------------------------------------- high watermark

    def effective_min_isr(self) -> int:
        """Return min.insync.replicas, but at most the number of replicas."""
        return min(self.settings.min_insync_replicas, len(self.replicas))

    def is_high_watermark_frozen(self) -> bool:
        """Return whether the high watermark must not advance, because the ISR is smaller than min.insync.replicas.
        Otherwise records would be committed that too few replicas hold, and could be lost (KAFKA-15583).
        """
        return len(self.isr) < self.effective_min_isr()

    def counts_for_high_watermark(self, replica: FollowerReplicaState, now_ms: int) -> bool:
        """Return whether the high watermark waits for this follower: it is in the maximal ISR, or will soon be proposed
        for it.
        """
        if replica.in_maximal_isr:
            return True
        return not self.is_out_of_sync(replica, now_ms) and self.is_isr_eligible(replica)

    def next_high_watermark(self, now_ms: int) -> int:
        """Return the new high watermark: the smallest log end offset of the leader and of the followers that count
        (`counts_for_high_watermark`). If that is lower, or the high watermark is frozen, return the current one: a
        leader's high watermark never moves back (mechanism R4).
        """
        if self.is_high_watermark_frozen():
            return self.high_watermark
        lowest = self.log_end_offset
        for replica in self.followers.values():
            # The cheap comparison first: this runs for every fetch of every follower.
            if replica.log_end_offset < lowest and self.counts_for_high_watermark(replica, now_ms):
                lowest = replica.log_end_offset
        return lowest if lowest > self.high_watermark else self.high_watermark

    def followed_high_watermark(self, leader_high_watermark: int) -> int:
        """Return a follower's high watermark: the leader's high watermark, but at most the follower's log end offset.
        """
        return min(leader_high_watermark, self.log_end_offset)

    # ------------------------------------------------------------------------------------------------------------ ISR

    def maximal_of(self, committed: tuple[int, ...], proposed: tuple[int, ...]) -> tuple[int, ...]:
        """Return all brokers that may be in the ISR while a proposal is in flight, because the controller may apply the
        proposal or not: members to be removed count until the removal is confirmed, and members to be added count at
        once (KIP-497).
        """
        return committed + tuple(broker_id for broker_id in proposed if broker_id not in committed)

    def is_followed(self, since_s: float) -> bool:
        """Return whether every other member of the maximal ISR still followed this leader at `since_s` (monotonic
        seconds). A follower proves this if it got a response at that time or later, and then fetched again in this
        leader epoch. If all did so, no other broker was the leader at that time, because only these replicas could be
        elected.

        Return True if this leader is alone in the ISR: only an unclean election could replace it.
        """
        return all(each.followed_s >= since_s for each in self.followers.values() if each.in_maximal_isr)

    def is_caught_up(self, replica: FollowerReplicaState, now_ms: int) -> bool:
        """Return whether the follower is at the leader's log end offset, or was caught up at most
        replica.lag.time.max.ms ago.
        """
        if replica.log_end_offset == self.log_end_offset:
            return True
        return now_ms - replica.last_caught_up_ms <= self.settings.replica_lag_time_max_ms

    def is_out_of_sync(self, replica: FollowerReplicaState, now_ms: int) -> bool:
        """Return whether a follower lags too much for the ISR: by more than replica.lag.time.max.ms, or by more
        messages than replica.lag.max.messages if that is set (mechanism R2).
        """
        return self.is_too_many_behind(replica) or not self.is_caught_up(replica, now_ms)

    def is_too_many_behind(self, replica: FollowerReplicaState) -> bool:
        """Return whether the follower lags by more than replica.lag.max.messages; False if that old limit is off. A
        limit in messages makes any burst remove all followers (mechanism R12, KAFKA-1546).
        """
        most = self.settings.replica_lag_max_messages
        return 0 <= most < self.log_end_offset - replica.log_end_offset and replica.log_end_offset != UNKNOWN_OFFSET

    def has_reached_isr(self, replica: FollowerReplicaState) -> bool:
        """Return whether a follower holds all committed records: its log end offset has reached both the high watermark
        and the start of this leader epoch. The start matters because a new leader's high watermark may be lower than
        the high watermark of the leader before (mechanism R3, KAFKA-7128).
        """
        return replica.log_end_offset >= self.high_watermark and replica.log_end_offset >= self.epoch_start_offset

    def is_isr_eligible(self, replica: FollowerReplicaState) -> bool:
        """Return whether the controller would accept this follower in the ISR: its broker is in service, and its
        fetches came from the broker's current incarnation.
        """
        return self.is_in_service(replica.broker_id) and self.is_same_incarnation(replica)

    def is_in_service(self, broker_id: int) -> bool:
        """Return whether a broker is neither fenced nor shutting down. The controller removes all other brokers from
        every ISR (KIP-841, KAFKA-13916).
        """
        return broker_id not in self.brokers.fenced and broker_id not in self.brokers.shutting_down

    def is_same_incarnation(self, replica: FollowerReplicaState) -> bool:
        """Return whether the fetches came from the broker's current incarnation. An earlier incarnation may have held
        records that the current incarnation has lost (KIP-903, KAFKA-14617).
        """
        registered = self.brokers.epochs.get(replica.broker_id)
        if registered is None or replica.broker_epoch == EPOCH_NOT_LEARNT:
            return False
        return replica.broker_epoch in (NO_EPOCH, registered)

    # ----------------------------------------------------------------------------------------------- writes and reads

    def under_min_isr_before_append(self) -> bool:
        """Return whether a Produce with acks=all is refused with NOT_ENOUGH_REPLICAS. The check uses the committed ISR,
        before the append (mechanism R7).
        """
        return len(self.isr) < self.effective_min_isr()

    def under_min_isr_after(self) -> bool:
        """Return whether a Produce with acks=all is answered with NOT_ENOUGH_REPLICAS_AFTER_APPEND. The check uses the
        maximal ISR, once the record is committed. The record stays in the log all the same.
        """
        return len(self.maximal_isr) < self.effective_min_isr()

    def latest_offset_available(self) -> bool:
        """Return whether ListOffsets may answer the latest offset; if not, it answers OFFSET_NOT_AVAILABLE. A new
        leader's high watermark may be lower than offsets that consumers have seen, until it reaches the start of the
        leader epoch (mechanism R6, KIP-207, KAFKA-2334).
        """
        return self.high_watermark >= self.epoch_start_offset

    def last_stable_offset(self, first_unstable_offset: int | None) -> int:
        """Return the last stable offset, the exclusive end of reads with read_committed (mechanism R5).
        `first_unstable_offset` is the first offset of an undecided transaction in the log, or None if there is none.

        If a transaction's first records were deleted, the last stable offset is the log start offset.
        """
        high_watermark = self.high_watermark
        stable = high_watermark if first_unstable_offset is None else min(high_watermark, first_unstable_offset)
        if stable < self.log_start_offset:
            stable = self.log_start_offset
        assert stable <= high_watermark
        assert high_watermark <= self.log_end_offset
        return stable

    def read_limit(self, isolation: int, first_unstable_offset: int | None) -> int:
        """Return the exclusive end offset of a consumer's fetch. (Followers read up to the log end offset.) Compute it
        once, before reading: records appended or committed during the read belong to the next fetch (KAFKA-9835,
        KAFKA-9807).
        """
        if isolation == READ_COMMITTED:
            return self.last_stable_offset(first_unstable_offset)
        return self.high_watermark

    # ----------------------------------------------------------------------------------------------------- truncation

    def divergence(self, epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int) -> Divergence | None:
        """Return where a follower's log diverges from this leader's log, or None if it does not. On a divergence,
        answer it without records and do not call `follower_fetched`: the fetch offset proves nothing about a log that
        will be truncated.

        Check this before the log end offset: a follower whose log is too long must learn where it diverges.
        """
        # Only this leader wrote records of this epoch, so a log that ends with one of them is a prefix of this log.
        if last_fetched_epoch == self.leader_epoch and fetch_offset <= self.log_end_offset:
            return None
        return self.settings.truncation.divergence(epochs, last_fetched_epoch, fetch_offset, self.log_end_offset)

    def end_of_epoch(self, epochs: EpochCachePort, epoch: int) -> tuple[int, int]:
        """Return the leader's answer to OffsetForLeaderEpoch: (epoch, end offset), or (-1, -1) if the epoch is unknown
        (KAFKA-6857).
        """
        return epochs.end_offset_for(epoch, self.log_end_offset)

    def truncation_target(self, epochs: EpochCachePort, epoch: int, end_offset: int) -> int:
        """Return the offset to which a follower truncates, given the leader's diverging epoch and its end offset."""
        return truncation.truncation_target(epochs, epoch, end_offset, self.log_end_offset)

    def first_truncation(self, latest_epoch: int | None) -> int | None:
        """Return the offset to which a follower truncates before its first fetch in a leader epoch, or None to keep the
        log until the leader reports a divergence.
        """
        return self.settings.truncation.before_first_fetch(self.high_watermark, latest_epoch)

    def epoch_to_send(self, latest_epoch: int | None) -> int:
        """Return the last fetched epoch that a follower sends in its next fetch. The leader detects a divergence of the
        logs by this epoch.
        """
        return self.settings.truncation.epoch_to_send(latest_epoch)

    # ---------------------------------------------------------------------------------------------- deleting records

    def deletion_offset(self, offset: int) -> int | None:
        """Return the new log start offset for a DeleteRecords before `offset` (-1: up to the high watermark), or None
        for OFFSET_OUT_OF_RANGE. Uncommitted records cannot be deleted.
        """
        wanted = self.high_watermark if offset == UNKNOWN_OFFSET else offset
        return wanted if 0 <= wanted <= self.high_watermark else None

    def low_watermark(self) -> int:
        """Return the smallest log start offset of the replicas that are not fenced, or -1 while one of them has not
        reported its own.
        """
        starts = [r.log_start_offset for r in self.followers.values() if r.broker_id not in self.brokers.fenced]
        return min([self.log_start_offset, *starts])
