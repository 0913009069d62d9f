"""Implements a consumer's incremental fetch session with one broker (KIP-227): a request names only partitions that are
new or have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, next_epoch
from squall.workloads.client.cluster import Place

LOST = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Lists the errors that mean that the broker has lost the session. The consumer opens another session; this is no
failure.
"""

Asked = tuple[int, int, bytes]
"""Holds the position, the current leader epoch and the topic id of a requested partition."""


class OffsetBounds(NamedTuple):
    """Holds the high watermark, last stable offset and log start offset of a partition, as a broker last reported them.
    """

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class FetchSessionRequest(NamedTuple):
    """Holds the fields of a Fetch request that depend on the session: its id and epoch, and new, changed and removed
    partitions.
    """

    session_id: int
    epoch: int
    parts: Mapping[Place, Asked]
    """Holds the partitions that are new or have changed."""
    forgotten: Mapping[Place, bytes]
    """Maps the partitions that leave the session to their topic ids in the session."""


class ClientFetchSession:
    """Tracks a consumer's incremental fetch session with one broker (KIP-227). Only one request is in flight at a time.
    `wanted` is false for a consumer that uses no sessions.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._asked: dict[Place, Asked] = {}
        self._reported: dict[Place, OffsetBounds] = {}

    def restart(self) -> None:
        """Make the next request name every partition and open a session in place of this one."""
        self._epoch = INITIAL_EPOCH
        self._asked = {}
        self._reported = {}

    def request_for(self, wanted: Mapping[Place, Asked]) -> FetchSessionRequest:
        """Update the session to these partitions, and return the request that names what the broker does not know yet.
        """
        if not self._wanted:
            return FetchSessionRequest(0, FINAL_EPOCH, wanted, {})
        # Noted before the broker has answered: after a failed request `restart` makes the next one name all again.
        before, self._asked = self._asked, dict(wanted)
        news = {place: asked for place, asked in wanted.items() if before.get(place) != asked}
        forgotten = {place: asked[2] for place, asked in before.items() if place not in wanted}
        for place in forgotten:
            self._reported.pop(place, None)
        return FetchSessionRequest(self._id, self._epoch, news, forgotten)

    def answered(self, session_id: int) -> bool:
        """Handle the session id of a response. Return whether the response may omit unchanged partitions, because it
        answers an incremental request of this session.

        An id of 0 means that the broker has no room for a session; then the next request names all partitions again.
        """
        if session_id and (self._epoch == INITIAL_EPOCH or session_id == self._id):
            # The response that opens a session is a full one.
            incremental = self._epoch != INITIAL_EPOCH
            self._id, self._epoch = session_id, next_epoch(self._epoch)
            return incremental
        self.restart()
        return False

    def record(self, place: Place, bounds: OffsetBounds | None) -> None:
        """Remember the offsets that a response reported for a partition, for later responses that omit the partition.
        Forget them if `bounds` is None, because the response had an error for the partition.
        """
        if bounds is None:
            self._reported.pop(place, None)
        # Without a session no response omits a partition, so nothing is looked up later.
        elif self._epoch != INITIAL_EPOCH:
            self._reported[place] = bounds

    def unchanged(self, place: Place) -> OffsetBounds | None:
        """Return the last reported offsets of a partition that an incremental response omits: they are still valid, and
        there are no records for this consumer (KIP-227). None if the session has none.
        """
        return self._reported.get(place)
