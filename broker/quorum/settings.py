"""The settings of a quorum member."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Holds this node's id, the voters, and the time-outs (all times ms). Kafka's names behind each."""

    node_id: int
    voters: tuple[int, ...]
    """Ids of the voters, ascending (controller.quorum.voters). A node that is not among them observes."""
    election_timeout_ms: int = 1000
    """A candidate gives up after this to twice this (controller.quorum.election.timeout.ms)."""
    fetch_timeout_ms: int = 2000
    """A follower that could not fetch for so long stands for election; a leader that was not fetched from by a majority
    for 1.5 times as long resigns (controller.quorum.fetch.timeout.ms)."""
    election_backoff_max_ms: int = 1000
    """Longest pause after a lost election (controller.quorum.election.backoff.max.ms)."""
    retry_backoff_ms: int = 50
    """Pause before a request that failed is sent again (controller.quorum.retry.backoff.ms); to one that cannot be
    reached it doubles each time."""
    fetch_max_wait_ms: int = 500
    """How long a leader may hold a fetch that finds nothing new."""
    jitter_ms: int = 150
    """Elections that nothing else spreads are spread over this much: above all the first one of a fresh cluster."""

    def __post_init__(self) -> None:
        if not self.voters or list(self.voters) != sorted(set(self.voters)):
            raise ValueError(f"voters must be distinct and ascending, at least one: {self.voters}")
        if min(self.node_id, *self.voters) < 0:
            raise ValueError(f"node ids are not negative: {self.node_id}, {self.voters}")
        if self.fetch_max_wait_ms >= self.fetch_timeout_ms:
            raise ValueError(f"fetches held {self.fetch_max_wait_ms} ms time out after {self.fetch_timeout_ms} ms")

    @property
    def majority(self) -> int:
        """Return how many voters decide."""
        return len(self.voters) // 2 + 1

    @property
    def is_voter(self) -> bool:
        """True when this node may vote and lead."""
        return self.node_id in self.voters
