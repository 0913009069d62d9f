"""A node's seat in the quorum: what it is in its epoch, what it must never forget, and how it changes.

Everything else, the messages and the clock, is `Raft`'s, which sits on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.protocol.errors import ErrorCode
from broker.quorum.effects import Note
from broker.quorum.election import LEGAL, Role, Tally
from broker.quorum.following import Following
from broker.quorum.leadership import Leadership
from broker.quorum.local_log import LocalLog
from broker.quorum.messages import NOBODY, FetchReply, Message, SnapshotId
from broker.quorum.outbox import NEVER, Outbox
from broker.quorum.patience import Patience
from broker.quorum.state import QuorumState

if TYPE_CHECKING:
    import random

    from broker.quorum.settings import QuorumSettings
    from broker.quorum.shape import LogShape


class Seat:
    """Fields without an underscore are for reading."""

    def __init__(
        self,
        settings: QuorumSettings,
        rng: random.Random,
        state: QuorumState,
        log: LogShape,
        snapshot: SnapshotId | None = None,
    ) -> None:
        """As for `Raft`."""
        self.node_id = settings.node_id
        self.role = Role.UNATTACHED
        self.log = log
        self.snapshot = snapshot
        """The newest one that this node has, all of it committed and durable."""
        self.high_watermark = snapshot.end_offset if snapshot is not None else 0
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
        self._following = Following(settings, rng)
        self._persist = False
        self._notes: list[Note] = []

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

    def _enter(self, role: Role, deadline_ms: int, why: str) -> None:
        """Change roles. What the old one awaited no longer matters."""
        self.role = role
        self._deadline_ms = deadline_ms
        self._tally = None
        self._following.begin()
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
        self._following.begin(leader_id)
        self._outbox.due(leader_id, now_ms)

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

    def _refuse_fetch(self, message: Message, error: ErrorCode) -> None:
        self._outbox.answer(message, FetchReply(error, self.epoch, self.leader_id))

    def _probe(self, now_ms: int) -> None:
        self._outbox.due(self._following.probe(), now_ms)

    def _probe_next(self, at_ms: int) -> None:
        self._outbox.due(self._following.source, NEVER)
        self._outbox.due(self._following.probe_next(), at_ms)

    def _note(self, event: str, **fields: Any) -> None:
        self._notes.append(Note(event, fields))
