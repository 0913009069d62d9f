"""A consumer's incremental fetch session with one broker (KIP-227): it names only what is new or has moved."""

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
"""The broker has no such session any more: another one begins, and nothing has gone wrong."""

Asked = tuple[int, int, bytes]
"""Position, current leader epoch, topic id."""


class OffsetBounds(NamedTuple):
    """Holds the high watermark, last stable offset and log start of a partition, as a broker last reported them."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class FetchSessionRequest(NamedTuple):
    """Lists what a Fetch request names."""

    session_id: int
    epoch: int
    parts: Mapping[Place, Asked]
    """New, or moved."""
    forgotten: Mapping[Place, bytes]
    """Partitions that leave the session, with the topic ids that it knows."""


class ClientFetchSession:
    """The session with one broker. One request is under way at a time. `wanted`: false for a consumer without."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._asked: dict[Place, Asked] = {}
        self._told: dict[Place, OffsetBounds] = {}

    def restart(self) -> None:
        """The next request names every partition, and opens a session in the place of this one."""
        self._epoch = INITIAL_EPOCH
        self._asked = {}
        self._told = {}

    def name(self, wanted: Mapping[Place, Asked]) -> FetchSessionRequest:
        """Return what the broker does not know yet of the partitions that are to be read now."""
        if not self._wanted:
            return FetchSessionRequest(0, FINAL_EPOCH, wanted, {})
        before, self._asked = self._asked, dict(wanted)
        news = {place: asked for place, asked in wanted.items() if before.get(place) != asked}
        forgotten = {place: asked[2] for place, asked in before.items() if place not in wanted}
        for place in forgotten:
            self._told.pop(place, None)
        return FetchSessionRequest(self._id, self._epoch, news, forgotten)

    def answered(self, session_id: int) -> bool:
        """The broker has answered with a session's id, or with 0: it has no room for one. True where the answer may
        leave out what stands still: it is one to an incremental request of this session.
        """
        if session_id and (self._epoch == INITIAL_EPOCH or session_id == self._id):
            incremental = self._epoch != INITIAL_EPOCH
            self._id, self._epoch = session_id, next_epoch(self._epoch)
            return incremental
        self.restart()
        return False

    def told(self, place: Place, bounds: OffsetBounds | None) -> None:
        """Note what an answer of the session reported of a partition; None: an error."""
        if bounds is None:
            self._told.pop(place, None)
        elif self._epoch != INITIAL_EPOCH:
            self._told[place] = bounds

    def unchanged(self, place: Place) -> OffsetBounds | None:
        """Return the bounds of a partition that an incremental answer leaves out: those that the broker last reported
        still hold, and it has no records for this reader (KIP-227). None if the session has none.
        """
        return self._told.get(place)
