"""Keeps incremental fetch sessions (KIP-227): remembers the partitions of a fetcher and returns only changed
partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.fetch_sessions import FINAL_EPOCH, FIRST_EPOCH, INITIAL_EPOCH, next_epoch

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from squall.broker.protocol.hot import FetchIn, FetchRequestPartition, FetchResponsePartition
    from squall.broker.replicas.hosted_partition import HostedPartition

_MAX_SESSION_ID = 2**31 - 1
_EVICT_AFTER_MS = 120_000
LOOK_EVERY_MS = 100
"""Gives the interval, in ms, at which a follower's fetch also checks the partitions of its session that the request
does not name. A check counts the follower's fetch offset as an acknowledgement of the records before that offset.
"""

PartKey = tuple[bytes, int]
"""Identifies a partition: the topic's id or name as in the request, and the partition's index."""


class PartitionSentState(NamedTuple):
    """Holds the high watermark and the log start offset that the broker last sent for one partition of a session."""

    high_watermark: int
    log_start_offset: int


class PartitionRequest:
    """Represents one partition of a fetch: the offset to read from, and the local replica, if there is one."""

    __slots__ = ("hosted", "key", "part", "sent")

    def __init__(
        self,
        key: bytes,
        part: FetchRequestPartition,
        hosted: HostedPartition | None,
        sent: PartitionSentState | None = None,
    ) -> None:
        self.key, self.part, self.hosted = key, part, hosted
        self.sent = sent
        """Holds the high watermark and the log start offset that a follower's session last sent for this partition.
        None if it has sent none, and for all other fetches.
        """


class SessionError(Exception):
    """Says that the session of a request does not exist, is at another epoch, or names topics in the other way (by id
    or by name). `error` is the top-level error to respond.
    """

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = int(error)


def without_duplicates(
    topics: Sequence[tuple[bytes, Sequence[FetchRequestPartition]]],
) -> list[tuple[bytes, FetchRequestPartition]]:
    """Return topic and partition of a full fetch without duplicates. As in Kafka's FetchRequest.fetchData, a repeated
    partition keeps its first position and has the values of its last mention.
    """
    listed = [(key, part) for key, parts in topics for part in parts]
    if len(listed) == 1:
        return listed
    # Nearly always there are no duplicates. Sets of plain numbers show that, and cost less than the table below.
    if len(topics) == 1 or len({key for key, _ in topics}) == len(topics):
        for _, parts in topics:
            if len(parts) > 1 and len({part[0] for part in parts}) < len(parts):
                break
        else:
            return listed
    places = {(key, part[0]): part for key, part in listed}
    return [(key, part) for (key, _), part in places.items()]


class FetchSession:
    """Holds the partitions of one fetcher, in the order in which they are served."""

    def __init__(self, session_id: int, replica_id: int, now_ms: int, *, by_ids: bool = False) -> None:
        """Create an empty session. With `by_ids` its partitions are keyed by topic ids, else by topic names."""
        self.session_id, self.replica_id, self.last_used_ms, self.by_ids = session_id, replica_id, now_ms, by_ids
        self.epoch = FIRST_EPOCH
        self.full = True
        self.parts: dict[PartKey, FetchRequestPartition] = {}
        self.sent: dict[PartKey, PartitionSentState] = {}
        self.wants: dict[PartKey, PartitionRequest] = {}
        """Caches one `PartitionRequest` per partition. Its `part` is the object in `parts` from which it was made. A
        later request that names the partition puts a new object into `parts`, and the cached `PartitionRequest` is then
        outdated.
        """
        self.looked_ms, self.called = -LOOK_EVERY_MS, (-1, 0)
        """Describe the last fetch of this follower that checked all partitions: its time, and the pair (the follower's
        broker epoch, `ReplicaManager.wake_round`) at that time. A fetch checks all partitions again after
        LOOK_EVERY_MS, or once the pair differs: the follower has registered anew, or a coordinator has woken the
        followers.
        """

    def update(self, request: FetchIn) -> None:
        """Apply a request to the session: add partitions, change the fetch offsets of partitions, or remove partitions.
        """
        for key, parts in request.topics:
            for part in parts:
                self.parts[key, part.index] = part
        for key, indexes in request.forgotten:
            for index in indexes:
                self.parts.pop((key, index), None)
                self.sent.pop((key, index), None)
                self.wants.pop((key, index), None)

    def changed(self, outs: list[tuple[bytes, FetchResponsePartition]]) -> list[tuple[bytes, FetchResponsePartition]]:
        """Return the results in `outs` that the fetcher must get. Partitions with data move to the back of the queue,
        so that the other partitions are served first next time.
        """
        tell, sent = [], self.sent
        for item in outs:
            key, out = item
            place, offsets, records = (key, out.index), (out.high_watermark, out.log_start_offset), out.records
            # Most partitions have not changed. A plain tuple equals a `PartitionSentState`, and is built faster.
            if sent.get(place) == offsets and not (records or self.full or out.error or out.diverging):
                continue
            sent[place] = now = tuple.__new__(PartitionSentState, offsets)
            want = self.wants.get(place)
            if want is not None:
                want.sent = now
            tell.append(item)
            if records and place in self.parts:
                self.parts[place] = self.parts.pop(place)
        self.full = False
        return tell


class FetchSessions:
    """Keeps all sessions of a broker: at most `slots` (max.incremental.fetch.session.cache.slots), with at most
    `partitions` partitions together. A fetcher without a session names all of its partitions in each request, as with
    Kafka. Followers may evict the sessions of consumers (KIP-227 calls the sessions of followers privileged).
    """

    def __init__(self, slots: int, rng: random.Random, partitions: int = 200_000) -> None:
        self._slots, self._rng, self._free_partitions = slots, rng, partitions
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0

    def open(
        self, request: FetchIn, now_ms: int, *, by_ids: bool = False
    ) -> tuple[FetchSession | None, Iterable[tuple[bytes, FetchRequestPartition]]]:
        """Return the session of a request, if any, and the requested partitions. The caller must iterate over the
        partitions before the session changes again. `by_ids` is true if the request's version names topics by id.

        Raises SessionError with error 70 for an unknown session, 71 for a session at another epoch, and 106 if the
        session names topics by id and the request by name, or the reverse. Error 106 comes after a fetcher has changed
        its version; the fetcher then begins a new session.
        """
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            # The fetcher begins anew, or ends: it does not use the session that it names any more.
            self._drop(request.session_id)
            session = self._create(request, now_ms, by_ids) if request.session_epoch == INITIAL_EPOCH else None
            return session, without_duplicates(request.topics)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise SessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_ids != by_ids:
            raise SessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = now_ms
        if not self._update(session, request, now_ms):
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return session, ((key, part) for (key, _), part in session.parts.items())

    def _create(self, request: FetchIn, now_ms: int, by_ids: bool) -> FetchSession | None:
        if not request.topics:
            return None
        if len(self._sessions) >= self._slots and not self._evict(now_ms, request.replica_id, for_slot=True):
            return None
        session_id = self._rng.randint(1, _MAX_SESSION_ID)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, _MAX_SESSION_ID)
        session = self._sessions[session_id] = FetchSession(session_id, request.replica_id, now_ms, by_ids=by_ids)
        return session if self._update(session, request, now_ms) else None

    def _update(self, session: FetchSession, request: FetchIn, now_ms: int) -> bool:
        """Apply a request to its session. If the broker's sessions would have too many partitions, drop the session and
        return False.
        """
        before = len(session.parts)
        session.update(request)
        self._free_partitions -= len(session.parts) - before
        while self._free_partitions < 0:
            if not self._evict(now_ms, session.replica_id, for_slot=False):
                self._drop(session.session_id)
                return False
        return True

    def _evict(self, now_ms: int, for_whom: int, *, for_slot: bool) -> bool:
        """End one session to make room for another, and return False if none may be ended. `for_whom` is the replica id
        of the fetcher that needs room, or -1 for a consumer. With `for_slot` it needs a session, else more partitions.

        A session that has not been used for _EVICT_AFTER_MS ends first. If there is none, a follower may end a
        consumer's session: the smallest one for a slot, the largest one for partitions.
        """
        found = next((s for s in self._sessions.values() if now_ms - s.last_used_ms > _EVICT_AFTER_MS), None)
        if found is None and for_whom >= 0:
            of_consumers = (s for s in self._sessions.values() if s.replica_id < 0)
            choose = min if for_slot else max
            found = choose(of_consumers, key=lambda s: len(s.parts), default=None)
        if found is None:
            return False
        self._drop(found.session_id)
        self.evictions += 1
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._free_partitions += len(session.parts)
