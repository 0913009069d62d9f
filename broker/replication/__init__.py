"""Decides the state of one partition: leader, follower, ISR, high watermark, fencing. The code is pure: an event and
the time go in, effects come out.
"""

from squall.broker.protocol.ids import NO_NODE
from squall.broker.replication.partition import Partition
from squall.broker.replication.truncation import (
    BY_EPOCH,
    TRUNCATION_RULES,
    UNDEFINED,
    Divergence,
    EpochCachePort,
    TruncationRule,
    divergence,
    truncation_target,
)
from squall.broker.replication.values import (
    NO_EFFECTS,
    NO_EPOCH,
    AdvanceLogStart,
    BrokerStatuses,
    Effect,
    Effects,
    FetchRefused,
    HighWatermarkMoved,
    IsrChanged,
    LeaderAndIsr,
    LeadershipLost,
    ProposeIsr,
    ReplicationSettings,
    RetryIsrProposal,
    StartFetching,
    StopFetching,
    TruncateFullyAndStartAt,
    TruncateTo,
    WriteLeaderEpoch,
)

__all__ = [
    "BY_EPOCH",
    "NO_EFFECTS",
    "NO_EPOCH",
    "NO_NODE",
    "TRUNCATION_RULES",
    "UNDEFINED",
    "AdvanceLogStart",
    "WriteLeaderEpoch",
    "BrokerStatuses",
    "Divergence",
    "Effect",
    "Effects",
    "EpochCachePort",
    "FetchRefused",
    "HighWatermarkMoved",
    "IsrChanged",
    "LeaderAndIsr",
    "LeadershipLost",
    "Partition",
    "ProposeIsr",
    "ReplicationSettings",
    "TruncateFullyAndStartAt",
    "RetryIsrProposal",
    "StartFetching",
    "StopFetching",
    "TruncateTo",
    "TruncationRule",
    "divergence",
    "truncation_target",
]
