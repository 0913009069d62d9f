"""A node's member in the quorum: what it is in its epoch, what it must never forget, and how it changes.

Everything else, the messages and the clock, is `Raft`'s, which has one.
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
from squall.broker.quorum.local_log import LocalLog
from squall.broker.quorum.messages import FetchReply, QuorumMessage, SnapshotId
from squall.broker.quorum.outbox import NEVER, Outbox
from squall.broker.quorum.state import MAX_EPOCH, QuorumState

if TYPE_CHECKING:
    import random

    from squall.broker.quorum.log_extent import LogExtent
    from squall.broker.quorum.settings import QuorumSettings


class QuorumMembership:
    """Holds a node's part in the quorum. `Raft` alone changes it, by the methods below; all else only reads it."""

    def __init__(
        self,
        settings: QuorumSettings,
        rng: random.Random,
        state: QuorumState,
        log: LogExtent,
        snapshot: SnapshotId | None = None,
    ) -> None:
        """Take `state`, `log` and the newest `snapshot` as found on disk, as `Raft` does."""
        self.node_id = settings.node_id
        self.role = Role.UNATTACHED
        self.log = log
        self.snapshot = snapshot
        """The newest one that this node has, all of it committed and durable."""
        self.high_watermark = snapshot.end_offset if snapshot is not None else 0
        """Everything before it is committed, for all this node knows. Never goes back."""
        self.leadership: LeaderState | None = None
        """Set while this node leads."""
        self.settings = settings
        self.timers = ElectionTimers(settings, rng)
        self.local = LocalLog(log)
        self.state = state
        """What must never be forgotten."""
        self.tally: VoteTally | None = None
        """The round of votes under way."""
        self.began_ms = 0
        """When the last round of votes began."""
        self.heard: tuple[int, int] | None = None
        """Which leader last answered this node, and when; None after this node led, or a restart."""
        self.successors: tuple[int, ...] = ()
        """Whom a leader that has resigned names, best log first."""
        self.outbox = Outbox(settings)
        self.deadline_ms = NEVER
        """When the role's time is up."""
        self.following = FetchFromLeaderState(settings, rng)
        self.persist = False
        """`state` has changed since it was last given out to be made durable."""
        self.notes: list[QuorumTraceEvent] = []

    @property
    def epoch(self) -> int:
        """The epoch this node is in."""
        return self.state.epoch

    @property
    def leader_id(self) -> int:
        """Return the epoch's leader, as far as this node knows; NO_NODE also if it was this node, and resigned."""
        if self.state.leader_id == self.node_id and self.role is not Role.LEADER:
            return NO_NODE
        return self.state.leader_id

    def check(self) -> None:
        """Assert what holds after each event."""
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
        """Change roles. What the old one awaited no longer matters."""
        self.role = role
        self.deadline_ms = deadline_ms
        self.tally = None
        self.following.begin()
        self.outbox.forget()
        if self.leadership is not None:
            parked, self.leadership = self.leadership.parked, None
            for waiting in parked.values():
                self.refuse_fetch(waiting.message, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert self.leadership is None, f"{role.value} begins without a leadership"
        ends = {"leo": self.log.end_offset, "hw": self.high_watermark}
        self.note("election", role=role.value, epoch=self.epoch, leader=self.leader_id, why=why, **ends)

    def become(self, role: Role, deadline_ms: int, why: str) -> None:
        """Change roles as `enter` does, if the table of roles allows it."""
        assert role in LEGAL[self.role], f"{self.role.value} must not become {role.value}"
        self.enter(role, deadline_ms, why)

    def move_to(self, epoch: int, *, leader_id: int = NO_NODE, voted_id: int = NO_NODE) -> None:
        """Change what must never be forgotten. Within an epoch the vote and the leader are set once."""
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
        """Know no leader in `epoch`: a voter stands after `pause_ms`, an observer asks around."""
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
        """Fetch from the leader that this node knows, for `patience_ms` without an answer."""
        leader_id = self.state.leader_id
        self.become(Role.FOLLOWER, now_ms + patience_ms, f"follows {leader_id}")
        self.following.begin(leader_id)
        self.outbox.due(leader_id, now_ms)

    def become_leader(self, now_ms: int, granting: tuple[int, ...]) -> None:
        """Lead the epoch that these voters granted."""
        self.move_to(self.epoch, leader_id=self.node_id)
        self.become(Role.LEADER, now_ms + self.timers.for_majority(), f"elected by {granting}")
        self.timers.found_leader()
        # Records of earlier epochs are committed only by one of this epoch after them: so there is one at once.
        start = self.local.append_leader_change(self.epoch, self.settings.voters, granting)
        self.leadership = LeaderState(self.settings, self.epoch, start, now_ms, self.heard)
        self.heard = None
        self.outbox.due_all(now_ms)

    def become_resigned(self, leadership: LeaderState, now_ms: int, why: str) -> None:
        """Lead this epoch no longer, and say so to all."""
        self.successors = leadership.successors()
        self.become(Role.RESIGNED, now_ms + self.timers.for_votes(fresh=False), why)
        self.outbox.due_all(now_ms)

    @property
    def is_fresh(self) -> bool:
        """True while, for all this node knows, the cluster never had a leader: nobody is worth waiting for."""
        return self.log.end_offset == 0 and self.state.leader_id == NO_NODE

    @property
    def has_no_next_epoch(self) -> bool:
        """True where this node would stand and cannot: no epoch follows the highest one, which somebody has claimed."""
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
