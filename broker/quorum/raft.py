"""Implements one node of the metadata quorum: Raft in which followers fetch, as in KRaft (C2 in docs/mechanisms.md).

The code does no I/O: `step` takes a message, `tick` the time, `propose` a batch of the leader's; `ready` returns the
effects (see `effects.Ready` for the order). The caller keeps the log; the core knows only its offsets and epochs.

These rules make it safe, in these places:
- one vote per epoch, durable before it is answered: `_may_grant`, `QuorumMembership.move_to`, `Ready.state`
- a vote only for a log that ends no earlier than the voter's: `_may_grant`
- a record is committed once it and the epoch's first record are durable on a majority: `LeaderState.committed_offset`
- a follower's log is a prefix of the leader's, or is truncated by epoch: `LogExtent.agrees`, `LocalLogModel.truncate`
- a node that gave up an epoch's leadership never leads that epoch again, even after a restart: Role.RESIGNED
- a leader notices that a majority has left it: `_check_quorum` (KAFKA-15489)
- a snapshot holds the committed records trimmed from the log: `snapshot_taken`, `_on_snapshot_reply` (KIP-630)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.quorum.effects import Ready
from squall.broker.quorum.election import Role, VoteTally
from squall.broker.quorum.membership import QuorumMembership
from squall.broker.quorum.messages import (
    BeginEpoch,
    BeginEpochReply,
    EndEpoch,
    EndEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    QuorumMessage,
    Reply,
    Request,
    SnapshotId,
    Vote,
    VoteReply,
)
from squall.broker.quorum.outbox import NEVER
from squall.broker.quorum.state import QuorumState

if TYPE_CHECKING:
    import random

    from squall.broker.quorum.leadership import LeaderState
    from squall.broker.quorum.log_extent import LogExtent
    from squall.broker.quorum.settings import QuorumSettings


class Raft:
    """Implements one quorum member. Every public method with `now_ms` may make effects, which `ready` returns."""

    def __init__(
        self,
        settings: QuorumSettings,
        rng: random.Random,
        state: QuorumState,
        log: LogExtent,
        now_ms: int,
        snapshot: SnapshotId | None = None,
    ) -> None:
        """Begin with `state`, `log` and the newest `snapshot` from disk; no record of the log is known to be synced."""
        self.member = member = QuorumMembership(settings, rng, state, log, snapshot)
        self.node_id, self.log = settings.node_id, log
        self._settings, self._timers = settings, member.timers
        self._local, self._outbox, self._following = member.local, member.outbox, member.following
        self._boot(now_ms)

    # ------------------------------------------------------------------------------------------------ for the caller

    @property
    def role(self) -> Role:
        """Return this node's role in its epoch."""
        return self.member.role

    @property
    def epoch(self) -> int:
        """Returns this node's epoch."""
        return self.member.state.epoch

    @property
    def leader_id(self) -> int:
        """Returns the epoch's leader; NO_NODE if this node knows none, or led the epoch itself and has resigned."""
        return self.member.leader_id

    @property
    def leadership(self) -> LeaderState | None:
        """Returns the leader's state while this node leads, else None."""
        return self.member.leadership

    @property
    def high_watermark(self) -> int:
        """Returns the offset before which, as far as this node knows, everything is committed. It never decreases."""
        return self.member.high_watermark

    @property
    def snapshot(self) -> SnapshotId | None:
        """Returns the newest snapshot of this node, which is durable and holds only committed records."""
        return self.member.snapshot

    @property
    def majority_timeout_ms(self) -> int:
        """Return the time (ms) after which a leader without fetches from a majority resigns (KAFKA-15489)."""
        return self._timers.for_majority()

    def ms_without_majority(self, now_ms: int) -> int:
        """Return for how long no majority has fetched from this leader, in ms; 0 if this node does not lead."""
        leadership = self.member.leadership
        return now_ms - leadership.majority_heard_ms(now_ms) if leadership is not None else 0

    @property
    def wants_sync(self) -> bool:
        """Is True while the log has records that are not known to be durable."""
        return not self._local.is_synced

    def next_deadline_ms(self) -> int:
        """Return when `tick` must be called next."""
        parked_ms = self.leadership.next_deadline_ms() if self.leadership is not None else NEVER
        return min(self.member.deadline_ms, self._outbox.next_due_ms(), parked_ms)

    def ready(self) -> Ready | None:
        """Return the effects to carry out now, or None. Each effect is returned once."""
        if not (self._outbox.messages or self._local.ops or self.member.persist or self.member.notes):
            return None
        state = self.member.state if self.member.persist else None
        ready = Ready(state, self._local.take_ops(), self._outbox.take(), tuple(self.member.notes))
        self.member.persist, self.member.notes = False, []
        return ready

    def step(self, message: QuorumMessage, now_ms: int) -> None:
        """Handle a request of another node, or the reply to a request of this node."""
        assert message.receiver == self.node_id, f"message for {message.receiver} came to {self.node_id}"
        match message.body:
            case Fetch() as fetch:
                self._on_fetch(message, fetch, now_ms)
            case Vote() as vote:
                self._on_vote(message, vote, now_ms)
            case BeginEpoch(epoch):
                self._on_begin_epoch(message, epoch, now_ms)
            case EndEpoch(epoch, successors):
                self._on_end_epoch(message, epoch, successors, now_ms)
            case FetchSnapshot() as fetch_snapshot:
                self._on_fetch_snapshot(message, fetch_snapshot, now_ms)
            case reply:
                self._on_reply(message, reply, now_ms)
        self._settle(now_ms)

    def failed(self, receiver: int, ticket: int, now_ms: int) -> None:
        """Note that a request of this node ended without a reply: not sent, timed out, or the connection broke."""
        assert receiver != self.node_id, "no request of ours goes to ourselves"
        if not self._outbox.ended(receiver, ticket):
            return
        if self.member.tally is not None:
            self._count_vote(self.member.tally, receiver, None, now_ms)
        elif self.leadership is not None:
            self._outbox.due(receiver, now_ms + self._settings.fetch_timeout_ms // 8)
        elif self._following.probing:
            self.member.probe_next(now_ms + self._settings.retry_backoff_ms)
        elif self.role is not Role.RESIGNED:  # EndEpoch is sent once: a voter that missed it learns from its fetch.
            self._outbox.due(receiver, now_ms + self._outbox.backoff_ms(receiver))
        self._settle(now_ms)

    def tick(self, now_ms: int) -> None:
        """Handle the time-outs that have expired by `now_ms`."""
        if now_ms >= self.member.deadline_ms:
            self._expire(now_ms)
        self._settle(now_ms)

    def propose(self, count: int, payload: object, now_ms: int) -> int:
        """Append a batch of `count` records as the leader, and return its base offset. Replication begins at once."""
        assert self.role is Role.LEADER, f"node {self.node_id} is {self.role.value} in epoch {self.epoch}"
        assert count > 0, "a batch has records"
        base = self._local.append_own(self.epoch, count, payload)
        self._settle(now_ms)
        return base

    def synced(self, end_offset: int, generation: int, now_ms: int) -> None:
        """Note that the log is durable to `end_offset`. `generation` is that of the last Truncate or InstallSnapshot
        before the sync began, or 0; if it is not the newest, the call has no effect.
        """
        if self._local.synced(end_offset, generation):
            if self.role is Role.FOLLOWER:
                self._outbox.due(self._following.source, now_ms)
            self._settle(now_ms)

    def snapshot_taken(self, snapshot: SnapshotId) -> None:
        """Note that the caller has made a durable snapshot of the committed records before the snapshot's end."""
        assert snapshot.end_offset <= self.high_watermark
        if self.snapshot is None or snapshot > self.snapshot:
            self.member.snapshot = snapshot

    def trim(self, snapshot: SnapshotId) -> None:
        """Remove the records before an existing snapshot's end from `log`; the caller then trims the log on disk."""
        assert self.snapshot is not None
        assert snapshot <= self.snapshot
        self.log.trim_to(snapshot)

    def resign(self, now_ms: int) -> None:
        """Give up leadership and name successors. Does nothing if this node does not lead."""
        if self.leadership is not None:
            self.member.become_resigned(self.leadership, now_ms, "asked to")
            self._settle(now_ms)

    # ---------------------------------------------------------------------------------------------------------- roles

    def _boot(self, now_ms: int) -> None:
        if self.member.state.epoch < self.log.last_epoch:  # The file was lost: do not go back at least.
            self.member.state = QuorumState(self.log.last_epoch)
            self.member.persist = True
        if self.member.state.leader_id == self.node_id:
            self.member.enter(Role.RESIGNED, now_ms + self._timers.for_votes(fresh=False), "restarted")
            self._outbox.due_all(now_ms)
        elif self.member.state.leader_id in self._outbox.voters:
            self.member.follow(now_ms, self._timers.to_fetch())
        else:
            self.member.become_unattached(
                self.epoch, now_ms, self._timers.before_candidacy(self.member.is_fresh), "started"
            )
        if self._settings.voters == (self.node_id,):
            self.member.deadline_ms = now_ms  # no other voter could lead: do not wait for one
        self._settle(now_ms)

    def _become_prospective(self, now_ms: int, why: str) -> None:
        self.member.become(Role.PROSPECTIVE, now_ms + self._timers.for_votes(self.member.is_fresh), why)
        self._open_round(now_ms)

    def _become_candidate(self, now_ms: int) -> None:
        self.member.move_to(self.epoch + 1, voted_id=self.node_id)
        self.member.become(Role.CANDIDATE, now_ms + self._timers.for_votes(self.member.is_fresh), "would be elected")
        self._open_round(now_ms)

    def _expire(self, now_ms: int) -> None:
        """Act on the role's time-out: check the majority, lose the election, ask for the leader, or begin pre-votes."""
        match self.role:
            case Role.LEADER:
                self._check_quorum(now_ms)
            case Role.PROSPECTIVE | Role.CANDIDATE:
                self._lose_round(now_ms, "election timed out")
            case Role.FOLLOWER if not self._settings.is_voter:
                self.member.deadline_ms = NEVER
                self.member.probe(now_ms)
            case _:
                self._become_prospective(now_ms, f"{self.role.value} for too long")

    def _check_quorum(self, now_ms: int) -> None:
        """Resign if a majority has not fetched for too long: that majority may follow another leader (KAFKA-15489)."""
        assert self.leadership is not None
        self.member.deadline_ms = self.leadership.majority_heard_ms(now_ms) + self._timers.for_majority()
        if now_ms >= self.member.deadline_ms:
            self.member.become_resigned(self.leadership, now_ms, "no majority fetches")

    # ------------------------------------------------------------------------------------------------------- requests

    def _on_vote(self, message: QuorumMessage, vote: Vote, now_ms: int) -> None:
        if message.sender not in self._outbox.voters:  # A node does not ask itself: its own vote is in the tally.
            return self._outbox.answer(message, VoteReply(ErrorCode.INCONSISTENT_VOTER_SET, self.epoch, self.leader_id))
        if vote.epoch > self.epoch:
            pause_ms = self._timers.before_candidacy(self.member.is_fresh)
            self.member.become_unattached(vote.epoch, now_ms, pause_ms, f"{message.sender} is in epoch {vote.epoch}")
        if vote.epoch < self.epoch:
            return self._outbox.answer(message, VoteReply(ErrorCode.FENCED_LEADER_EPOCH, self.epoch, self.leader_id))
        granted = self._settings.is_voter and self._may_grant(vote, message.sender, now_ms)
        if granted and not vote.pre_vote:
            self.member.move_to(self.epoch, voted_id=message.sender)
            if self.role is Role.PROSPECTIVE:
                self.member.become_unattached(self.epoch, now_ms, 0, f"votes for {message.sender}")
            self.member.deadline_ms = now_ms + self._timers.for_votes(self.member.is_fresh)
        elif granted and self.member.tally is None:  # The candidate that would be elected gets a head start.
            self.member.deadline_ms = max(self.member.deadline_ms, now_ms + self._settings.jitter_ms)
        self.member.note("vote", epoch=vote.epoch, candidate=message.sender, pre_vote=vote.pre_vote, granted=granted)
        self._outbox.answer(message, VoteReply(ErrorCode.NONE, self.epoch, self.leader_id, granted))

    def _may_grant(self, vote: Vote, candidate: int, now_ms: int) -> bool:
        """Return whether this node may grant the vote or pre-vote, which was requested in this node's current epoch."""
        if (vote.last_epoch, vote.end_offset) < (self.log.last_epoch, self.log.end_offset):
            return False  # The candidate may lack committed records.
        if vote.pre_vote:
            return not self._hears_leader(now_ms) and not self._comes_first(vote, candidate, now_ms)
        return self.member.state.leader_id == NO_NODE and self.member.state.voted_id in (NO_NODE, candidate)

    def _comes_first(self, vote: Vote, candidate: int, now_ms: int) -> bool:
        """Return whether this node's own pre-vote has priority over `candidate`'s: this node has just begun it, with an
        equal log and the lower id. If each granted the other's, both would become candidates and neither would win.
        """
        tally = self.member.tally if self.role is Role.PROSPECTIVE else None
        if tally is None or tally.refused_by(candidate) or self.node_id > candidate:
            return False
        equal = (vote.last_epoch, vote.end_offset) == (self.log.last_epoch, self.log.end_offset)
        return equal and now_ms < self.member.began_ms + self._settings.jitter_ms

    def _hears_leader(self, now_ms: int) -> bool:
        return self._following.hears_leader(now_ms) if self.role is Role.FOLLOWER else self.role is Role.LEADER

    def _on_begin_epoch(self, message: QuorumMessage, epoch: int, now_ms: int) -> None:
        error = self._check_claim(message.sender, epoch)
        if error is ErrorCode.NONE:
            self._learn(epoch, message.sender, now_ms)
        self._outbox.answer(message, BeginEpochReply(error, self.epoch, self.leader_id))

    def _on_end_epoch(self, message: QuorumMessage, epoch: int, successors: tuple[int, ...], now_ms: int) -> None:
        error = self._check_claim(message.sender, epoch)
        if error is ErrorCode.NONE:
            self._learn(epoch, message.sender, now_ms)
            if self.role is Role.FOLLOWER:
                self._leader_gone(now_ms, self._timers.after_end_of_epoch(successors))
        self._outbox.answer(message, EndEpochReply(error, self.epoch, self.leader_id))

    def _check_claim(self, sender: int, epoch: int) -> ErrorCode:
        """Return the error for a node that claims to lead `epoch`; NONE if the claim is accepted."""
        if sender not in self._outbox.voters:
            return ErrorCode.INCONSISTENT_VOTER_SET
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch == self.epoch and self.member.state.leader_id not in (NO_NODE, sender):
            self.member.note("two_leaders", epoch=epoch, known=self.member.state.leader_id, claims=sender)
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _on_fetch(self, message: QuorumMessage, fetch: Fetch, now_ms: int) -> None:
        error = self._check_fetcher(fetch.epoch)
        if error is not ErrorCode.NONE or self.leadership is None:
            self.member.refuse_fetch(message, error)
        elif (refusal := self.leadership.heard(message, fetch, self.log, self.snapshot, now_ms)) is not None:
            self._outbox.answer(message, refusal)
        else:
            older = self.leadership.park(message, fetch, now_ms)  # `_settle` answers it, at once if there is news
            if older is not None:
                self.member.refuse_fetch(older, ErrorCode.NONE)

    def _on_fetch_snapshot(self, message: QuorumMessage, fetch: FetchSnapshot, now_ms: int) -> None:
        error = self._check_fetcher(fetch.epoch)
        if self.leadership is not None and error is ErrorCode.NONE:
            self.leadership.replica(message.sender, now_ms)
        reply = FetchSnapshotReply(error, self.epoch, self.leader_id, fetch.snapshot, fetch.position)
        self._outbox.answer(message, reply)

    def _check_fetcher(self, epoch: int) -> ErrorCode:
        """Return the error for a node that fetches with `epoch`; NONE if it may fetch from this node."""
        if epoch != self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.leadership is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # -------------------------------------------------------------------------------------------------------- replies

    def _on_reply(self, message: QuorumMessage, reply: Reply, now_ms: int) -> None:
        awaited = self._outbox.ended(message.sender, message.ticket)
        if awaited:
            self._outbox.answered(message.sender)
        before = self.epoch, self.role
        self._learn(reply.epoch, reply.leader_id, now_ms)
        if not awaited or before != (self.epoch, self.role):  # a reply to another role than the present one
            return
        match reply:
            case VoteReply():
                assert self.member.tally is not None
                self._count_vote(self.member.tally, message.sender, reply.granted and not reply.error, now_ms)
            case FetchReply():
                self._on_fetch_reply(message.sender, reply, now_ms)
            case FetchSnapshotReply():
                self._on_snapshot_reply(message.sender, reply, now_ms)
            case BeginEpochReply():
                assert self.leadership is not None
                self.leadership.acknowledged(message.sender, not reply.error)
                self._outbox.due(message.sender, now_ms + self._settings.fetch_timeout_ms // 2)
            case EndEpochReply():
                pass

    def _learn(self, epoch: int, leader_id: int, now_ms: int) -> None:
        """Enter `epoch` if it is newer. Follow `leader_id` (may be NO_NODE) if this node knew no leader of `epoch`."""
        can_follow = leader_id in self._outbox.voters
        if epoch > self.epoch and not can_follow:
            pause_ms = self._timers.before_candidacy(self.member.is_fresh)
            self.member.become_unattached(epoch, now_ms, pause_ms, f"heard of epoch {epoch}")
        elif can_follow and (epoch > self.epoch or (epoch == self.epoch and self.member.state.leader_id == NO_NODE)):
            self.member.become_follower(epoch, leader_id, now_ms)

    def _on_fetch_reply(self, sender: int, reply: FetchReply, now_ms: int) -> None:
        if not self._answered(sender, reply, now_ms):
            return
        if reply.snapshot is not None:
            self._following.wants(reply.snapshot)
            return
        if reply.diverging is not None:
            leaves = self.log.end_offset
            target = self._local.truncate(reply.diverging, self.high_watermark)
            self.member.note(
                "truncated", from_offset=leaves, to_offset=target, reason=f"epoch {reply.diverging.epoch} ends"
            )
        elif reply.spans and not self._local.append_fetched(reply.spans, reply.payload, self.epoch):
            self.member.note("bad_fetch", base=reply.spans[0].base_offset, leo=self.log.end_offset)
            self._outbox.due(sender, now_ms + self._settings.retry_backoff_ms)
        self._raise_high_watermark(min(reply.high_watermark, self.log.end_offset))

    def _on_snapshot_reply(self, sender: int, reply: FetchSnapshotReply, now_ms: int) -> None:
        download = self._following.download
        if download is None or not download.is_next(reply):
            self._following.download = None  # The snapshot is gone or has changed: ask for records again.
        if not self._answered(sender, reply, now_ms) or download is None or self._following.download is None:
            return
        self._local.write_snapshot(reply.snapshot, reply.position, reply.payload)
        download.position += reply.length
        if download.position == reply.size:
            self._following.download = None
            self._local.install(reply.snapshot, self.high_watermark)
            self.member.snapshot = reply.snapshot
            self._raise_high_watermark(reply.snapshot.end_offset)
            self.member.note("snapshot_installed", offset=reply.snapshot.end_offset, epoch=reply.snapshot.epoch)

    def _answered(self, sender: int, reply: FetchReply | FetchSnapshotReply, now_ms: int) -> bool:
        """Return whether the leader has answered a fetch without an error. Also schedule the next fetch or a retry."""
        retry_ms = now_ms + self._settings.retry_backoff_ms
        if reply.error is not ErrorCode.NONE or self.role is not Role.FOLLOWER:
            self._outbox.due(sender, retry_ms)
            if self._following.probing:
                self.member.probe_next(retry_ms)
            elif reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and reply.epoch == self.epoch:  # it has resigned
                self._leader_gone(now_ms, self._timers.jitter())
            return False
        self._following.heard(sender, now_ms)
        self.member.heard = sender, now_ms
        self.member.deadline_ms = now_ms + self._timers.to_fetch()
        self._timers.found_leader()
        self._outbox.due(sender, now_ms)
        return True

    def _leader_gone(self, now_ms: int, pause_ms: int) -> None:
        """Begin an election after at most `pause_ms`: the leader has resigned. An observer asks for the new leader."""
        self._following.leader_gone()
        if self._settings.is_voter:
            self.member.deadline_ms = min(self.member.deadline_ms, now_ms + pause_ms)
        else:
            self.member.probe(now_ms)

    # ------------------------------------------------------------------------------------------------------ elections

    def _open_round(self, now_ms: int) -> None:
        self.member.tally, self.member.began_ms = VoteTally(self._settings), now_ms
        self._outbox.due_all(now_ms)
        self._close_round(self.member.tally, now_ms)

    def _count_vote(self, tally: VoteTally, voter: int, granted: bool | None, now_ms: int) -> None:
        tally.answer(voter, granted)
        self._close_round(tally, now_ms)

    def _close_round(self, tally: VoteTally, now_ms: int) -> None:
        """End the round of pre-votes or votes that `tally` counts, if it is won or lost."""
        if tally.lost or self.member.has_no_next_epoch:
            self._lose_round(now_ms, "not elected")
        elif tally.won and self.role is Role.PROSPECTIVE:
            self._become_candidate(now_ms)
        elif tally.won:
            self.member.become_leader(now_ms, tally.granting)

    def _lose_round(self, now_ms: int, why: str) -> None:
        pause_ms = self._timers.after_losing(self.member.is_fresh)
        if self.leader_id != NO_NODE:
            self.member.follow(now_ms, pause_ms)
        else:
            self.member.become_unattached(self.epoch, now_ms, pause_ms, why)

    # ----------------------------------------------------------------------------------------------------- what is due

    def _settle(self, now_ms: int) -> None:
        """Carry out what follows from an event: raise the high watermark, and send the replies and requests now due."""
        leadership = self.member.leadership
        if leadership is not None:
            self._raise_high_watermark(leadership.committed_offset(self._local.synced_offset))
            for message, reply in leadership.answer(self.log, self.member.high_watermark, now_ms):
                self._outbox.answer(message, reply)
        for voter in self._outbox.take_due(now_ms):
            request = self._due_request(voter, now_ms)
            if request is not None:
                self._outbox.send(voter, request)
        self.member.check()

    def _raise_high_watermark(self, high_watermark: int) -> None:
        assert high_watermark <= self.log.end_offset
        self.member.high_watermark = max(self.high_watermark, high_watermark)

    def _due_request(self, voter: int, now_ms: int) -> Request | None:
        """Return the Vote, BeginEpoch, EndEpoch or fetch that is due to this voter now by this node's role, or None."""
        log = self.log
        if self.member.tally is not None:
            pre_vote = self.role is Role.PROSPECTIVE
            if self.member.tally.answered(voter):
                return None
            return Vote(self.epoch, log.last_epoch, log.end_offset, pre_vote)
        if self.leadership is not None:
            begin_ms = self.leadership.next_begin_ms(voter)
            if begin_ms <= now_ms:
                return BeginEpoch(self.epoch)
            self._outbox.due(voter, begin_ms)
        elif self.role is Role.RESIGNED:
            return EndEpoch(self.epoch, self.member.successors)
        elif voter == self._following.source and (self._local.is_synced or not self._settings.is_voter):
            # A fetch from an offset tells the leader that all before it is durable: so a voter syncs first.
            return self._following.request(self.epoch, log, self.high_watermark)
        return None
