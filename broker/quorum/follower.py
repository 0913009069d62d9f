"""Tracks from which node this node fetches records, and how far a snapshot download is. A change of role resets the
state.
"""

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
    """Tracks a snapshot that is being fetched chunk by chunk; `position` is where the next chunk begins."""

    __slots__ = ("position", "snapshot")

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self.position = 0

    def is_next(self, reply: FetchSnapshotReply) -> bool:
        """Return whether a reply has the chunk that was requested: of this snapshot, at `position`, not empty, within
        its size.
        """
        awaited = (reply.error, reply.snapshot, reply.position) == (ErrorCode.NONE, self.snapshot, self.position)
        return awaited and 0 < reply.length <= reply.size - self.position


class FetchFromLeaderState:
    """Tracks a node's fetches from its leader. `Raft` also changes `download`; no other field is set from outside."""

    def __init__(self, settings: QuorumSettings, rng: random.Random) -> None:
        self._settings, self._rng = settings, rng
        self.source = NO_NODE
        """Names the node to fetch from; NO_NODE if this node leads or knows no node to ask."""
        self.fetched_ms: int | None = None
        """Gives the time of the source's last successful answer; None before the first."""
        self.probing = False
        """Is True while an observer without a leader asks one voter after another for the leader."""
        self.download: SnapshotDownload | None = None

    def begin(self, source: int = NO_NODE) -> None:
        """Fetch from `source` from now on, and forget the state of earlier fetches."""
        self.source, self.fetched_ms, self.probing, self.download = source, None, False, None

    def heard(self, source: int, now_ms: int) -> None:
        """Note that `source` answered a fetch, so it is the leader."""
        self.source, self.fetched_ms, self.probing = source, now_ms, False

    def hears_leader(self, now_ms: int) -> bool:
        """Return whether the leader has answered within the fetch time-out."""
        return self.fetched_ms is not None and now_ms - self.fetched_ms < self._settings.fetch_timeout_ms

    def leader_gone(self) -> None:
        """Note that the leader itself has said that it no longer leads."""
        self.fetched_ms = None

    def probe(self) -> int:
        """Begin to ask the voters for the leader, and return the first voter to ask."""
        self.probing = True
        # At random, so that all observers that lost the leader do not ask the same voter.
        self.source = self._rng.choice(self._settings.voters)
        return self.source

    def probe_next(self) -> int:
        """Return the next voter to ask for the leader."""
        voters = self._settings.voters
        self.source = voters[(voters.index(self.source) + 1) % len(voters)]
        return self.source

    def wants(self, snapshot: SnapshotId) -> None:
        """Note that this node needs `snapshot`, because the leader's log no longer has the next records, and begin to
        download it. A running download of the same snapshot continues.
        """
        if self.download is None or self.download.snapshot != snapshot:
            self.download = SnapshotDownload(snapshot)

    def request(self, epoch: int, log: LogExtent, high_watermark: int) -> Fetch | FetchSnapshot:
        """Return the next request to `source`: for a chunk of the snapshot that is being downloaded, or for records."""
        if self.download is not None:
            return FetchSnapshot(epoch, self.download.snapshot, self.download.position)
        wait_ms = self._settings.fetch_max_wait_ms
        return Fetch(epoch, log.end_offset, log.last_epoch, high_watermark, wait_ms)
