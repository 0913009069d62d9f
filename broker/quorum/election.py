"""Roles, which may follow which, and the count of one round of votes."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall.broker.quorum.settings import QuorumSettings


class Role(Enum):
    """Names the role of a node in its epoch."""

    UNATTACHED = "unattached"
    """Knows no leader. A voter waits, then stands; an observer asks around."""
    PROSPECTIVE = "prospective"
    """Asks whether it would be elected, before it begins an epoch for it (KIP-996)."""
    CANDIDATE = "candidate"
    """Has begun an epoch, voted for itself and asks for votes."""
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"
    """Led this epoch and never will again: what it had not yet synced may be gone, or a majority may have left it."""


LEGAL: dict[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.PROSPECTIVE: frozenset({Role.CANDIDATE, Role.FOLLOWER, Role.UNATTACHED}),
    Role.CANDIDATE: frozenset({Role.LEADER, Role.FOLLOWER, Role.UNATTACHED}),
    Role.LEADER: frozenset({Role.RESIGNED, Role.FOLLOWER, Role.UNATTACHED}),
    Role.FOLLOWER: frozenset({Role.FOLLOWER, Role.PROSPECTIVE, Role.UNATTACHED}),
    Role.RESIGNED: frozenset({Role.PROSPECTIVE, Role.FOLLOWER, Role.UNATTACHED}),
}
"""From each role, those that may come next. A leader leaves its epoch's leadership only by resigning."""


class VoteTally:
    """Counts one round of votes, pre-vote or not. The node's own is in it from the start."""

    __slots__ = ("_answers", "_settings")

    def __init__(self, settings: QuorumSettings) -> None:
        self._settings = settings
        self._answers: dict[int, bool | None] = {settings.node_id: True}

    def answer(self, voter: int, granted: bool | None) -> None:
        """A voter granted, refused, or (None) could not be reached."""
        assert voter in self._settings.voters
        self._answers[voter] = granted

    def answered(self, voter: int) -> bool:
        """True when this voter need not be asked any more in this round."""
        return voter in self._answers

    def refused_by(self, voter: int) -> bool:
        """True when this voter has said no."""
        return self._answers.get(voter) is False

    @property
    def granting(self) -> tuple[int, ...]:
        """Those who granted, in the order of the voters."""
        return tuple(voter for voter in self._settings.voters if self._answers.get(voter))

    @property
    def won(self) -> bool:
        """A majority of all voters granted."""
        return len(self.granting) >= self._settings.majority

    @property
    def lost(self) -> bool:
        """A majority is out of reach, or everybody has spoken or cannot be reached: no use waiting for a time-out."""
        refused = sum(answer is False for answer in self._answers.values())
        voters = len(self._settings.voters)
        return not self.won and (refused > voters - self._settings.majority or len(self._answers) == voters)
