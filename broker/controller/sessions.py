"""Keeps the brokers' sessions on the active controller: when each last made contact and how far it has replayed.

The sessions are soft state, known to the active controller only and never written. A new controller gives every broker
a fresh session (mechanism R13 in docs/mechanisms.md), except the broker that was controller before: the new controller,
as a voter, knows when that broker last answered. Fencing and unfencing are decided elsewhere and go through the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage


@dataclass(frozen=True, slots=True)
class BrokerSessionChange:
    """Holds the effect of one command of a broker on its session."""

    broker_id: int
    metadata_offset: int
    """Gives the offset up to which the broker has replayed the metadata log; -1 if unknown."""
    begins_shutdown: bool = False
    """Is True if the records of the command move the broker's leaderships away, because the broker wants to stop."""


@dataclass(slots=True)
class BrokerSession:
    """Holds the time of a broker's last contact, and the offset up to which the broker has replayed the metadata log
    (-1 if unknown).
    """

    contact_ms: int
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    """Gives an offset at which all of the broker's leaderships have moved away, or None before its controlled shutdown.
    The broker may stop once all active brokers have replayed the metadata log up to there.
    """


class BrokerSessions:
    """Holds the broker sessions of one controller's term. Times are monotonic ms of the controller's clock."""

    def __init__(self, timeout_ms: int) -> None:
        assert timeout_ms > 0
        self.timeout_ms = timeout_ms
        self.sessions: dict[int, BrokerSession] = {}

    @classmethod
    def fresh(cls, timeout_ms: int, image: ClusterImage, now_ms: int) -> BrokerSessions:
        """Return sessions that begin now, so that silence during the change of controllers is not counted."""
        sessions = cls(timeout_ms)
        for broker in image.brokers.values():
            shutdown_offset = image.offset if broker.in_controlled_shutdown else None
            sessions.sessions[broker.id] = BrokerSession(now_ms, -1, shutdown_offset)
        assert sessions.sessions.keys() == image.brokers.keys()
        return sessions

    def apply(self, change: BrokerSessionChange, now_ms: int, offset: int) -> None:
        """Prolong a broker's session after its contact at `now_ms`. `offset` is the offset of the last appended record:
        if the change begins the broker's shutdown, all active brokers must replay up to it before the broker may stop.
        """
        session = self.sessions.setdefault(change.broker_id, BrokerSession(now_ms))
        assert session.contact_ms <= now_ms, f"contact at {now_ms} after one at {session.contact_ms}"
        session.contact_ms = now_ms
        # The offset may go back: a restarted broker has replayed nothing yet.
        session.metadata_offset = change.metadata_offset
        if change.begins_shutdown:
            assert offset >= 0
            session.shutdown_offset = offset

    def inherit(self, broker_id: int, heard_ms: int, now_ms: int, grace_ms: int) -> None:
        """Continue the session of the broker that led the quorum before, from its last answer at `heard_ms`, but for at
        least `grace_ms` from now, so that a living predecessor has time for a heartbeat.
        """
        assert heard_ms <= now_ms, f"heard at {heard_ms}, and it is {now_ms}"
        session = self.sessions.get(broker_id)
        if session is not None:
            earliest_ms = now_ms - self.timeout_ms + min(grace_ms, self.timeout_ms)
            session.contact_ms = max(heard_ms, earliest_ms)
            assert session.contact_ms <= now_ms

    def prolong_all(self, pause_ms: int, now_ms: int) -> None:
        """Prolong all sessions by `pause_ms`, in which the controller did not run and could receive no heartbeat."""
        assert pause_ms >= 0
        for session in self.sessions.values():
            session.contact_ms = min(session.contact_ms + pause_ms, now_ms)

    def is_valid(self, image: ClusterImage, broker_id: int, now_ms: int) -> bool:
        """Return whether a broker is unfenced and its session has not expired."""
        broker = image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return False
        session = self.sessions.get(broker_id)
        return session is not None and now_ms - session.contact_ms <= self.timeout_ms

    def expired(self, image: ClusterImage, now_ms: int) -> int | None:
        """Return the unfenced broker whose session expired first, or None if no session has expired."""
        silent = [
            (self.sessions[broker.id].contact_ms if broker.id in self.sessions else -1, broker.id)
            for broker in image.brokers.values()
            if not broker.fenced and not self.is_valid(image, broker.id, now_ms)
        ]
        return min(silent)[1] if silent else None

    def next_end_ms(self, image: ClusterImage) -> int | None:
        """Return the first ms at which a session of an unfenced broker is over; None if there is none."""
        lasting = (self.sessions[broker.id] for broker in image.brokers.values() if not broker.fenced)
        return min((session.contact_ms + self.timeout_ms + 1 for session in lasting), default=None)

    def may_stop(self, image: ClusterImage, broker_id: int) -> bool:
        """Return whether every active broker has replayed the records that moved this broker's leaderships away."""
        session = self.sessions.get(broker_id)
        if session is None or session.shutdown_offset is None:
            return True
        assert session.shutdown_offset <= image.offset
        return all(
            broker.id in self.sessions and self.sessions[broker.id].metadata_offset >= session.shutdown_offset
            for broker in image.brokers.values()
            if broker.active
        )
