"""Defines the inputs of a partition's state machine and the effects that it asks for.

Events come in as method calls of `Partition`. Effects go out as tuples of the frozen values below; the caller carries
them out in order, before the next event of the same partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication.truncation import BY_EPOCH, TruncationRule

NO_EPOCH: Final = -1
"""Means no leader epoch, or a request without a leader epoch."""
UNKNOWN_OFFSET: Final = -1
"""Is a follower's log end offset before its first fetch in the current leader epoch."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Holds the state of a partition as the control plane decided it. Every change of the state has a higher partition
    epoch.
    """

    leader: int
    """Holds the leader's broker id, or NO_NODE."""
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Holds the settings that a partition's state machine depends on."""

    replica_lag_time_max_ms: int = 30_000
    min_insync_replicas: int = 1
    replica_lag_max_messages: int = -1
    """Limits the lag of ISR members in messages, as old Kafka releases did: followers that lag more leave the ISR. -1
    turns it off.
    """
    truncation: TruncationRule = BY_EPOCH
    """Selects truncation by leader epoch or, as in old Kafka releases, truncation to the high watermark."""


@dataclass(frozen=True, slots=True)
class BrokerStatuses:
    """Holds the epochs of all registered brokers, and which of them are fenced or shutting down, according to this
    node's newest metadata. All partitions of a node share one value.
    """

    epochs: Mapping[int, int] = field(default_factory=dict)
    """Maps each registered broker, including this broker, to its broker epoch. Each registration gets a higher broker
    epoch.
    """
    fenced: frozenset[int] = frozenset()
    shutting_down: frozenset[int] = frozenset()


# ----------------------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class HighWatermarkMoved:
    """Asks to answer producers and to wake consumers, because the records below the leader's `high_watermark` are
    committed now.
    """

    high_watermark: int


@dataclass(frozen=True, slots=True)
class WriteLeaderEpoch:
    """Asks to write (epoch, start_offset) to the epoch cache durably, before any record is appended in this epoch."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, eq=False)
class ProposeIsr:
    """Asks to propose this ISR to the controller with AlterPartition. The response is passed to `isr_accepted` or
    `isr_rejected` together with this same object, so that a response to an older proposal is recognised and ignored.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """Holds (broker id, broker epoch) for each member; the epoch is -1 if this leader has not learnt it."""
    reason: str = ""
    """Says, for traces, why brokers join or leave the ISR."""

    @property
    def members(self) -> tuple[int, ...]:
        """Return the ids of the proposed members."""
        return tuple(broker_id for broker_id, _ in self.isr)


@dataclass(frozen=True, slots=True)
class RetryIsrProposal:
    """Asks to send the same proposal again after a back-off, because it is unknown whether the controller applied it.
    """

    proposal: ProposeIsr


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """Reports, for traces, that the committed ISR or the maximal ISR has changed."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartFetching:
    """Asks to fetch from `leader_id` in `leader_epoch`, from the log end offset on, after `prepare_to_fetch` and its
    effects. It replaces any fetching of this partition; responses to earlier fetches are dropped (`accepts_fetched`).
    """

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Asks to stop fetching this partition."""


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """Asks to answer all requests that wait on this partition with NOT_LEADER_OR_FOLLOWER, because this broker no
    longer leads it in `leader_epoch`.
    """

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchRefused:
    """Asks to answer the follower's fetch with this error and without records."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Asks to truncate the log to `offset`, and the epoch cache too even if no record is removed; then to call
    `truncated(offset)`.
    """

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class TruncateFullyAndStartAt:
    """Asks to delete the whole log and to start an empty log at `offset`; then to call `restarted(offset)`."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Asks to delete the records below `offset`, as the leader has done; then to call `log_start_moved(offset)`."""

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
