"""Whom a node asks for records, and what it is in the middle of with them. Gone when its role changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.quorum.messages import Fetch, FetchSnapshot, SnapshotId

if TYPE_CHECKING:
    import random

    from squall.broker.quorum.log_extent import LogExtent
    from squall.broker.quorum.messages import FetchSnapshotReply
    from squall.broker.quorum.settings import QuorumSettings


class SnapshotDownload:
    """A snapshot on its way here, piece by piece, each asked for at the end of those before it."""

    __slots__ = ("position", "snapshot")

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self.position = 0

    def is_next(self, reply: FetchSnapshotReply) -> bool:
        """True for the piece that was asked for: of this snapshot, from here on, not empty and not beyond its end."""
        awaited = (reply.error, reply.snapshot, reply.position) == (ErrorCode.NONE, self.snapshot, self.position)
        return awaited and 0 < reply.length <= reply.size - self.position


class FetchFromLeaderState:
    """Fields are for reading."""

    def __init__(self, settings: QuorumSettings, rng: random.Random) -> None:
        self._settings, self._rng = settings, rng
        self.source = NO_NODE
        """Who is asked for records; NO_NODE for a node that leads, or knows nobody to ask."""
        self.fetched_ms: int | None = None
        """When it last answered with something."""
        self.probing = False
        """An observer without a leader asks one voter after another; each answer tells who leads."""
        self.download: SnapshotDownload | None = None

    def begin(self, source: int = NO_NODE) -> None:
        """Ask this node from now on. Nothing has been heard from it yet."""
        self.source, self.fetched_ms, self.probing, self.download = source, None, False, None

    def heard(self, source: int, now_ms: int) -> None:
        """It answered: it leads."""
        self.source, self.fetched_ms, self.probing = source, now_ms, False

    def hears_leader(self, now_ms: int) -> bool:
        """True where the leader has answered lately."""
        return self.fetched_ms is not None and now_ms - self.fetched_ms < self._settings.fetch_timeout_ms

    def leader_gone(self) -> None:
        """The leader itself says that it leads no longer."""
        self.fetched_ms = None

    def probe(self) -> int:
        """Begin to ask around. Whom to ask first."""
        self.probing = True
        self.source = self._rng.choice(self._settings.voters)
        return self.source

    def probe_next(self) -> int:
        """Whom to ask next."""
        voters = self._settings.voters
        self.source = voters[(voters.index(self.source) + 1) % len(voters)]
        return self.source

    def wants(self, snapshot: SnapshotId) -> None:
        """The leader has nothing left but this snapshot of what would come next. One begun already is gone on with."""
        if self.download is None or self.download.snapshot != snapshot:
            self.download = SnapshotDownload(snapshot)

    def request(self, epoch: int, log: LogExtent, high_watermark: int) -> Fetch | FetchSnapshot:
        """Return the next request to the source."""
        if self.download is not None:
            return FetchSnapshot(epoch, self.download.snapshot, self.download.position)
        wait_ms = self._settings.fetch_max_wait_ms
        return Fetch(epoch, log.end_offset, log.last_epoch, high_watermark, wait_ms)
