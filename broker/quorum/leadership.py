"""Tracks the replicas that fetch from a leader, and answers their fetches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from squall.broker.protocol.errors import ErrorCode
from squall.broker.quorum.messages import Diverging, Fetch, FetchReply, QuorumMessage, SnapshotId
from squall.broker.quorum.outbox import NEVER

if TYPE_CHECKING:
    from squall.broker.quorum.log_extent import LogExtent
    from squall.broker.quorum.settings import QuorumSettings

# As Kafka's LeaderState (OBSERVER_SESSION_TIMEOUT_MS): no list says which observers there are.
OBSERVER_FORGOTTEN_MS = 300_000


@dataclass(slots=True)
class ReplicaState:
    """Tracks one fetching replica. `end_offset` is the offset before which it holds all records durably; -1 before its
    first fetch in the epoch.
    """

    end_offset: int
    fetched_ms: int
    caught_up_ms: int = -1
    """Gives the time of the replica's last fetch from the leader's log end; -1 if there was none."""


class ParkedFetch(NamedTuple):
    """Holds a fetch that found no new records, until there are some or its time is up."""

    message: QuorumMessage
    fetch: Fetch
    deadline_ms: int


class LeaderState:
    """Holds the leader's view of the nodes that fetch from it: how far each is, its parked fetch, and which voters know
    this leader. The state is dropped when the epoch ends.
    """

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
        """Holds the leader that last answered this node, and the time of that answer in ms; None if this node does not
        know.

        There may have been later leaders that never answered this node, but they have committed nothing. This node was
        elected, so it holds all committed records, and it fetched them from the leaders that committed them.
        """
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        """Gives the offset of the leader-change record."""
        others = [voter for voter in settings.voters if voter != settings.node_id]
        self.voters = {voter: ReplicaState(-1, now_ms) for voter in others}
        self.observers: dict[int, ReplicaState] = {}
        self.parked: dict[int, ParkedFetch] = {}
        """Holds the newest parked fetch of each replica."""
        self._begun: dict[int, bool] = dict.fromkeys(others, False)

    # ---------------------------------------------------------------------------------------------- what it adds up to

    def committed_offset(self, own_synced_offset: int) -> int:
        """Return the exclusive end of the committed records, or 0 if this epoch has committed nothing.

        A record is committed if a majority of the voters holds it durably; the leader counts after its own sync.
        Records of earlier epochs count only once the first record of this epoch is committed: until then they can be
        overwritten even if a majority has them.
        """
        ends = sorted([own_synced_offset, *(replica.end_offset for replica in self.voters.values())], reverse=True)
        # Descending: at least a majority of the voters have reached the majority-th largest end.
        end = ends[self._settings.majority - 1]
        return end if end > self.epoch_start_offset else 0

    def majority_heard_ms(self, now_ms: int) -> int:
        """Return the latest time, in ms, since which a majority of the voters has fetched. The leader counts as if it
        had fetched now: of three voters, the result is the later one of the other two voters' last fetches.
        """
        heard = sorted([now_ms, *(replica.fetched_ms for replica in self.voters.values())], reverse=True)
        return heard[self._settings.majority - 1]

    def is_known(self, high_watermark: int, now_ms: int) -> bool:
        """Return whether every other voter that still fetches has learned this high watermark and waits for a higher
        one.
        """
        for voter, replica in self.voters.items():
            waiting = self.parked.get(voter)
            knows = waiting is not None and waiting.fetch.high_watermark >= high_watermark
            if not knows and now_ms - replica.fetched_ms <= self._settings.fetch_max_wait_ms:
                return False
        return True

    def successors(self) -> tuple[int, ...]:
        """Return the other voters, those with the longest logs first: a leader that resigns names them as its
        successors.
        """
        return tuple(sorted(self.voters, key=lambda voter: (-self.voters[voter].end_offset, voter)))

    # ---------------------------------------------------------------------------------------------------------- fetches

    def replica(self, sender: int, now_ms: int) -> ReplicaState:
        """Return the state of the replica that sent a request for records or a snapshot, and set its contact time to
        now.
        """
        replica = self.voters.get(sender)
        if replica is None:
            replica = self.observers.setdefault(sender, ReplicaState(-1, now_ms))
            self._forget_observers(now_ms)
        replica.fetched_ms = now_ms
        return replica

    def heard(
        self, message: QuorumMessage, fetch: Fetch, log: LogExtent, snapshot: SnapshotId | None, now_ms: int
    ) -> FetchReply | None:
        """Update the sender's state from a fetch of this epoch. Returns a reply if the sender's log diverges or needs a
        snapshot.
        """
        assert message.sender != self._settings.node_id, "a leader does not fetch from itself"
        assert fetch.epoch == self.epoch, f"a fetch of epoch {fetch.epoch} in epoch {self.epoch}"
        replica = self.replica(message.sender, now_ms)
        # First, because `agrees` cannot judge records that the log has dropped.
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
        """Park a fetch until `answer` has new data for the replica. If an earlier fetch of the replica is parked,
        return it: the caller answers it without records.
        """
        older = self.parked.pop(message.sender, None)
        self.parked[message.sender] = ParkedFetch(message, fetch, now_ms + fetch.max_wait_ms)
        return older.message if older is not None else None

    def answer(self, log: LogExtent, high_watermark: int, now_ms: int) -> list[tuple[QuorumMessage, FetchReply]]:
        """Return replies to the parked fetches that have waited long enough: there are new records or a higher high
        watermark for the replica, or its max wait is over.
        """
        answers = []
        for waiting in self.parked.values():
            fetch = waiting.fetch
            news = log.end_offset > fetch.offset or high_watermark > fetch.high_watermark
            if news or now_ms >= waiting.deadline_ms:
                answers.append((waiting.message, self.serve(log, high_watermark, fetch.offset)))
        for message, _ in answers:
            del self.parked[message.sender]  # After the loop: it iterates over the parked fetches.
        return answers

    def next_deadline_ms(self) -> int:
        """Return when the first parked fetch must be answered."""
        return min([waiting.deadline_ms for waiting in self.parked.values()], default=NEVER)

    def serve(self, log: LogExtent, high_watermark: int, offset: int) -> FetchReply:
        """Return the reply with the log's records from `offset` on."""
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
        """Note a voter's answer to BeginEpoch: whether it accepted this node as the epoch's leader."""
        self._begun[voter] = accepted

    def next_begin_ms(self, voter: int) -> int:
        """Return when to send this voter a BeginEpoch: at the start of the epoch, and again whenever the voter does not
        fetch.
        """
        if not self._begun[voter]:
            return 0
        # Half the time-out: a voter that does not know the leader learns of it before it begins an election.
        return self.voters[voter].fetched_ms + self._settings.fetch_timeout_ms // 2
