"""Variants of `Partition` that each break one rule, as a released broker once did. The tests of replication must
notice.
"""

from __future__ import annotations

from typing import Any

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication import Effects, LeaderAndIsr, Partition, ProposeIsr
from squall.broker.replication.replica import FollowerReplicaState


class TruncatesToHighWatermark(Partition):
    """KAFKA-1211, before KIP-101: a follower truncates to its high watermark instead of by leader epochs."""

    __slots__ = ()

    def first_truncation(self, latest_epoch: int | None) -> int | None:
        return self.high_watermark

    def divergence(self, epochs: Any, last_fetched_epoch: int, fetch_offset: int) -> None:
        return None


class IgnoresTheAnsweredEpoch(Partition):
    """KAFKA-6361, before KIP-279: a follower ignores which epoch the leader's OffsetForLeaderEpoch answer is about."""

    __slots__ = ()

    def truncation_target(self, epochs: Any, epoch: int, end_offset: int) -> int:
        return min(end_offset, self.log_end_offset)


class DoesNotFence(Partition):
    """KAFKA-7395, before KIP-320: a leader answers fetches that name another leader epoch."""

    __slots__ = ()

    def check_leader_epoch(self, request_epoch: int) -> ErrorCode:
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER


class TrustsTheShrunkIsr(Partition):
    """KIP-497: a leader already commits without the members whose removal from the ISR the controller has not
    confirmed.
    """

    __slots__ = ()

    def maximal_of(self, committed: tuple[int, ...], proposed: tuple[int, ...]) -> tuple[int, ...]:
        return proposed


class ForgetsThePendingMember(Partition):
    """KIP-497: the high watermark does not wait for members whose addition to the ISR is not confirmed yet."""

    __slots__ = ()

    def maximal_of(self, committed: tuple[int, ...], proposed: tuple[int, ...]) -> tuple[int, ...]:
        return committed


class IgnoresTheEpochStart(Partition):
    """KAFKA-7128: a follower joins the ISR at the high watermark, although its log may end before the start of the
    leader epoch.
    """

    __slots__ = ()

    def has_reached_isr(self, replica: FollowerReplicaState) -> bool:
        return replica.log_end_offset >= self.high_watermark


class CommitsBelowMinIsr(Partition):
    """KAFKA-15583: the high watermark advances although the ISR is smaller than min ISR."""

    __slots__ = ()

    def is_high_watermark_frozen(self) -> bool:
        return False


class AppliesOldStates(Partition):
    """KAFKA-9539: a replica applies metadata of an earlier leader epoch."""

    __slots__ = ()

    def is_stale_state(self, state: LeaderAndIsr) -> bool:
        return False


class TakesTimeOutsForRefusals(Partition):
    """KIP-497: a leader treats an ISR proposal without an answer as refused, although it may have been applied."""

    __slots__ = ()

    def isr_rejected(self, proposal: ProposeIsr, error: ErrorCode, now_ms: int) -> Effects:
        if error is ErrorCode.REQUEST_TIMED_OUT:
            error = ErrorCode.OPERATION_NOT_ATTEMPTED
        return super().isr_rejected(proposal, error, now_ms)


BROKEN: tuple[type[Partition], ...] = (
    TruncatesToHighWatermark,
    IgnoresTheAnsweredEpoch,
    DoesNotFence,
    TrustsTheShrunkIsr,
    ForgetsThePendingMember,
    IgnoresTheEpochStart,
    CommitsBelowMinIsr,
    AppliesOldStates,
    TakesTimeOutsForRefusals,
)
