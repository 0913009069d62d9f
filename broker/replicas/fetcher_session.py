"""Implements a follower's side of an incremental fetch session (KIP-227): the leader remembers the requested
partitions, and a request names only the changed ones.

Under load a follower sends a Fetch every few milliseconds, and nearly all of a broker's partitions are unchanged
between two Fetches. Naming every partition in every Fetch would cost more than fetching the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.fetch_sessions import INITIAL_EPOCH, next_epoch
from squall.broker.protocol.hot import NO_HIGH_WATERMARK, FetchRequestPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from squall.broker.replicas.hosted_partition import HostedPartition

PartKey = tuple[bytes, int]
LOST = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Lists the errors that mean that the leader has lost the session (it keeps a limited number, and none over a restart),
so that the follower must open another session.
"""


class PartitionFetchState:
    """Holds the fetch state of one followed partition: its leader epoch, and the time from which it may be fetched
    after an error.
    """

    __slots__ = ("failures", "hosted", "leader_epoch", "not_before_ms", "resolving")

    def __init__(self, hosted: HostedPartition) -> None:
        self.hosted = hosted
        self.leader_epoch = hosted.state.leader_epoch
        self.not_before_ms = 0
        self.failures = 0
        self.resolving = False
        """Is True while the leader is being asked for its log start and log end offsets."""


class RequestedPartition(NamedTuple):
    """Holds what was last requested for one partition in this session. The leader continues from it if later requests
    do not name the partition.
    """

    following: PartitionFetchState
    leader_epoch: int
    offset: int
    latest_epoch: int | None
    """Holds the latest leader epoch in the log's epoch cache; None if the cache is empty."""
    log_start: int


class FetchRequestData(NamedTuple):
    """Holds the partitions of a Fetch request: new or changed partitions, and partitions that leave the session."""

    topics: list[tuple[bytes, list[FetchRequestPartition]]]
    forgotten: list[tuple[bytes, list[int]]]


class FetcherSession:
    """Tracks the fetch session with one leader. Only one request is in flight at a time."""

    def __init__(self, part_max_bytes: int) -> None:
        self._part_max_bytes = part_max_bytes
        self.session_id = 0
        self.epoch = INITIAL_EPOCH
        self.asked: dict[PartKey, RequestedPartition] = {}
        """Maps each partition of the session to the newest request for it. The leader remembers the same."""

    def restart(self) -> None:
        """Make the next request name every partition and open a new session in place of the old session."""
        self.epoch = INITIAL_EPOCH
        self.asked.clear()

    def build_request(self, wanted: Collection[tuple[PartKey, PartitionFetchState]]) -> FetchRequestData:
        """Return the partitions that the next request must name: those that are new, changed or no longer wanted.
        Update `asked` to what the leader will remember once it has received that request.
        """
        asked = self.asked
        topics: dict[bytes, list[FetchRequestPartition]] = {}
        for key, following in wanted:
            hosted, epoch = following.hosted, following.leader_epoch
            log = hosted.log
            end, start = log.log_end_offset, log.log_start_offset
            latest = log.epochs.latest
            now = following, epoch, end, latest, start
            # Nearly all partitions are unchanged. A plain tuple equals a `RequestedPartition`, and is built faster.
            if asked.get(key) == now:
                continue
            asked[key] = RequestedPartition(*now)
            last = hosted.state.epoch_to_send(latest)
            part = FetchRequestPartition(key[1], epoch, end, last, start, self._part_max_bytes, NO_HIGH_WATERMARK)
            topics.setdefault(key[0], []).append(part)
        forgotten: dict[bytes, list[int]] = {}
        if len(asked) > len(wanted):
            still = dict(wanted)
            for key in [key for key in asked if key not in still]:
                del asked[key]
                forgotten.setdefault(key[0], []).append(key[1])
        return FetchRequestData(list(topics.items()), list(forgotten.items()))

    def answered(self, session_id: int) -> None:
        """Handle the session id of a response: 0 means that the leader has no room for another session."""
        # An answer with another session's id means that the leader and this follower disagree: begin anew.
        if session_id and (self.epoch == INITIAL_EPOCH or session_id == self.session_id):
            self.session_id = session_id
            self.epoch = next_epoch(self.epoch)
        else:
            self.restart()
