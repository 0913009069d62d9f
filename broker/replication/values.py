"""The inputs of a partition's state machine, and the effects that it asks for.

Events come in as method calls of `Partition`; effects go out as tuples of the frozen values below, to be carried out in
their order before the next event of the same partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication.truncation import BY_EPOCH, TruncationRule

NO_EPOCH: Final = -1
"""No leader epoch, or a request that names none."""
UNKNOWN_OFFSET: Final = -1
"""A follower's log end before its first fetch in this leader epoch."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """A partition's state as the control plane decided it. Every change of it has a higher partition epoch."""

    leader: int
    """Broker id, or NO_NODE."""
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """The settings that a partition's state machine depends on."""

    replica_lag_time_max_ms: int = 30_000
    min_insync_replicas: int = 1
    replica_lag_max_messages: int = -1
    """A switch of Kafka's past: followers that are further behind than this leave the ISR. -1: off."""
    truncation: TruncationRule = BY_EPOCH
    """By leader epoch, or, a switch of Kafka's past, to the high watermark."""


@dataclass(frozen=True, slots=True)
class BrokerStatuses:
    """Holds what the newest metadata of this node says of the brokers. One value for all partitions of a node."""

    epochs: Mapping[int, int] = field(default_factory=dict)
    """Broker epoch of every registered broker, this one included: each registration gets a higher one."""
    fenced: frozenset[int] = frozenset()
    shutting_down: frozenset[int] = frozenset()


# ----------------------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class HighWatermarkMoved:
    """Says that records below the leader's `high_watermark` are committed. Answer producers, wake waiting consumers."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class WriteLeaderEpoch:
    """Write (epoch, start_offset) to the epoch cache, durably, before anything is appended in this epoch."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, eq=False)
class ProposeIsr:
    """Ask the controller for this ISR by AlterPartition. The answer goes to `isr_accepted` or `isr_rejected`, with
    this very object: an answer to an older question says nothing about the present one.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """(broker id, broker epoch) of each member; -1 for an epoch that this leader has not learnt."""
    reason: str = ""
    """What somebody did to join or to be thrown out, for traces."""

    @property
    def members(self) -> tuple[int, ...]:
        """The proposed members' ids."""
        return tuple(broker_id for broker_id, _ in self.isr)


@dataclass(frozen=True, slots=True)
class RetryIsrProposal:
    """Send the same proposal again, after a back-off: whether it was applied is not known."""

    proposal: ProposeIsr


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The committed or the maximal ISR is another now. For traces."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartFetching:
    """Fetch from `leader_id` in `leader_epoch`, from the log's end on, after `prepare_to_fetch` and what it asks for.
    Replaces any fetching of this partition; answers to earlier fetches are dropped (`accepts_fetched`).
    """

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Fetch no more for this partition."""


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """No longer the leader, of `leader_epoch`: answer all who wait on this partition with NOT_LEADER_OR_FOLLOWER."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchRefused:
    """Answer the follower's fetch with this error and without records."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate the log to `offset`, and its epoch cache even where no record is cut: then `truncated(offset)`."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class TruncateFullyAndStartAt:
    """Drop the whole log and start an empty one at `offset`: then `restarted(offset)`."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """The leader has dropped what is below `offset`: drop it too, then `log_start_moved(offset)`."""

    offset: int


Effect = (
    HighWatermarkMoved
    | WriteLeaderEpoch
    | ProposeIsr
    | RetryIsrProposal
    | IsrChanged
    | StartFetching
    | StopFetching
    | LeadershipLost
    | FetchRefused
    | TruncateTo
    | TruncateFullyAndStartAt
    | AdvanceLogStart
)
Effects = tuple[Effect, ...]

NO_EFFECTS: Final[Effects] = ()
