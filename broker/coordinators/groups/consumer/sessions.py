"""Keeps the deadlines after which members of consumer groups are removed: for heartbeats, for revocations, and for the
requests of classic members. The deadlines are in memory only, and are lost with the leadership.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.consumer.members import MemberState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from squall.broker.coordinators.groups.consumer.group import ConsumerGroup

AGAIN_MS = 500
"""Gives the time in ms after which an expired member is checked again if its removal could not be written."""


class MemberSessions:
    """Holds the monotonic deadlines, in ms, after which members of one group are removed."""

    __slots__ = ("_owed", "_revoking", "_sessions")

    def __init__(self) -> None:
        self._sessions: dict[str, int] = {}
        self._revoking: dict[str, tuple[int, int]] = {}
        """Maps a member id to the epoch in which it was asked to revoke partitions, and to the deadline."""
        self._owed: dict[str, int] = {}
        """Maps a classic member's id to the deadline by which it has to join again or to fetch its assignment."""

    def extend_session(self, member_id: str, until_ms: int) -> None:
        """Extend a member's session until `until_ms`."""
        self._sessions[member_id] = until_ms

    def track_revocation(self, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        """Start the rebalance time-out of a member when it is first asked to revoke partitions. Clear it once the
        member has revoked them.
        """
        assert member_id in group.members
        current = group.now_of(member_id)
        if current.state != MemberState.UNREVOKED:
            self._revoking.pop(member_id, None)
        # Heartbeats do not extend this deadline: a live member that revokes nothing would block the group for ever.
        elif self._revoking.get(member_id, (None, 0))[0] != current.epoch:
            self._revoking[member_id] = current.epoch, now_ms + group.members[member_id].rebalance_ms
        assert (member_id in self._revoking) == (current.state == MemberState.UNREVOKED)

    def expect_request(self, member_id: str, until_ms: int) -> None:
        """Set the deadline for a classic member's next JoinGroup or SyncGroup, unless it has a deadline already."""
        self._owed.setdefault(member_id, until_ms)

    def clear_expected_request(self, member_id: str) -> None:
        """Clear the deadline for a classic member's JoinGroup or SyncGroup, because the request has arrived."""
        self._owed.pop(member_id, None)

    def forget(self, member_id: str) -> None:
        """Clear all deadlines of a member."""
        self._owed.pop(member_id, None)
        self._sessions.pop(member_id, None)
        self._revoking.pop(member_id, None)

    def due(self, now_ms: int) -> list[str]:
        """Return the members whose deadline has passed. Each member is checked again after AGAIN_MS if it is still a
        member then.
        """
        silent = [one for one, at in self._sessions.items() if at <= now_ms]
        owing = [one for one, (_, at) in self._revoking.items() if at <= now_ms]
        late = [one for one, at in self._owed.items() if at <= now_ms]
        for one in late:
            self._owed[one] = now_ms + AGAIN_MS
        for one in silent:
            self._sessions[one] = now_ms + AGAIN_MS
        for one in owing:
            self._revoking[one] = self._revoking[one][0], now_ms + AGAIN_MS
        # A deadline that stays in the past would be due in each tick.
        assert all(at > now_ms for at in self._moments())
        return list(dict.fromkeys((*silent, *owing, *late)))

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline, or None if there is none."""
        return min(self._moments(), default=None)

    def _moments(self) -> Iterator[int]:
        yield from self._sessions.values()
        yield from self._owed.values()
        yield from (at for _, at in self._revoking.values())
