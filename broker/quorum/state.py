"""Stores the state that a node must never lose: its epoch, its vote in that epoch, and the leader.

The file `quorum-state` is JSON in KRaft's layout. A node that lost its vote could vote again, and the epoch could get
two leaders.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall.broker.protocol.ids import NO_NODE

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_EPOCH = 2**31 - 1
"""Is the highest epoch that requests and batches can carry."""


class DamagedQuorumState(Exception):
    """Is raised if the quorum-state file is damaged. A node that replaced it by a guess might vote twice in an epoch.
    """


@dataclass(frozen=True, slots=True)
class QuorumState:
    """Holds epoch, vote and leader (a node or NO_NODE), which must be durable before a reply that depends on them."""

    epoch: int = 0
    voted_id: int = NO_NODE
    leader_id: int = NO_NODE

    def to_json(self, voters: Sequence[int], cluster_id: str = "") -> str:
        """Return the text of the quorum-state file, in KRaft's data version 0: it includes the voters and the cluster's
        id.
        """
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
        """Parse the text of a quorum-state file. Raises DamagedQuorumState."""
        try:
            fields: Any = json.loads(text)
            state = QuorumState(fields["leaderEpoch"], fields["votedId"], fields["leaderId"])
        except (ValueError, LookupError, TypeError) as wrong:
            raise DamagedQuorumState(f"quorum-state does not parse: {wrong!r} in {text[:200]!r}") from wrong
        numbers = (state.epoch, state.voted_id, state.leader_id)
        if not all(type(number) is int for number in numbers) or state.epoch < 0 or min(numbers) < NO_NODE:
            raise DamagedQuorumState(f"quorum-state has impossible values: {text[:200]!r}")
        return state
