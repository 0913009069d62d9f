"""Finds where two logs diverge: the leader's answer to a follower's last fetched epoch, and the truncation that the
follower derives from this answer.

Truncation by leader epoch, rather than to the high watermark, keeps acknowledged records when leaders change quickly
(KIP-101, KIP-279). Fetch requests carry the last fetched epoch, so no extra round trip is needed (KIP-595). Partitions
use this module, and so does the metadata quorum with its own log.

The truncation before KIP-101 is here as well, as the second of two rules that `squall.replication.truncation` selects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from squall.broker.overriding import override

UNDEFINED: Final = -1


class EpochCachePort(Protocol):
    """Answers where the leader epochs of a log end, as `broker.log`'s EpochCache does."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, exclusive end offset) of the largest known epoch that is at most `epoch`.

        The latest epoch ends at the log end offset. The answer is (-1, -1) for an epoch above the latest. An epoch
        below the first known epoch is returned as itself, and ends where the first known epoch starts.
        """


class Divergence(NamedTuple):
    """Describes how a follower's log diverges from the leader's: both logs agree at most up to `end_offset` of `epoch`.

    If both fields are UNDEFINED, this leader cannot tell, and the fetch is answered with OFFSET_OUT_OF_RANGE.
    """

    epoch: int
    end_offset: int

    @property
    def is_undefined(self) -> bool:
        """Return whether the leader knows nothing of the follower's epoch."""
        return self.epoch == UNDEFINED or self.end_offset == UNDEFINED


def divergence(
    epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int, log_end_offset: int
) -> Divergence | None:
    """Return where the log of a follower that fetches at `fetch_offset`, after records of `last_fetched_epoch`,
    diverges from this log; None if it does not diverge.

    A fetch without an epoch (UNDEFINED) comes from an empty log, which agrees with every log.
    """
    if last_fetched_epoch == UNDEFINED:
        return None
    epoch, end_offset = epochs.end_offset_for(last_fetched_epoch, log_end_offset)
    if epoch == UNDEFINED or end_offset == UNDEFINED:
        return Divergence(UNDEFINED, UNDEFINED)
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return Divergence(epoch, end_offset)
    return None


def truncation_target(epochs: EpochCachePort, diverging_epoch: int, diverging_end: int, log_end_offset: int) -> int:
    """Return the offset to which a follower truncates, given the leader's diverging epoch and its exclusive end offset.

    If this log lacks the diverging epoch, take the largest epoch below it that this log has, and truncate to its end.
    The next fetch continues from there (KIP-279: the epoch in the answer matters, not only its offset).
    """
    own_epoch, own_end = epochs.end_offset_for(diverging_epoch, log_end_offset)
    if own_epoch == UNDEFINED or own_end == UNDEFINED:
        return min(diverging_end, log_end_offset)
    if own_epoch != diverging_epoch:
        return min(own_end, log_end_offset)
    return min(own_end, diverging_end, log_end_offset)


class TruncationRule(Protocol):
    """Chooses how a follower's log is made to agree with its leader's log. Leader and follower must use the same rule.
    """

    @property
    def name(self) -> str:
        """Return the value of `squall.replication.truncation` that selects this rule."""

    def divergence(
        self, epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int, log_end_offset: int
    ) -> Divergence | None:
        """Return, on the leader, where a follower's log diverges; None if it does not diverge or if this rule does not
        check.
        """

    def before_first_fetch(self, high_watermark: int, latest_epoch: int | None) -> int | None:
        """Return the offset to which a follower truncates before the first fetch of a leader epoch, or None to keep the
        log.
        """

    def epoch_to_send(self, latest_epoch: int | None) -> int:
        """Return the last fetched epoch that a follower's fetches carry; UNDEFINED for none."""


class EpochTruncation(TruncationRule):
    """Truncates by leader epoch: the leader compares the follower's last fetched epoch with its own log, and a follower
    truncates only if the leader reports a divergence (KIP-101).
    """

    name = "epoch"

    @override
    def divergence(
        self, epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int, log_end_offset: int
    ) -> Divergence | None:
        return divergence(epochs, last_fetched_epoch, fetch_offset, log_end_offset)

    def before_first_fetch(self, high_watermark: int, latest_epoch: int | None) -> int | None:
        """Return None, so that nothing is truncated to the high watermark: the high watermark can be lower than offsets
        that this replica helped to commit (KIP-101, KAFKA-1211). Only a log without any leader epoch, which cannot be
        compared with the leader's log, is truncated to the high watermark.
        """
        return high_watermark if latest_epoch is None else None

    def epoch_to_send(self, latest_epoch: int | None) -> int:
        """Return the log's latest leader epoch, or UNDEFINED if it has none."""
        return UNDEFINED if latest_epoch is None else latest_epoch


class HighWatermarkTruncation(TruncationRule):
    """Truncates to the high watermark as Kafka did before KIP-101. This rule is never safe; it is kept to show what it
    loses (mechanism E4).

    Loss: a follower that restarts before it has learnt the newest high watermark truncates records that it helped to
    commit, and then becomes the leader. Divergence: after both replicas lost power, the shorter log leads; the other
    replica's high watermark covers records that the leader has since replaced, and the logs are never compared.
    """

    name = "high-watermark"

    def divergence(
        self, epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int, log_end_offset: int
    ) -> Divergence | None:
        """Return None: before KIP-101 a leader detected only a fetch offset beyond its log end offset."""
        return None

    def before_first_fetch(self, high_watermark: int, latest_epoch: int | None) -> int | None:
        """Return the follower's own high watermark, always."""
        return high_watermark

    def epoch_to_send(self, latest_epoch: int | None) -> int:
        """Return UNDEFINED: fetches carried no epoch before KIP-101."""
        return UNDEFINED


BY_EPOCH: Final[TruncationRule] = EpochTruncation()
TRUNCATION_RULES: Final[Mapping[str, TruncationRule]] = {
    rule.name: rule for rule in (BY_EPOCH, HighWatermarkTruncation())
}
"""Maps each value of `squall.replication.truncation` to its rule."""
