"""Stores what a node must never forget: the epoch it is in, its vote in it, and the leader.

Kept in a small JSON file of KRaft's own layout, `quorum-state`. Forgetting a vote gives an epoch two leaders.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall.broker.protocol.ids import NO_NODE

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_EPOCH = 2**31 - 1
"""The highest one that requests and batches can carry."""


class DamagedQuorumState(Exception):
    """The quorum-state file is no quorum state. Not repaired by guessing: a guess may vote twice in an epoch."""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """Durable before any reply that depends on it. `voted_id`, `leader_id`: a node or NO_NODE, both within `epoch`."""

    epoch: int = 0
    voted_id: int = NO_NODE
    leader_id: int = NO_NODE

    def to_json(self, voters: Sequence[int], cluster_id: str = "") -> str:
        """The file's text (data version 0, which has the voters in it)."""
        return json.dumps(
            {
                "clusterId": cluster_id,
                "leaderId": self.leader_id,
                "leaderEpoch": self.epoch,
                "votedId": self.voted_id,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": voter} for voter in voters],
                "data_version": 0,
            }
        )

    @staticmethod
    def from_json(text: str) -> QuorumState:
        """Read the file's text. Raises DamagedQuorumState."""
        try:
            fields: Any = json.loads(text)
            state = QuorumState(fields["leaderEpoch"], fields["votedId"], fields["leaderId"])
        except (ValueError, LookupError, TypeError) as wrong:
            raise DamagedQuorumState(f"quorum-state does not parse: {wrong!r} in {text[:200]!r}") from wrong
        numbers = (state.epoch, state.voted_id, state.leader_id)
        if not all(type(number) is int for number in numbers) or state.epoch < 0 or min(numbers) < NO_NODE:
            raise DamagedQuorumState(f"quorum-state has impossible values: {text[:200]!r}")
        return state
