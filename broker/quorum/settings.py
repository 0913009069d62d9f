"""Defines the settings of a quorum member."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Holds this node's id, the voters, and the time-outs in ms. A field's docstring names its Kafka setting, if any.
    """

    node_id: int
    voters: tuple[int, ...]
    """Lists the ids of the voters, ascending (controller.quorum.voters). A node that is not in the list is an observer.
    """
    election_timeout_ms: int = 1000
    """Ends an unsuccessful candidacy after a random time, between this time and twice this time
    (controller.quorum.election.timeout.ms).
    """
    fetch_timeout_ms: int = 2000
    """Gives the time without a successful fetch after which a follower begins an election. A leader resigns if no
    majority fetched from it for 1.5 times as long (controller.quorum.fetch.timeout.ms).
    """
    election_backoff_max_ms: int = 1000
    """Limits the pause after a lost election (controller.quorum.election.backoff.max.ms)."""
    retry_backoff_ms: int = 50
    """Gives the pause before a failed request is sent again (controller.quorum.retry.backoff.ms). It doubles with each
    failure in a row.
    """
    fetch_max_wait_ms: int = 500
    """Limits how long a leader may park a fetch that finds nothing new."""
    jitter_ms: int = 150
    """Limits short random pauses that keep nodes from acting at the same time: after the fetch time-out, for example,
    and before the first election of a new cluster.
    """

    def __post_init__(self) -> None:
        if not self.voters or list(self.voters) != sorted(set(self.voters)):
            raise ValueError(f"voters must be distinct and ascending, at least one: {self.voters}")
        if min(self.node_id, *self.voters) < 0:
            raise ValueError(f"node ids are not negative: {self.node_id}, {self.voters}")
        if self.fetch_max_wait_ms >= self.fetch_timeout_ms:
            raise ValueError(f"fetches held {self.fetch_max_wait_ms} ms time out after {self.fetch_timeout_ms} ms")

    @property
    def majority(self) -> int:
        """Returns the number of voters that is a majority."""
        return len(self.voters) // 2 + 1

    @property
    def is_voter(self) -> bool:
        """Is True if this node may vote and lead."""
        return self.node_id in self.voters
