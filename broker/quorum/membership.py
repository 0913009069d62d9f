"""Holds a node's membership in the quorum: its role in its epoch, its durable state, and how both change.

`Raft` does the rest: messages and time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.quorum.effects import QuorumTraceEvent
from squall.broker.quorum.election import LEGAL, Role, VoteTally
from squall.broker.quorum.election_timers import ElectionTimers
from squall.broker.quorum.follower import FetchFromLeaderState
from squall.broker.quorum.leadership import LeaderState
from squall.broker.quorum.local_log import LocalLogModel
from squall.broker.quorum.messages import FetchReply, QuorumMessage, SnapshotId
from squall.broker.quorum.outbox import NEVER, Outbox
from squall.broker.quorum.state import MAX_EPOCH, QuorumState

if TYPE_CHECKING:
    import random

    from squall.broker.quorum.log_extent import LogExtent
    from squall.broker.quorum.settings import QuorumSettings


class QuorumMembership:
    """Holds a node's role and state in the quorum. Only `Raft` changes them, by the methods below."""

    def __init__(
        self,
        settings: QuorumSettings,
        rng: random.Random,
        state: QuorumState,
        log: LogExtent,
        snapshot: SnapshotId | None = None,
    ) -> None:
        """Begin with the `state`, `log` and newest `snapshot` that `Raft` got from disk."""
        self.node_id = settings.node_id
        self.role = Role.UNATTACHED
        self.log = log
        self.snapshot = snapshot
        """Names the newest snapshot of this node, which is durable and holds only committed records."""
        self.high_watermark = snapshot.end_offset if snapshot is not None else 0
        """Gives the offset before which, as far as this node knows, everything is committed. It never decreases."""
        self.leadership: LeaderState | None = None
        """Holds the leader's state while this node leads, else None."""
        self.settings = settings
        self.timers = ElectionTimers(settings, rng)
        self.local = LocalLogModel(log)
        self.state = state
        """Holds epoch, vote and leader, which must be durable before messages that depend on them are sent."""
        self.tally: VoteTally | None = None
        """Counts the votes of the running election, or is None."""
        self.began_ms = 0
        """Gives the time at which the last election began."""
        self.heard: tuple[int, int] | None = None
        """Holds the leader that last answered this node, and when; None after a restart or after this node led."""
        self.successors: tuple[int, ...] = ()
        """Holds the successors that this node names when it resigns, best log first."""
        self.outbox = Outbox(settings)
        self.deadline_ms = NEVER
        """Gives the time at which the role's time-out expires."""
        self.following = FetchFromLeaderState(settings, rng)
        self.persist = False
        """Is True if `state` has changed since the caller was last asked to make it durable."""
        self.notes: list[QuorumTraceEvent] = []

    @property
    def epoch(self) -> int:
        """Returns this node's epoch."""
        return self.state.epoch

    @property
    def leader_id(self) -> int:
        """Return the epoch's leader as far as this node knows; NO_NODE also if this node led the epoch and has
        resigned.
        """
        if self.state.leader_id == self.node_id and self.role is not Role.LEADER:
            return NO_NODE
        return self.state.leader_id

    def check(self) -> None:
        """Assert that role, durable state, log and high watermark fit together. This must hold after each event."""
        role, state, log = self.role, self.state, self.log
        assert (self.leadership is not None) == (role is Role.LEADER), f"{role.value} with {self.leadership}"
        assert role is not Role.LEADER or state.leader_id == self.node_id, f"leads with {state}"
        assert role is not Role.FOLLOWER or state.leader_id not in (NO_NODE, self.node_id), f"follows with {state}"
        assert role is not Role.CANDIDATE or state.voted_id == self.node_id, f"stands with {state}"
        assert self.tally is None or role in (Role.PROSPECTIVE, Role.CANDIDATE), f"{role.value} counts votes"
        assert log.last_epoch <= state.epoch, f"a log of epoch {log.last_epoch} in epoch {state.epoch}"
        assert log.start_offset <= self.high_watermark, f"trimmed to {log.start_offset} of {self.high_watermark}"
        assert self.high_watermark <= log.end_offset, f"committed to {self.high_watermark} of {log.end_offset}"
        assert self.local.synced_offset <= log.end_offset, f"synced to {self.local.synced_offset} of {log.end_offset}"

    def enter(self, role: Role, deadline_ms: int, why: str) -> None:
        """Change to another role, and drop all state that belonged to the old role. The new role's time-out expires at
        `deadline_ms`; `why` is the reason to trace ("no majority fetches", for example).
        """
        self.role = role
        self.deadline_ms = deadline_ms
        self.tally = None
        self.following.begin()
        # Replies to requests of the old role may still come: `Outbox.ended` does not know them any more.
        self.outbox.forget()
        if self.leadership is not None:
            parked, self.leadership = self.leadership.parked, None
            for waiting in parked.values():
                self.refuse_fetch(waiting.message, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert self.leadership is None, f"{role.value} begins without a leadership"
        ends = {"leo": self.log.end_offset, "hw": self.high_watermark}
        self.note("election", role=role.value, epoch=self.epoch, leader=self.leader_id, why=why, **ends)

    def become(self, role: Role, deadline_ms: int, why: str) -> None:
        """Change to another role, whose time-out expires at `deadline_ms`; `why` is the reason to trace. Raises
        AssertionError for a transition that `LEGAL` lacks.
        """
        assert role in LEGAL[self.role], f"{self.role.value} must not become {role.value}"
        self.enter(role, deadline_ms, why)

    def move_to(self, epoch: int, *, leader_id: int = NO_NODE, voted_id: int = NO_NODE) -> None:
        """Set epoch, leader and vote, which are then made durable. Within an epoch, leader and vote are set only once.
        """
        old = self.state
        if epoch == old.epoch:
            assert voted_id in (old.voted_id, NO_NODE) or old.voted_id == NO_NODE
            assert leader_id in (old.leader_id, NO_NODE) or old.leader_id == NO_NODE
            voted_id = old.voted_id if voted_id == NO_NODE else voted_id
            leader_id = old.leader_id if leader_id == NO_NODE else leader_id
        assert epoch >= old.epoch
        new = QuorumState(epoch, voted_id, leader_id)
        if new != old:
            self.state = new
            self.persist = True

    def become_unattached(self, epoch: int, now_ms: int, pause_ms: int, why: str) -> None:
        """Enter `epoch` without a leader. After `pause_ms` a voter begins an election; an observer asks the voters for
        the leader.
        """
        self.move_to(epoch)
        if self.settings.is_voter:
            self.become(Role.UNATTACHED, now_ms + pause_ms, why)
        else:
            self.become(Role.UNATTACHED, NEVER, why)
            self.probe(now_ms)

    def become_follower(self, epoch: int, leader_id: int, now_ms: int) -> None:
        """Follow the leader of `epoch`."""
        self.move_to(epoch, leader_id=leader_id)
        self.follow(now_ms, self.timers.to_fetch())

    def follow(self, now_ms: int, patience_ms: int) -> None:
        """Fetch from the known leader. If no answer comes for `patience_ms`, the follower's time-out expires."""
        leader_id = self.state.leader_id
        self.become(Role.FOLLOWER, now_ms + patience_ms, f"follows {leader_id}")
        # After `become`, which forgets the node that was fetched from before.
        self.following.begin(leader_id)
        self.outbox.due(leader_id, now_ms)

    def become_leader(self, now_ms: int, granting: tuple[int, ...]) -> None:
        """Become the leader of the epoch in which these voters granted their votes."""
        self.move_to(self.epoch, leader_id=self.node_id)
        self.become(Role.LEADER, now_ms + self.timers.for_majority(), f"elected by {granting}")
        self.timers.found_leader()
        # Only a later record of this epoch commits records of earlier epochs: so append one at once.
        start = self.local.append_leader_change(self.epoch, self.settings.voters, granting)
        self.leadership = LeaderState(self.settings, self.epoch, start, now_ms, self.heard)
        # The next leadership of this node has another predecessor.
        self.heard = None
        self.outbox.due_all(now_ms)

    def become_resigned(self, leadership: LeaderState, now_ms: int, why: str) -> None:
        """Give up the leadership of this epoch, and announce it to all voters."""
        self.successors = leadership.successors()
        self.become(Role.RESIGNED, now_ms + self.timers.for_votes(fresh=False), why)
        self.outbox.due_all(now_ms)

    @property
    def is_fresh(self) -> bool:
        """Is True while, as far as this node knows, the cluster has never had a leader to wait for."""
        return self.log.end_offset == 0 and self.state.leader_id == NO_NODE

    @property
    def has_no_next_epoch(self) -> bool:
        """Is True if this node asks for pre-votes, but cannot begin an election, because its epoch is already
        MAX_EPOCH, the largest number of an epoch.
        """
        return self.role is Role.PROSPECTIVE and self.state.epoch >= MAX_EPOCH

    def refuse_fetch(self, message: QuorumMessage, error: ErrorCode) -> None:
        self.outbox.answer(message, FetchReply(error, self.epoch, self.leader_id))

    def probe(self, now_ms: int) -> None:
        self.outbox.due(self.following.probe(), now_ms)

    def probe_next(self, at_ms: int) -> None:
        self.outbox.due(self.following.source, NEVER)
        self.outbox.due(self.following.probe_next(), at_ms)

    def note(self, event: str, **fields: Any) -> None:
        self.notes.append(QuorumTraceEvent(event, fields))
