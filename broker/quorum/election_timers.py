"""Draws how long a node waits before it acts on its leader's silence. Random, so that nodes do not collide."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from squall.broker.quorum.settings import QuorumSettings


class ElectionTimers:
    """All in ms. `fresh`: the cluster never had a leader, for all this node knows: there is none to wait for."""

    def __init__(self, settings: QuorumSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._lost_rounds = 0

    def to_fetch(self) -> int:
        """Return how long a follower may fail to fetch."""
        return self._settings.fetch_timeout_ms + self.jitter()

    def for_majority(self) -> int:
        """Return how long a leader keeps its role without fetches from a majority (KAFKA-15489)."""
        return self._settings.fetch_timeout_ms * 3 // 2

    def jitter(self) -> int:
        """A short pause."""
        return self._rng.randrange(self._settings.jitter_ms)

    def for_votes(self, fresh: bool) -> int:
        """Return how long a round of votes may take; also, how long a voter waits for the outcome after it gave its
        vote.

        A fresh cluster begins in a hurry, but each round that was too short makes the next one longer.
        """
        timeout = self._settings.election_timeout_ms
        if fresh:
            timeout = min(timeout, 2 * self._spread(self._lost_rounds))
        return timeout + self._rng.randrange(timeout)

    def before_candidacy(self, fresh: bool) -> int:
        """Return how long a node that has only just come into its epoch waits for a leader."""
        return self._rng.randrange(self._spread(self._lost_rounds)) if fresh else self.for_votes(fresh)

    def after_losing(self, fresh: bool) -> int:
        """Pause after a lost round: enough to fetch from a leader that lives after all, longer each time."""
        pause = self._rng.randrange(self._spread(self._lost_rounds))
        self._lost_rounds += 1
        return pause if fresh else self._settings.jitter_ms + pause

    def _spread(self, doublings: int) -> int:
        return min(self._settings.election_backoff_max_ms, self._settings.jitter_ms << min(doublings, 20))

    def after_end_of_epoch(self, successors: tuple[int, ...]) -> int:
        """Pause before standing when the leader has said farewell: none for its first successor."""
        node_id = self._settings.node_id
        place = successors.index(node_id) if node_id in successors else len(successors)
        if successors and place == 0:
            return 0
        spread = self._spread(place)
        return spread // 2 + self._rng.randrange(spread)

    def found_leader(self) -> None:
        """There is a leader that answers, or this node leads: lost rounds are forgotten."""
        self._lost_rounds = 0
