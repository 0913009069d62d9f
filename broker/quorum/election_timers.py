"""Draws the random time-outs of elections. They are random so that nodes do not begin elections at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from squall.broker.quorum.settings import QuorumSettings


class ElectionTimers:
    """Draws time-outs in ms. `fresh` means that, as far as this node knows, the cluster has never had a leader to wait
    for.
    """

    def __init__(self, settings: QuorumSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._lost_rounds = 0

    def to_fetch(self) -> int:
        """Return the time-out after which a follower without a successful fetch begins an election."""
        return self._settings.fetch_timeout_ms + self.jitter()

    def for_majority(self) -> int:
        """Return the time after which a leader without fetches from a majority resigns (KAFKA-15489)."""
        # Longer than a follower's time-out, by the factor of Kafka's LeaderState (CHECK_QUORUM_TIMEOUT_FACTOR).
        return self._settings.fetch_timeout_ms * 3 // 2

    def jitter(self) -> int:
        """Return a short random pause, in ms, so that nodes do not act at the same time."""
        return self._rng.randrange(self._settings.jitter_ms)

    def for_votes(self, fresh: bool) -> int:
        """Return the time-out of an election. A voter that has granted its vote waits as long for the result.

        If `fresh` (the cluster has never had a leader), the first time-outs are short, and each lost election makes the
        next time-out longer.
        """
        timeout = self._settings.election_timeout_ms
        if fresh:
            timeout = min(timeout, 2 * self._spread(self._lost_rounds))
        return timeout + self._rng.randrange(timeout)

    def before_candidacy(self, fresh: bool) -> int:
        """Return how long a node that has just entered its epoch waits for a leader before it begins an election. The
        wait is short if `fresh`: the cluster has never had a leader.
        """
        return self._rng.randrange(self._spread(self._lost_rounds)) if fresh else self.for_votes(fresh)

    def after_losing(self, fresh: bool) -> int:
        """Return the pause after a lost election, which grows with each lost election. Unless `fresh` (the cluster has
        never had a leader), the pause is long enough to fetch from a leader that is alive.
        """
        pause = self._rng.randrange(self._spread(self._lost_rounds))
        self._lost_rounds += 1
        return pause if fresh else self._settings.jitter_ms + pause

    def _spread(self, doublings: int) -> int:
        return min(self._settings.election_backoff_max_ms, self._settings.jitter_ms << min(doublings, 20))

    def after_end_of_epoch(self, successors: tuple[int, ...]) -> int:
        """Return how long this node waits before it begins an election, once the leader has resigned. `successors` are
        the voters that the leader named. The first of them does not wait (0 ms); the others wait for random times,
        which grow with the place in the list.
        """
        node_id = self._settings.node_id
        place = successors.index(node_id) if node_id in successors else len(successors)
        if successors and place == 0:
            return 0
        spread = self._spread(place)
        return spread // 2 + self._rng.randrange(spread)

    def found_leader(self) -> None:
        """Reset the count of lost elections, because a leader answers or this node leads."""
        self._lost_rounds = 0
