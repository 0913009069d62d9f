"""Holds what a leader knows about one follower. All of it comes from that follower's fetches in the current leader
epoch.
"""

from __future__ import annotations

from math import inf
from typing import Final

from squall.broker.replication.values import UNKNOWN_OFFSET

NEVER_MS: Final = -(2**62)
"""Is a time in ms that is longer ago than any lag time."""
EPOCH_NOT_LEARNT: Final = -2
"""Is the broker epoch of a follower that has not fetched yet. (-1 means a fetch without a broker epoch, which is
accepted.)
"""


class FollowerReplicaState:
    """Holds the mutable state of one follower of a partition that this broker leads."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "followed_s",
        "in_maximal_isr",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = EPOCH_NOT_LEARNT
        self.in_maximal_isr = False
        self.forget(NEVER_MS)

    def forget(self, caught_up_ms: int) -> None:
        """Reset the state for a new leader epoch: the follower's log end offset is unknown until it fetches. The
        follower counts as last caught up at `caught_up_ms`.
        """
        self.log_end_offset = self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = caught_up_ms
        self.last_fetch_ms, self.followed_s = NEVER_MS, -inf
        self.last_fetch_leader_end = 0

    def __repr__(self) -> str:
        return f"<Replica {self.broker_id} epoch {self.broker_epoch} end {self.log_end_offset}>"
