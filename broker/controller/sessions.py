"""Keeps the sessions of brokers, as the active controller sees them: when each last made contact and how far it has
read.

This is soft state, known to the active controller alone and never written down: a new controller begins by giving every
broker a fresh session (R13), but for its predecessor, which it has heard as a voter. What follows from it, fencing and
unfencing, is decided elsewhere and goes through the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage


@dataclass(frozen=True, slots=True)
class SessionChange:
    """Holds what one command of a broker changes in its session."""

    broker_id: int
    metadata_offset: int
    """Offset up to which the broker has replayed the metadata log, -1 when unknown."""
    begins_shutdown: bool = False
    """The records of this decision move its leaderships away."""


@dataclass(slots=True)
class BrokerSession:
    """Holds the state of one broker's session."""

    contact_ms: int
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    """End of the records that moved its leaderships away: it may stop once every active broker has read them."""


class BrokerSessions:
    """The sessions of one controller's term. Times are monotonic milliseconds of the controller's clock."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.sessions: dict[int, BrokerSession] = {}

    @classmethod
    def fresh(cls, timeout_ms: int, image: ClusterImage, now_ms: int) -> BrokerSessions:
        """Sessions that all begin now: silence during the change of controllers is nobody's fault."""
        sessions = cls(timeout_ms)
        for broker in image.brokers.values():
            shutdown_offset = image.offset if broker.in_controlled_shutdown else None
            sessions.sessions[broker.id] = BrokerSession(now_ms, -1, shutdown_offset)
        return sessions

    def apply(self, change: SessionChange, now_ms: int, offset: int) -> None:
        """Note contact at `now_ms`; `offset` is that of the last record appended so far."""
        session = self.sessions.setdefault(change.broker_id, BrokerSession(now_ms))
        assert session.contact_ms <= now_ms, f"contact at {now_ms} after one at {session.contact_ms}"
        session.contact_ms = now_ms
        # It may go back: the broker has started anew, and has read nothing yet.
        session.metadata_offset = change.metadata_offset
        if change.begins_shutdown:
            session.shutdown_offset = offset

    def inherit(self, broker_id: int, heard_ms: int, now_ms: int, grace_ms: int) -> None:
        """This broker led the quorum before, and last answered it at `heard_ms`: its session goes on from there, and
        lasts at least `grace_ms` from now, so that a predecessor that lives has time to say so.
        """
        assert heard_ms <= now_ms, f"heard at {heard_ms}, and it is {now_ms}"
        session = self.sessions.get(broker_id)
        if session is not None:
            earliest_ms = now_ms - self.timeout_ms + min(grace_ms, self.timeout_ms)
            session.contact_ms = max(heard_ms, earliest_ms)
            assert session.contact_ms <= now_ms

    def forgive(self, pause_ms: int, now_ms: int) -> None:
        """Count `pause_ms` against nobody: the controller itself was not running and could hear no heartbeat."""
        assert pause_ms >= 0
        for session in self.sessions.values():
            session.contact_ms = min(session.contact_ms + pause_ms, now_ms)

    def is_valid(self, image: ClusterImage, broker_id: int, now_ms: int) -> bool:
        """True while an unfenced broker's session lasts. A fenced broker has none to defend."""
        broker = image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return False
        session = self.sessions.get(broker_id)
        return session is not None and now_ms - session.contact_ms <= self.timeout_ms

    def expired(self, image: ClusterImage, now_ms: int) -> int | None:
        """The unfenced broker that has been silent longest, beyond its time-out; None where there is none."""
        silent = [
            (self.sessions[broker.id].contact_ms if broker.id in self.sessions else -1, broker.id)
            for broker in image.brokers.values()
            if not broker.fenced and not self.is_valid(image, broker.id, now_ms)
        ]
        return min(silent)[1] if silent else None

    def next_end_ms(self, image: ClusterImage) -> int | None:
        """The first millisecond at which a session that lasts now would be over; None where none lasts."""
        lasting = (self.sessions[broker.id] for broker in image.brokers.values() if not broker.fenced)
        return min((session.contact_ms + self.timeout_ms + 1 for session in lasting), default=None)

    def may_stop(self, image: ClusterImage, broker_id: int) -> bool:
        """True once every active broker has replayed the records that moved this one's leaderships away."""
        session = self.sessions.get(broker_id)
        if session is None or session.shutdown_offset is None:
            return True
        return all(
            broker.id in self.sessions and self.sessions[broker.id].metadata_offset >= session.shutdown_offset
            for broker in image.brokers.values()
            if broker.active
        )
