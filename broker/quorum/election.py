"""Defines the roles of a quorum member with their legal transitions, and counts the votes of an election."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall.broker.quorum.settings import QuorumSettings


class Role(Enum):
    """Names the role of a node in its epoch."""

    UNATTACHED = "unattached"
    """Knows no leader. A voter waits and then begins an election; an observer asks the voters for the leader."""
    PROSPECTIVE = "prospective"
    """Asks for pre-votes, to find out whether it would be elected, before it begins an epoch (KIP-996)."""
    CANDIDATE = "candidate"
    """Has begun an epoch, has voted for itself, and asks for votes."""
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"
    """Has led this epoch and never leads it again: its unsynced records may be lost, or a majority may follow another
    leader.
    """


LEGAL: dict[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.PROSPECTIVE: frozenset({Role.CANDIDATE, Role.FOLLOWER, Role.UNATTACHED}),
    Role.CANDIDATE: frozenset({Role.LEADER, Role.FOLLOWER, Role.UNATTACHED}),
    Role.LEADER: frozenset({Role.RESIGNED, Role.FOLLOWER, Role.UNATTACHED}),
    Role.FOLLOWER: frozenset({Role.FOLLOWER, Role.PROSPECTIVE, Role.UNATTACHED}),
    Role.RESIGNED: frozenset({Role.PROSPECTIVE, Role.FOLLOWER, Role.UNATTACHED}),
}
"""Maps each role to the roles that may follow it. A leader gives up its epoch only by resigning."""


class VoteTally:
    """Counts the votes or pre-votes of one election. The node's own vote is counted from the start."""

    __slots__ = ("_answers", "_settings")

    def __init__(self, settings: QuorumSettings) -> None:
        self._settings = settings
        self._answers: dict[int, bool | None] = {settings.node_id: True}

    def answer(self, voter: int, granted: bool | None) -> None:
        """Record that a voter granted its vote, refused it, or (None) could not be reached."""
        assert voter in self._settings.voters
        self._answers[voter] = granted

    def answered(self, voter: int) -> bool:
        """Return whether this voter's answer in this election is known."""
        return voter in self._answers

    def refused_by(self, voter: int) -> bool:
        """Return whether this voter refused its vote."""
        return self._answers.get(voter) is False

    @property
    def granting(self) -> tuple[int, ...]:
        """Returns the voters that granted their vote, in the order of the voters."""
        return tuple(voter for voter in self._settings.voters if self._answers.get(voter))

    @property
    def won(self) -> bool:
        """Is True if a majority of all voters granted their vote."""
        return len(self.granting) >= self._settings.majority

    @property
    def lost(self) -> bool:
        """Is True if the election has failed: too many voters refused, or every voter has answered or is unreachable
        and a majority was not reached.
        """
        refused = sum(answer is False for answer in self._answers.values())
        voters = len(self._settings.voters)
        # Unreachable voters (None) may still grant their vote, so they count only once every voter is accounted for.
        return not self.won and (refused > voters - self._settings.majority or len(self._answers) == voters)
