"""Implements one replica of a partition as a pure state machine: leader, follower or neither. An event and the time go
in, effects come out.

The control plane decides which broker leads (`become_leader`, `become_follower`, `stop`); fetches decide which replicas
are in sync; the smallest log end offset of the in-sync replicas decides what is committed (mechanisms R4 and R10 in
docs/mechanisms.md). The rules themselves are in `rules`.

Times are monotonic milliseconds of this node. The caller carries out the effects in order, before the partition's next
event.
"""

from __future__ import annotations

from math import inf

from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.ids import NO_NODE
from squall.broker.replication.replica import NEVER_MS, FollowerReplicaState
from squall.broker.replication.rules import AWAIT_METADATA, NOT_APPLIED, PartitionRules
from squall.broker.replication.truncation import EpochCachePort
from squall.broker.replication.values import (
    NO_EFFECTS,
    NO_EPOCH,
    AdvanceLogStart,
    BrokerStatuses,
    Effect,
    Effects,
    FetchRefused,
    HighWatermarkMoved,
    IsrChanged,
    LeaderAndIsr,
    LeadershipLost,
    ProposeIsr,
    ReplicationSettings,
    RetryIsrProposal,
    StartFetching,
    StopFetching,
    TruncateFullyAndStartAt,
    TruncateTo,
    WriteLeaderEpoch,
)

_NO_BROKERS = BrokerStatuses()
# In the same leader epoch a follower may know of an assignment before its leader does: it retries on this error.
_NOT_A_REPLICA: Effects = (FetchRefused(ErrorCode.UNKNOWN_LEADER_EPOCH),)
_EARLIER_INCARNATION: Effects = (FetchRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER),)


class Partition(PartitionRules):
    """Holds the state of one replica of a partition. Other code may read it; only the event methods change it."""

    __slots__ = ()

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        local_id: int,
        settings: ReplicationSettings,
        brokers: BrokerStatuses = _NO_BROKERS,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.local_id = local_id
        self.settings = settings
        self.brokers = brokers
        self.is_leader = False
        self.is_follower = False
        self.leader_id = NO_NODE
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.isr = self.maximal_isr = self.replicas = ()
        self.pending = None
        self.followers = {}
        self.log_start_offset = self.log_end_offset = self.high_watermark = 0
        self.epoch_start_offset = -1

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower" if self.is_follower else "idle"
        return f"<{self.topic}-{self.index} on {self.local_id}: {role} epoch {self.leader_epoch}>"

    # -------------------------------------------------------------------------------------------------- the local log

    def opened(self, log_start_offset: int, log_end_offset: int, high_watermark: int) -> None:
        """Set the offsets of the local log after it was created or recovered. `high_watermark` is the checkpointed high
        watermark (0 if there is none).

        The checkpoint may be ahead of a log that lost its unsynced tail, or behind a log whose start has moved since.
        Then the high watermark is moved to the log's end or start.
        """
        assert 0 <= log_start_offset <= log_end_offset
        assert not self.is_leader
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = min(max(high_watermark, log_start_offset), log_end_offset)
        self._check()

    def appended(self, log_end_offset: int, now_ms: int) -> Effects:
        """Record that the local log ends at `log_end_offset` (exclusive) after an append. Every append calls this."""
        assert log_end_offset >= self.log_end_offset
        assert self.high_watermark <= self.log_end_offset
        self.log_end_offset = log_end_offset
        if not self.is_leader:
            return NO_EFFECTS
        return self._advance(now_ms)

    def log_start_moved(self, log_start_offset: int) -> None:
        """Record that retention, DeleteRecords or the leader has removed the records below `log_start_offset`."""
        assert self.log_start_offset <= log_start_offset
        assert log_start_offset <= self.high_watermark
        self.log_start_offset = log_start_offset
        self._check()

    def truncated(self, to: int) -> None:
        """Record that the log was truncated to offset `to`, as `TruncateTo` asked. A batch cannot be cut in two, so
        `to` may be lower than requested, and even lower than the log start offset, which then moves back as well.
        """
        assert self.is_follower
        assert 0 <= to <= self.log_end_offset
        self.log_end_offset = to
        self.log_start_offset = min(self.log_start_offset, to)
        self.high_watermark = min(self.high_watermark, to)
        self._check()

    def restarted(self, at: int) -> None:
        """Set the log's offsets after it was emptied and restarted at `at`, as `TruncateFullyAndStartAt` asked. Records
        below `at` count as committed, because the leader has deleted them, and only committed records are deleted.
        """
        assert self.is_follower
        assert at >= 0
        self.log_start_offset = self.log_end_offset = self.high_watermark = at
        self._check()

    # ---------------------------------------------------------------------------------------------- the control plane

    def become_leader(self, state: LeaderAndIsr, log_end_offset: int, now_ms: int) -> Effects:
        """Make this broker the leader, or apply a new state to a partition that it leads already, as the control plane
        decided.
        """
        assert state.leader == self.local_id
        assert self.local_id in state.isr
        assert self.local_id in state.replicas
        self._check()
        if self.is_stale_state(state):
            return NO_EFFECTS
        assert log_end_offset >= self.log_end_offset
        effects: list[Effect] = [StopFetching()] if self.is_follower else []
        new_epoch = state.leader_epoch > self.leader_epoch or not self.is_leader
        self.is_leader, self.is_follower = True, False
        self.log_end_offset = log_end_offset
        before = self.isr, self.maximal_isr
        self._apply_state(state)
        self._track_followers(new_epoch, now_ms)
        if new_epoch:
            # Needed even for an epoch without records: a follower that asks for it must learn where it starts.
            self.epoch_start_offset = log_end_offset
            effects.append(WriteLeaderEpoch(state.leader_epoch, log_end_offset))
        elif before != (self.isr, self.maximal_isr):
            effects.append(self._isr_changed())
        effects += self._advance(now_ms)
        self._check()
        return tuple(effects)

    def become_follower(self, state: LeaderAndIsr, log_end_offset: int, now_ms: int) -> Effects:
        """Make another broker the leader (or no broker), or apply a new state to a partition that this broker does not
        lead.

        The replica starts fetching anew in every leader epoch, even from the same leader: the logs may diverge in each
        epoch.
        """
        assert state.leader != self.local_id
        self._check()
        if self.is_stale_state(state):
            return NO_EFFECTS
        assert log_end_offset >= self.log_end_offset
        effects: list[Effect] = [LeadershipLost(self.leader_epoch)] if self.is_leader else []
        new_epoch = state.leader_epoch > self.leader_epoch or not self.is_follower
        self._leave_leadership()
        self.is_follower = True
        self.log_end_offset = log_end_offset
        self._apply_state(state)
        if new_epoch:
            has_leader = state.leader != NO_NODE
            effects.append(StartFetching(state.leader, state.leader_epoch) if has_leader else StopFetching())
        self._check()
        return tuple(effects)

    def stop(self) -> Effects:
        """Stop this replica, because the control plane no longer assigns it to this broker."""
        self._check()
        effects: list[Effect] = [LeadershipLost(self.leader_epoch)] if self.is_leader else []
        if self.is_follower:
            effects.append(StopFetching())
        self._leave_leadership()
        self.is_follower = False
        self.leader_id = NO_NODE
        self._check()
        return tuple(effects)

    def brokers_changed(self, brokers: BrokerStatuses, now_ms: int) -> Effects:
        """Apply newer metadata of the brokers: the high watermark no longer waits for brokers not in service."""
        self.brokers = brokers
        return self._advance(now_ms) if self.is_leader else NO_EFFECTS

    def expect(self, settings: ReplicationSettings) -> None:
        """Adopt `settings` if their min.insync.replicas is larger. Call this before `become_leader`, so that a new
        leader does not commit records under an older, smaller value. Only `settings_changed` adopts a smaller value,
        because it may have been set after the election.
        """
        if settings.min_insync_replicas > self.settings.min_insync_replicas:
            self.settings = settings

    def settings_changed(self, settings: ReplicationSettings, now_ms: int) -> Effects:
        """Apply the topic's altered settings. A smaller min.insync.replicas may let the leader's high watermark
        advance.
        """
        self.settings = settings
        return self._advance(now_ms) if self.is_leader else NO_EFFECTS

    def isr_accepted(
        self, proposal: ProposeIsr, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...], now_ms: int
    ) -> Effects:
        """Apply the partition state that the controller returned for the ISR change `proposal`."""
        if proposal is not self.pending or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return NO_EFFECTS
        assert self.is_leader
        assert self.local_id in isr
        self.partition_epoch = partition_epoch
        self.isr = isr
        self._set_pending(None)
        effects = (self._isr_changed(), *self._advance(now_ms))
        self._check()
        return effects

    def isr_rejected(self, proposal: ProposeIsr, error: ErrorCode, now_ms: int) -> Effects:
        """Handle the error with which the ISR change `proposal` ended. If the controller refused the proposal
        (INELIGIBLE_REPLICA, for example), drop it. If the controller has made a newer decision (NEW_LEADER_ELECTED, for
        example), wait for the metadata with that decision. After any other error (REQUEST_TIMED_OUT, for example) the
        outcome is unknown: ask to send the proposal again.

        This relies on a controller that handles the attempts of a proposal in the order in which they were sent: if one
        attempt was refused, no earlier attempt can be applied any more.
        """
        if proposal is not self.pending:
            return NO_EFFECTS
        assert self.is_leader
        assert error != ErrorCode.NONE
        if error in NOT_APPLIED:
            self._set_pending(None)
            effects = (self._isr_changed(), *self._advance(now_ms))
            self._check()
            return effects
        if error in AWAIT_METADATA:
            return NO_EFFECTS
        return (RetryIsrProposal(proposal),)

    # ------------------------------------------------------------------------------------------------------ as leader

    def follower_fetched(
        self, replica_id: int, fetch_offset: int, replica_broker_epoch: int, now_ms: int, last_response_s: float = -inf
    ) -> Effects:
        """Record that a follower fetched from `fetch_offset`: its log holds all records below. This is called for every
        fetch.

        `last_response_s` is the time at which this leader answered the follower's previous fetch. This fetch proves
        that the follower still followed this leader at that time. It does not prove that the follower follows now: the
        fetch may have waited in a socket while this node was paused.

        Call this only after `check_leader_epoch`, `divergence` and the range check have passed, in this order.
        """
        assert self.is_leader
        assert 0 <= fetch_offset <= self.log_end_offset
        replica = self.followers.get(replica_id)
        if replica is None:
            return _NOT_A_REPLICA
        if self.is_stale_fetch(replica, replica_broker_epoch):
            return _EARLIER_INCARNATION
        replica.broker_epoch = replica_broker_epoch
        self._update_caught_up(replica, fetch_offset, now_ms)
        if last_response_s > replica.followed_s:
            replica.followed_s = last_response_s
        moved = replica.log_end_offset != fetch_offset
        replica.log_end_offset = fetch_offset
        # One proposal at a time: the next one has to name the partition epoch that the answer brings.
        joining = NO_EFFECTS if replica.in_maximal_isr or self.pending is not None else self._maybe_expand_isr(replica)
        # Only a follower that fetches above the high watermark can let it move.
        if moved and fetch_offset > self.high_watermark:
            return joining + self._advance(now_ms)
        return joining

    def set_follower_log_start(self, replica_id: int, log_start_offset: int) -> None:
        """Set the log start offset that a follower reported in a fetch that `follower_fetched` accepted. This is called
        only while a DeleteRecords waits for the low watermark.
        """
        assert self.is_leader
        replica = self.followers.get(replica_id)
        if replica is not None:
            replica.log_start_offset = log_start_offset

    def tick(self, now_ms: int) -> Effects:
        """Remove lagging members from the ISR. Call this twice per lag time, so that no follower lags for more than 1.5
        lag times before it is removed.
        """
        self._check()
        if not self.is_leader:
            return NO_EFFECTS
        shrink = self._maybe_shrink_isr(now_ms) if self.pending is None else NO_EFFECTS
        # The high watermark waits for followers that caught up lately, even outside the ISR, so time can move it.
        return shrink + self._advance(now_ms)

    def _update_caught_up(self, replica: FollowerReplicaState, fetch_offset: int, now_ms: int) -> None:
        """Record when a follower was last caught up: now if it fetches at the leader's log end offset; at the time of
        its previous fetch if it has now reached the log end offset that the leader had then. So a steady stream of
        writes does not make a follower look late (KIP-16).
        """
        if fetch_offset >= self.log_end_offset:
            replica.last_caught_up_ms = now_ms
        elif fetch_offset >= replica.last_fetch_leader_end and replica.last_fetch_ms > replica.last_caught_up_ms:
            replica.last_caught_up_ms = replica.last_fetch_ms
        replica.last_fetch_ms = now_ms
        replica.last_fetch_leader_end = self.log_end_offset

    def _maybe_expand_isr(self, replica: FollowerReplicaState) -> Effects:
        if not self.has_reached_isr(replica) or not self.is_isr_eligible(replica):
            return NO_EFFECTS
        return self._propose((*self.isr, replica.broker_id), f"{replica.broker_id} has caught up")

    def _maybe_shrink_isr(self, now_ms: int) -> Effects:
        lagging = [
            replica.broker_id
            for replica in self.followers.values()
            if replica.in_maximal_isr and self.is_out_of_sync(replica, now_ms)
        ]
        if not lagging:
            return NO_EFFECTS
        reason = ", ".join(self._lag_reason(self.followers[broker_id]) for broker_id in lagging)
        return self._propose(tuple(broker_id for broker_id in self.isr if broker_id not in lagging), reason)

    def _lag_reason(self, replica: FollowerReplicaState) -> str:
        if self.is_too_many_behind(replica):
            return f"{replica.broker_id} is {self.log_end_offset - replica.log_end_offset} messages behind"
        return f"{replica.broker_id} has not caught up in time"

    def _propose(self, isr: tuple[int, ...], reason: str) -> Effects:
        assert self.pending is None
        assert self.local_id in isr
        with_epochs = tuple((broker_id, self._broker_epoch(broker_id)) for broker_id in isr)
        proposal = ProposeIsr(self.leader_epoch, self.partition_epoch, with_epochs, reason)
        self._set_pending(proposal)
        assert self.local_id in self.maximal_isr
        return proposal, self._isr_changed()

    def _broker_epoch(self, broker_id: int) -> int:
        if broker_id == self.local_id:
            return self.brokers.epochs.get(broker_id, NO_EPOCH)
        # An ISR member that has not fetched in this leader epoch is proposed without a broker epoch: it is not new.
        replica = self.followers.get(broker_id)
        return max(NO_EPOCH, replica.broker_epoch) if replica is not None else NO_EPOCH

    def _advance(self, now_ms: int) -> Effects:
        """Move the leader's high watermark as far as the in-sync replicas permit."""
        high_watermark = self.next_high_watermark(now_ms)
        if high_watermark == self.high_watermark:
            return NO_EFFECTS
        assert self.high_watermark < high_watermark
        assert high_watermark <= self.log_end_offset
        self.high_watermark = high_watermark
        return (HighWatermarkMoved(high_watermark),)

    # ---------------------------------------------------------------------------------------------------- as follower

    def apply_leader_offsets(self, high_watermark: int, log_start_offset: int, log_end_offset: int) -> Effects:
        """Apply the high watermark and log start offset of a fetch response, after its records were appended to the
        local log, which now ends at `log_end_offset`.

        Call this only if `accepts_fetched` was true before the records were appended.
        """
        assert self.is_follower
        assert log_end_offset >= self.log_end_offset
        self.log_end_offset = log_end_offset
        mine = self.followed_high_watermark(high_watermark)
        # A new leader's high watermark may be lower than its predecessor's, but not lower than our log start offset.
        self.high_watermark = max(mine, self.log_start_offset)
        assert self.log_start_offset <= self.high_watermark
        assert self.high_watermark <= log_end_offset
        # This replica may be behind the leader's log start: it deletes these records once it has them as committed.
        log_start = min(log_start_offset, self.high_watermark)
        if log_start > self.log_start_offset:
            return (AdvanceLogStart(log_start),)
        return NO_EFFECTS

    def prepare_to_fetch(self, latest_epoch: int | None) -> Effects:
        """Return the truncation that must precede the first fetch of this leader epoch, if any. `latest_epoch` is the
        latest epoch in the log, or None if the log has none.
        """
        assert self.is_follower
        target = self.first_truncation(latest_epoch)
        assert target is None or 0 <= target <= self.log_end_offset
        if target is None or target == self.log_end_offset:
            return NO_EFFECTS
        return (TruncateTo(target, "before the first fetch"),)

    def diverged(self, epochs: EpochCachePort, epoch: int, end_offset: int) -> Effects:
        """Ask for a truncation, because the leader answered that this log diverges from its own. Both logs agree at
        most up to `end_offset` (exclusive) of the leader epoch `epoch`.

        Raises MalformedFrame if the epoch or the offset is negative: a leader that cannot find the divergence answers
        OFFSET_OUT_OF_RANGE instead.
        """
        assert self.is_follower
        if epoch < 0 or end_offset < 0:
            raise MalformedFrame(f"logs cannot part at {end_offset} of epoch {epoch}")
        target = self.truncation_target(epochs, epoch, end_offset)
        assert target <= self.log_end_offset
        reason = f"the leader's epoch {epoch} ends at {end_offset}"
        if target < self.log_start_offset:
            return (TruncateFullyAndStartAt(target, reason),)
        return (TruncateTo(target, reason),)

    def out_of_range(self, leader_log_start: int, leader_log_end: int) -> Effects:
        """Handle OFFSET_OUT_OF_RANGE from the leader, whose log spans [leader_log_start, leader_log_end) according to
        ListOffsets.

        If the local log is longer than the leader's log, truncate it at the leader's end instead of dropping it:
        handling "too new" as "too old" could delete the only copy of records (KAFKA-2143).
        """
        assert self.is_follower
        assert 0 <= leader_log_start
        assert 0 <= leader_log_end
        if leader_log_end < self.log_end_offset:
            reason = f"the leader's log ends at {leader_log_end}"
            if leader_log_end < self.log_start_offset:
                return (TruncateFullyAndStartAt(leader_log_end, reason),)
            return (TruncateTo(leader_log_end, reason),)
        if leader_log_start > self.log_end_offset:
            return (TruncateFullyAndStartAt(leader_log_start, f"the leader's log starts at {leader_log_start}"),)
        return NO_EFFECTS  # the offset is in range by now: fetch again

    # ---------------------------------------------------------------------------------------------------------- state

    def _check(self) -> None:
        """Assert the invariants that hold before and after every event. Frequent events assert only what they change.
        """
        assert 0 <= self.log_start_offset
        assert self.log_start_offset <= self.high_watermark
        assert self.high_watermark <= self.log_end_offset
        assert not (self.is_leader and self.is_follower)
        if not self.is_leader:
            assert not self.followers
            assert self.pending is None
            assert self.epoch_start_offset == -1
            return
        assert self.leader_id == self.local_id
        assert self.local_id in self.isr
        assert self.local_id not in self.followers
        assert len(self.followers) == len(self.replicas) - 1
        assert 0 <= self.epoch_start_offset <= self.log_end_offset
        assert self.pending is None or self.pending.leader_epoch == self.leader_epoch

    def _apply_state(self, state: LeaderAndIsr) -> None:
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas
        self.isr = state.isr
        self._set_pending(None)

    def _set_pending(self, proposal: ProposeIsr | None) -> None:
        self.pending = proposal
        self.maximal_isr = self.isr if proposal is None else self.maximal_of(self.isr, proposal.members)
        for replica in self.followers.values():
            replica.in_maximal_isr = replica.broker_id in self.maximal_isr

    def _track_followers(self, new_epoch: bool, now_ms: int) -> None:
        """Keep one `FollowerReplicaState` for each other replica, reset in a new leader epoch: fetch offsets that a
        replica sent to another leader, or before an election, say nothing about the logs of this epoch.
        """
        known = self.followers
        self.followers = {}
        for broker_id in self.replicas:
            if broker_id == self.local_id:
                continue
            replica = known.get(broker_id) or FollowerReplicaState(broker_id)
            if new_epoch:
                # A member of the ISR has a whole lag time for its first fetch. Any other replica has to catch up first.
                replica.forget(now_ms if broker_id in self.isr else NEVER_MS)
            replica.in_maximal_isr = broker_id in self.maximal_isr
            self.followers[broker_id] = replica

    def _leave_leadership(self) -> None:
        self.is_leader = False
        self.epoch_start_offset = -1
        self.followers = {}
        self._set_pending(None)

    def _isr_changed(self) -> IsrChanged:
        return IsrChanged(self.leader_epoch, self.partition_epoch, self.isr, self.maximal_isr)
