"""Tracks the replicas that fetch from a leader, and answers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from squall.broker.protocol.errors import ErrorCode
from squall.broker.quorum.messages import Diverging, Fetch, FetchReply, QuorumMessage, SnapshotId
from squall.broker.quorum.outbox import NEVER

if TYPE_CHECKING:
    from squall.broker.quorum.log_extent import LogExtent
    from squall.broker.quorum.settings import QuorumSettings

OBSERVER_FORGOTTEN_MS = 300_000


@dataclass(slots=True)
class ReplicaState:
    """Tracks one fetcher. `end_offset`: what it has said to hold durably in this epoch, -1 before it has spoken."""

    end_offset: int
    fetched_ms: int
    caught_up_ms: int = -1
    """When it last asked for the leader's end of log; -1 for never."""


class ParkedFetch(NamedTuple):
    """A fetch that found nothing new."""

    message: QuorumMessage
    fetch: Fetch
    deadline_ms: int


class LeaderState:
    """A leader's view of its epoch. Gone when the epoch is."""

    def __init__(
        self,
        settings: QuorumSettings,
        epoch: int,
        epoch_start_offset: int,
        now_ms: int,
        predecessor: tuple[int, int] | None = None,
    ) -> None:
        self._settings = settings
        self.predecessor = predecessor
        """Who led before, and when it last answered this node; None where this node does not know.

        Nobody led for long in between: what that one committed would be in this log, and so be its answer.
        """
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        """Offset of the leader-change record."""
        others = [voter for voter in settings.voters if voter != settings.node_id]
        self.voters = {voter: ReplicaState(-1, now_ms) for voter in others}
        self.observers: dict[int, ReplicaState] = {}
        self.parked: dict[int, ParkedFetch] = {}
        """At most one for each replica: the newest."""
        self._begun: dict[int, bool] = dict.fromkeys(others, False)

    # ---------------------------------------------------------------------------------------------- what it adds up to

    def committed_offset(self, own_synced_offset: int) -> int:
        """The end of what is committed, or 0 where this epoch has committed nothing.

        Held durably by a majority of the voters, the leader with its own sync included; and only with the record that
        began the epoch among it: what earlier epochs wrote can still be overwritten, even where a majority has it.
        """
        ends = sorted([own_synced_offset, *(replica.end_offset for replica in self.voters.values())], reverse=True)
        end = ends[self._settings.majority - 1]
        return end if end > self.epoch_start_offset else 0

    def majority_heard_ms(self, now_ms: int) -> int:
        """The latest time since which a majority of the voters, the leader included, has fetched."""
        heard = sorted([now_ms, *(replica.fetched_ms for replica in self.voters.values())], reverse=True)
        return heard[self._settings.majority - 1]

    def is_known(self, high_watermark: int, now_ms: int) -> bool:
        """Every other voter that still fetches waits here for more than this high watermark."""
        for voter, replica in self.voters.items():
            waiting = self.parked.get(voter)
            knows = waiting is not None and waiting.fetch.high_watermark >= high_watermark
            if not knows and now_ms - replica.fetched_ms <= self._settings.fetch_max_wait_ms:
                return False
        return True

    def successors(self) -> tuple[int, ...]:
        """The other voters, those with the longest logs first."""
        return tuple(sorted(self.voters, key=lambda voter: (-self.voters[voter].end_offset, voter)))

    # ---------------------------------------------------------------------------------------------------------- fetches

    def replica(self, sender: int, now_ms: int) -> ReplicaState:
        """Return the state of the replica that asks, for records or for a snapshot: this node has heard of it now."""
        replica = self.voters.get(sender)
        if replica is None:
            replica = self.observers.setdefault(sender, ReplicaState(-1, now_ms))
            self._forget_observers(now_ms)
        replica.fetched_ms = now_ms
        return replica

    def heard(
        self, message: QuorumMessage, fetch: Fetch, log: LogExtent, snapshot: SnapshotId | None, now_ms: int
    ) -> FetchReply | None:
        """A fetch of this epoch: take in where the fetcher stands. Returns the reply if its log leaves the leader's."""
        assert message.sender != self._settings.node_id, "a leader does not fetch from itself"
        assert fetch.epoch == self.epoch, f"a fetch of epoch {fetch.epoch} in epoch {self.epoch}"
        replica = self.replica(message.sender, now_ms)
        if log.has_left(fetch.offset, fetch.last_epoch):
            assert snapshot is not None, "what the log no longer holds is in a snapshot"
            return FetchReply(ErrorCode.NONE, self.epoch, self._settings.node_id, snapshot=snapshot)
        if not log.agrees(fetch.offset, fetch.last_epoch):
            where = Diverging(*log.end_of(fetch.last_epoch))
            return FetchReply(ErrorCode.NONE, self.epoch, self._settings.node_id, diverging=where)
        assert log.start_offset <= fetch.offset, f"the log no longer holds {fetch.offset}"
        assert fetch.offset <= log.end_offset, f"{fetch.offset} is beyond {log.end_offset}"
        replica.end_offset = fetch.offset
        if fetch.offset >= log.end_offset:
            replica.caught_up_ms = now_ms
        return None

    def park(self, message: QuorumMessage, fetch: Fetch, now_ms: int) -> QuorumMessage | None:
        """Keep a fetch until `answer` has news for it. Returns the replica's older one, to be answered empty."""
        older = self.parked.pop(message.sender, None)
        self.parked[message.sender] = ParkedFetch(message, fetch, now_ms + fetch.max_wait_ms)
        return older.message if older is not None else None

    def answer(self, log: LogExtent, high_watermark: int, now_ms: int) -> list[tuple[QuorumMessage, FetchReply]]:
        """Parked fetches that get an answer now: at once on records or a high watermark new to them, else in time."""
        answers = []
        for waiting in self.parked.values():
            fetch = waiting.fetch
            news = log.end_offset > fetch.offset or high_watermark > fetch.high_watermark
            if news or now_ms >= waiting.deadline_ms:
                answers.append((waiting.message, self.serve(log, high_watermark, fetch.offset)))
        for message, _ in answers:
            del self.parked[message.sender]
        return answers

    def next_deadline_ms(self) -> int:
        """Return when the first parked fetch has waited long enough."""
        return min([waiting.deadline_ms for waiting in self.parked.values()], default=NEVER)

    def serve(self, log: LogExtent, high_watermark: int, offset: int) -> FetchReply:
        """Return the reply with what the log has from `offset` on."""
        return FetchReply(
            ErrorCode.NONE,
            self.epoch,
            self._settings.node_id,
            high_watermark,
            log.start_offset,
            offset=offset,
            limit=max(offset, log.end_offset),
        )

    def _forget_observers(self, now_ms: int) -> None:
        for replica_id, replica in list(self.observers.items()):
            if now_ms - replica.fetched_ms > OBSERVER_FORGOTTEN_MS:
                del self.observers[replica_id]

    # ----------------------------------------------------------------------------------------------- telling the voters

    def acknowledged(self, voter: int, accepted: bool) -> None:
        """A voter has answered BeginEpoch."""
        self._begun[voter] = accepted

    def next_begin_ms(self, voter: int) -> int:
        """Return when to send this voter a BeginEpoch (again): at the start of the epoch, and whenever it does not
        fetch.
        """
        if not self._begun[voter]:
            return 0
        return self.voters[voter].fetched_ms + self._settings.fetch_timeout_ms // 2
