"""One node's part in the quorum, as KRaft plays it: Raft in which followers pull.

Pure: `step` takes a message, `tick` the time, `propose` a batch of the leader's; `ready` gives out what is to be done
(see `effects.Ready` for the order). Log contents stay with the caller, the core knows only the log's shape.

What makes it safe, and where it stands:
- one vote an epoch, durable before it is told: `_may_grant`, `_move_to`, `Ready.state`
- a vote only for a log that ends no earlier than the voter's: `_may_grant`
- a record counts once a majority holds it durably, the leader by its own sync as well, and only together with the
  record that began the leader's epoch: `Leadership.committed_offset`
- a follower's log is the leader's as far as it goes, or is truncated by epoch: `LogShape.agrees`, `LocalLog.truncate`
- an epoch's leadership ends once and for all: Role.RESIGNED, also after a restart
- a leader that a majority has left notices it: `_check_quorum` (KAFKA-15489)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.protocol.errors import ErrorCode
from broker.quorum.effects import Note, Ready
from broker.quorum.election import LEGAL, Role, Tally
from broker.quorum.leadership import Leadership
from broker.quorum.local_log import LocalLog
from broker.quorum.messages import (
    NOBODY,
    BeginEpoch,
    BeginEpochReply,
    EndEpoch,
    EndEpochReply,
    Fetch,
    FetchReply,
    Message,
    Reply,
    Request,
    Vote,
    VoteReply,
)
from broker.quorum.outbox import NEVER, Outbox
from broker.quorum.patience import Patience
from broker.quorum.state import QuorumState

if TYPE_CHECKING:
    import random

    from broker.quorum.settings import QuorumSettings
    from broker.quorum.shape import LogShape


class Raft:
    """The core. Every public method that takes `now_ms` may make work for `ready`."""

    def __init__(
        self, settings: QuorumSettings, rng: random.Random, state: QuorumState, log: LogShape, now_ms: int
    ) -> None:
        """`state` and `log` as they were found on disk; nothing of the log counts as synced yet."""
        self.node_id = settings.node_id
        self.role = Role.UNATTACHED
        self.log = log
        self.high_watermark = 0
        """Everything before it is committed, for all this node knows. Never goes back."""
        self.leadership: Leadership | None = None
        """Set while this node leads."""
        self._settings = settings
        self._rng = rng
        self._patience = Patience(settings, rng)
        self._local = LocalLog(log)
        self._state = state
        self._tally: Tally | None = None
        self._successors: tuple[int, ...] = ()
        self._outbox = Outbox(settings)
        self._deadline_ms = NEVER
        self._fetched_ms: int | None = None
        self._fetch_from = NOBODY
        self._probing = False
        self._persist = False
        self._notes: list[Note] = []
        self._boot(now_ms)

    # ------------------------------------------------------------------------------------------------ for the caller

    @property
    def epoch(self) -> int:
        """The epoch this node is in."""
        return self._state.epoch

    @property
    def leader_id(self) -> int:
        """Who leads the epoch, for all this node knows; NOBODY also where it is this node and it has resigned."""
        if self._state.leader_id == self.node_id and self.role is not Role.LEADER:
            return NOBODY
        return self._state.leader_id

    @property
    def wants_sync(self) -> bool:
        """True while the log holds what is not known to be durable."""
        return not self._local.is_synced

    def next_deadline_ms(self) -> int:
        """When `tick` will have something to do."""
        parked_ms = self.leadership.next_deadline_ms() if self.leadership is not None else NEVER
        return min(self._deadline_ms, self._outbox.next_due_ms(), parked_ms)

    def ready(self) -> Ready | None:
        """What there is to do now; None for nothing. Each effect is given out once."""
        log, messages = self._local.take_ops(), self._outbox.take()
        if not (self._persist or log or messages or self._notes):
            return None
        ready = Ready(self._state if self._persist else None, log, messages, tuple(self._notes))
        self._persist, self._notes = False, []
        return ready

    def step(self, message: Message, now_ms: int) -> None:
        """Take in a request, or the reply to one of ours."""
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
            case reply:
                self._on_reply(message, reply, now_ms)
        self._settle(now_ms)

    def failed(self, receiver: int, ticket: int, now_ms: int) -> None:
        """A request of ours ended without a reply: not sent, timed out, or the connection broke."""
        if not self._outbox.ended(receiver, ticket):
            return
        retry_ms = now_ms + self._settings.retry_backoff_ms
        if self._tally is not None:
            self._count_vote(self._tally, receiver, None, now_ms)
        elif self.leadership is not None:
            self._outbox.due(receiver, now_ms + self._settings.fetch_timeout_ms // 8)
        elif self._probing:
            self._probe_next(retry_ms)
        elif self.role is not Role.RESIGNED:  # Its farewell is said once: whoever missed it finds out by fetching.
            self._outbox.due(receiver, retry_ms)
        self._settle(now_ms)

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        if now_ms >= self._deadline_ms:
            self._expire(now_ms)
        self._settle(now_ms)

    def propose(self, count: int, payload: object, now_ms: int) -> int:
        """Append a batch of `count` records as the leader. Returns its base offset; replication begins at once."""
        assert self.role is Role.LEADER, f"node {self.node_id} is {self.role.value} in epoch {self.epoch}"
        base = self._local.append_own(self.epoch, count, payload)
        self._settle(now_ms)
        return base

    def synced(self, end_offset: int, generation: int, now_ms: int) -> None:
        """The log is durable up to `end_offset`. `generation`: of the last Truncate before that sync began, else 0."""
        if self._local.synced(end_offset, generation):
            if self.role is Role.FOLLOWER:
                self._outbox.due(self._fetch_from, now_ms)
            self._settle(now_ms)

    def resign(self, now_ms: int) -> None:
        """Give up leadership, naming successors. Nothing happens where this node does not lead."""
        if self.leadership is not None:
            self._become_resigned(self.leadership, now_ms, "asked to")
            self._settle(now_ms)

    # ---------------------------------------------------------------------------------------------------------- roles

    def _boot(self, now_ms: int) -> None:
        if self._state.epoch < self.log.last_epoch:  # The file was lost; at least do not go back.
            self._state = QuorumState(self.log.last_epoch)
            self._persist = True
        if self._state.leader_id == self.node_id:
            self._enter(Role.RESIGNED, now_ms + self._patience.for_votes(fresh=False), "restarted")
            self._outbox.due_all(now_ms)
        elif self._state.leader_id in self._outbox.voters:
            self._follow(now_ms, self._patience.to_fetch())
        else:
            self._become_unattached(self.epoch, now_ms, self._patience.before_standing(self._is_fresh), "started")
        if self._settings.voters == (self.node_id,):
            self._deadline_ms = now_ms
        self._settle(now_ms)

    def _enter(self, role: Role, deadline_ms: int, why: str) -> None:
        """Change roles. What the old one awaited no longer matters."""
        self.role = role
        self._deadline_ms = deadline_ms
        self._tally = None
        self._fetched_ms = None
        self._fetch_from = NOBODY
        self._probing = False
        self._outbox.forget()
        if self.leadership is not None:
            parked, self.leadership = self.leadership.parked, None
            for waiting in parked.values():
                self._refuse_fetch(waiting.message, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ends = {"leo": self.log.end_offset, "hw": self.high_watermark}
        self._note("election", role=role.value, epoch=self.epoch, leader=self.leader_id, why=why, **ends)

    def _become(self, role: Role, deadline_ms: int, why: str) -> None:
        assert role in LEGAL[self.role], f"{self.role.value} must not become {role.value}"
        self._enter(role, deadline_ms, why)

    def _move_to(self, epoch: int, *, leader_id: int = NOBODY, voted_id: int = NOBODY) -> None:
        """Change what must never be forgotten. Within an epoch the vote and the leader are set once."""
        old = self._state
        if epoch == old.epoch:
            assert voted_id in (old.voted_id, NOBODY) or old.voted_id == NOBODY
            assert leader_id in (old.leader_id, NOBODY) or old.leader_id == NOBODY
            voted_id = old.voted_id if voted_id == NOBODY else voted_id
            leader_id = old.leader_id if leader_id == NOBODY else leader_id
        assert epoch >= old.epoch
        new = QuorumState(epoch, voted_id, leader_id)
        if new != old:
            self._state = new
            self._persist = True

    def _become_unattached(self, epoch: int, now_ms: int, pause_ms: int, why: str) -> None:
        self._move_to(epoch)
        if self._settings.is_voter:
            self._become(Role.UNATTACHED, now_ms + pause_ms, why)
        else:
            self._become(Role.UNATTACHED, NEVER, why)
            self._probe(now_ms)

    def _become_follower(self, epoch: int, leader_id: int, now_ms: int) -> None:
        self._move_to(epoch, leader_id=leader_id)
        self._follow(now_ms, self._patience.to_fetch())

    def _follow(self, now_ms: int, patience_ms: int) -> None:
        leader_id = self._state.leader_id
        self._become(Role.FOLLOWER, now_ms + patience_ms, f"follows {leader_id}")
        self._fetch_from = leader_id
        self._outbox.due(leader_id, now_ms)

    def _become_prospective(self, now_ms: int, why: str) -> None:
        self._become(Role.PROSPECTIVE, now_ms + self._patience.for_votes(self._is_fresh), why)
        self._open_round(now_ms)

    def _become_candidate(self, now_ms: int) -> None:
        self._move_to(self.epoch + 1, voted_id=self.node_id)
        self._become(Role.CANDIDATE, now_ms + self._patience.for_votes(self._is_fresh), "would be elected")
        self._open_round(now_ms)

    def _become_leader(self, now_ms: int, granting: tuple[int, ...]) -> None:
        self._move_to(self.epoch, leader_id=self.node_id)
        self._become(Role.LEADER, now_ms + self._patience.for_majority(), f"elected by {granting}")
        self._patience.found_leader()
        # Records of earlier epochs are committed only by one of this epoch after them: so there is one at once.
        start = self._local.append_leader_change(self.epoch, self._settings.voters, granting)
        self.leadership = Leadership(self._settings, self.epoch, start, now_ms)
        self._outbox.due_all(now_ms)

    def _become_resigned(self, leadership: Leadership, now_ms: int, why: str) -> None:
        self._successors = leadership.successors()
        self._become(Role.RESIGNED, now_ms + self._patience.for_votes(fresh=False), why)
        self._outbox.due_all(now_ms)

    @property
    def _is_fresh(self) -> bool:
        """True while, for all this node knows, the cluster never had a leader: nobody is worth waiting for."""
        return self.log.end_offset == 0 and self._state.leader_id == NOBODY

    def _expire(self, now_ms: int) -> None:
        """The role's time is up."""
        match self.role:
            case Role.LEADER:
                self._check_quorum(now_ms)
            case Role.PROSPECTIVE | Role.CANDIDATE:
                self._lose_round(now_ms, "election timed out")
            case Role.FOLLOWER if not self._settings.is_voter:
                self._deadline_ms = NEVER
                self._probe(now_ms)
            case _:
                self._become_prospective(now_ms, f"{self.role.value} for too long")

    def _check_quorum(self, now_ms: int) -> None:
        """Resign where a majority has not fetched for too long: they may have another leader (KAFKA-15489)."""
        assert self.leadership is not None
        self._deadline_ms = self.leadership.majority_heard_ms(now_ms) + self._patience.for_majority()
        if now_ms >= self._deadline_ms:
            self._become_resigned(self.leadership, now_ms, "no majority fetches")

    # ------------------------------------------------------------------------------------------------------- requests

    def _on_vote(self, message: Message, vote: Vote, now_ms: int) -> None:
        if message.sender not in self._settings.voters:
            return self._outbox.answer(message, VoteReply(ErrorCode.INCONSISTENT_VOTER_SET, self.epoch, self.leader_id))
        if vote.epoch > self.epoch:
            pause_ms = self._patience.before_standing(self._is_fresh)
            self._become_unattached(vote.epoch, now_ms, pause_ms, f"{message.sender} is in epoch {vote.epoch}")
        if vote.epoch < self.epoch:
            return self._outbox.answer(message, VoteReply(ErrorCode.FENCED_LEADER_EPOCH, self.epoch, self.leader_id))
        granted = self._settings.is_voter and self._may_grant(vote, message.sender, now_ms)
        if granted and not vote.pre_vote:
            self._move_to(self.epoch, voted_id=message.sender)
            if self.role is Role.PROSPECTIVE:
                self._become_unattached(self.epoch, now_ms, 0, f"votes for {message.sender}")
            self._deadline_ms = now_ms + self._patience.for_votes(self._is_fresh)
        self._note("vote", epoch=vote.epoch, candidate=message.sender, pre_vote=vote.pre_vote, granted=granted)
        self._outbox.answer(message, VoteReply(ErrorCode.NONE, self.epoch, self.leader_id, granted))

    def _may_grant(self, vote: Vote, candidate: int, now_ms: int) -> bool:
        """The rule of voting, for a request in this node's own epoch."""
        if (vote.last_epoch, vote.end_offset) < (self.log.last_epoch, self.log.end_offset):
            return False  # It may lack what is committed.
        if vote.pre_vote:
            return not self._hears_leader(now_ms)
        return self._state.leader_id == NOBODY and self._state.voted_id in (NOBODY, candidate)

    def _hears_leader(self, now_ms: int) -> bool:
        if self.role is Role.FOLLOWER:
            return self._fetched_ms is not None and now_ms - self._fetched_ms < self._settings.fetch_timeout_ms
        return self.role is Role.LEADER

    def _on_begin_epoch(self, message: Message, epoch: int, now_ms: int) -> None:
        error = self._check_claim(message.sender, epoch)
        if error is ErrorCode.NONE:
            self._learn(epoch, message.sender, now_ms)
        self._outbox.answer(message, BeginEpochReply(error, self.epoch, self.leader_id))

    def _on_end_epoch(self, message: Message, epoch: int, successors: tuple[int, ...], now_ms: int) -> None:
        error = self._check_claim(message.sender, epoch)
        if error is ErrorCode.NONE:
            self._learn(epoch, message.sender, now_ms)
            if self.role is Role.FOLLOWER:
                self._leader_gone(now_ms, self._patience.after_end_of_epoch(successors))
        self._outbox.answer(message, EndEpochReply(error, self.epoch, self.leader_id))

    def _check_claim(self, sender: int, epoch: int) -> ErrorCode:
        """Whether `sender` may speak as the leader of `epoch`."""
        if sender not in self._outbox.voters:
            return ErrorCode.INCONSISTENT_VOTER_SET
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch == self.epoch and self._state.leader_id not in (NOBODY, sender):
            self._note("two_leaders", epoch=epoch, known=self._state.leader_id, claims=sender)
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _on_fetch(self, message: Message, fetch: Fetch, now_ms: int) -> None:
        if fetch.epoch < self.epoch:
            self._refuse_fetch(message, ErrorCode.FENCED_LEADER_EPOCH)
        elif fetch.epoch > self.epoch:
            self._refuse_fetch(message, ErrorCode.UNKNOWN_LEADER_EPOCH)
        elif self.leadership is None:
            self._refuse_fetch(message, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif (refusal := self.leadership.heard(message, fetch, self.log, now_ms)) is not None:
            self._outbox.answer(message, refusal)
        else:
            older = self.leadership.park(message, fetch, now_ms)
            if older is not None:
                self._refuse_fetch(older, ErrorCode.NONE)

    def _refuse_fetch(self, message: Message, error: ErrorCode) -> None:
        self._outbox.answer(message, FetchReply(error, self.epoch, self.leader_id))

    # -------------------------------------------------------------------------------------------------------- replies

    def _on_reply(self, message: Message, reply: Reply, now_ms: int) -> None:
        awaited = self._outbox.ended(message.sender, message.ticket)
        before = self.epoch, self.role
        self._learn(reply.epoch, reply.leader_id, now_ms)
        if not awaited or before != (self.epoch, self.role):
            return
        match reply:
            case VoteReply():
                assert self._tally is not None
                self._count_vote(self._tally, message.sender, reply.granted and not reply.error, now_ms)
            case FetchReply():
                self._on_fetch_reply(message.sender, reply, now_ms)
            case BeginEpochReply():
                assert self.leadership is not None
                self.leadership.acknowledged(message.sender, not reply.error)
                self._outbox.due(message.sender, now_ms + self._settings.fetch_timeout_ms // 2)
            case EndEpochReply():
                pass

    def _learn(self, epoch: int, leader_id: int, now_ms: int) -> None:
        """Somebody says that `leader_id` (or NOBODY it knows) leads `epoch`."""
        can_follow = leader_id in self._outbox.voters
        if epoch > self.epoch and not can_follow:
            pause_ms = self._patience.before_standing(self._is_fresh)
            self._become_unattached(epoch, now_ms, pause_ms, f"heard of epoch {epoch}")
        elif can_follow and (epoch > self.epoch or (epoch == self.epoch and self._state.leader_id == NOBODY)):
            self._become_follower(epoch, leader_id, now_ms)

    def _on_fetch_reply(self, sender: int, reply: FetchReply, now_ms: int) -> None:
        retry_ms = now_ms + self._settings.retry_backoff_ms
        if reply.error is not ErrorCode.NONE or self.role is not Role.FOLLOWER or reply.snapshot is not None:
            self._outbox.due(sender, retry_ms)
            if self._probing:
                self._probe_next(retry_ms)
            elif reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and reply.epoch == self.epoch:
                self._leader_gone(now_ms, self._patience.jitter())
            return
        self._fetched_ms = now_ms
        self._deadline_ms = now_ms + self._patience.to_fetch()
        self._patience.found_leader()
        self._probing = False
        self._fetch_from = sender
        self._outbox.due(sender, now_ms)
        if reply.diverging is not None:
            leaves = self.log.end_offset
            target = self._local.truncate(reply.diverging, self.high_watermark)
            self._note("truncated", from_offset=leaves, to_offset=target, reason=f"epoch {reply.diverging.epoch} ends")
        elif reply.spans and not self._local.append_fetched(reply.spans, reply.payload, self.epoch):
            self._note("bad_fetch", base=reply.spans[0].base_offset, leo=self.log.end_offset)
            self._outbox.due(sender, retry_ms)
        self._raise_high_watermark(min(reply.high_watermark, self.log.end_offset))

    def _leader_gone(self, now_ms: int, pause_ms: int) -> None:
        """The leader itself says that it leads no longer: do not wait for a time-out."""
        self._fetched_ms = None
        if self._settings.is_voter:
            self._deadline_ms = min(self._deadline_ms, now_ms + pause_ms)
        else:
            self._probe(now_ms)

    # ------------------------------------------------------------------------------------------------------ elections

    def _open_round(self, now_ms: int) -> None:
        self._tally = Tally(self._settings)
        self._outbox.due_all(now_ms)
        self._close_round(self._tally, now_ms)

    def _count_vote(self, tally: Tally, voter: int, granted: bool | None, now_ms: int) -> None:
        tally.answer(voter, granted)
        self._close_round(tally, now_ms)

    def _close_round(self, tally: Tally, now_ms: int) -> None:
        """Act on a round that is decided."""
        if tally.lost:
            self._lose_round(now_ms, "not elected")
        elif tally.won and self.role is Role.PROSPECTIVE:
            self._become_candidate(now_ms)
        elif tally.won:
            self._become_leader(now_ms, tally.granting)

    def _lose_round(self, now_ms: int, why: str) -> None:
        pause_ms = self._patience.after_losing(self._is_fresh)
        if self.leader_id != NOBODY:
            self._follow(now_ms, pause_ms)
        else:
            self._become_unattached(self.epoch, now_ms, pause_ms, why)

    # ----------------------------------------------------------------------------------------------------- what is due

    def _settle(self, now_ms: int) -> None:
        """After each event: what became committed, who can be answered, who is owed a request."""
        if self.leadership is not None:
            self._raise_high_watermark(self.leadership.committed_offset(self._local.synced_offset))
            for message, reply in self.leadership.answer(self.log, self.high_watermark, now_ms):
                self._outbox.answer(message, reply)
        for voter in self._outbox.take_due(now_ms):
            request = self._owed(voter, now_ms)
            if request is not None:
                self._outbox.send(voter, request)

    def _raise_high_watermark(self, high_watermark: int) -> None:
        assert high_watermark <= self.log.end_offset
        self.high_watermark = max(self.high_watermark, high_watermark)

    def _owed(self, voter: int, now_ms: int) -> Request | None:
        """The request that this voter should get now, if any."""
        log = self.log
        if self._tally is not None:
            pre_vote = self.role is Role.PROSPECTIVE
            return None if self._tally.answered(voter) else Vote(self.epoch, log.last_epoch, log.end_offset, pre_vote)
        if self.leadership is not None:
            begin_ms = self.leadership.next_begin_ms(voter)
            if begin_ms <= now_ms:
                return BeginEpoch(self.epoch)
            self._outbox.due(voter, begin_ms)
        elif self.role is Role.RESIGNED:
            return EndEpoch(self.epoch, self._successors)
        elif voter == self._fetch_from and (self._local.is_synced or not self._settings.is_voter):
            # Fetching from an offset says that all before it is durable here: so a voter syncs first.
            wait_ms = self._settings.fetch_max_wait_ms
            return Fetch(self.epoch, log.end_offset, log.last_epoch, self.high_watermark, wait_ms)
        return None

    def _probe(self, now_ms: int) -> None:
        """An observer without a leader asks one voter after another; each answer tells who leads."""
        self._probing = True
        self._fetch_from = self._rng.choice(self._settings.voters)
        self._outbox.due(self._fetch_from, now_ms)

    def _probe_next(self, at_ms: int) -> None:
        voters = self._settings.voters
        self._outbox.due(self._fetch_from, NEVER)
        self._fetch_from = voters[(voters.index(self._fetch_from) + 1) % len(voters)]
        self._outbox.due(self._fetch_from, at_ms)

    def _note(self, event: str, **fields: Any) -> None:
        self._notes.append(Note(event, fields))
