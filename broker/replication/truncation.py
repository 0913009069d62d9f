"""Finds where two logs diverge: the leader's answer to a follower's last fetched epoch, and what the follower makes of
it.

Truncating by leader epoch and not to the high watermark is what keeps acknowledged records when leaders change quickly
(KIP-101, KIP-279), and fetch requests that carry the last fetched epoch need no extra round trip for it (KIP-595). Used
by partitions and, with its own log, by the metadata quorum.

How it went before KIP-101 is here too, as the other one of two rules to choose from: `squall.replication.truncation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from squall.broker.overriding import override

UNDEFINED: Final = -1


class EpochCachePort(Protocol):
    """A log's leader epochs, as `broker.log`'s EpochCache keeps them."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset exclusive) of the largest known epoch at most `epoch`.

        The latest epoch ends at the log's end; an epoch above it is undefined, (-1, -1); one below the first known
        epoch ends where the first one starts, and is answered as itself.
        """


class Divergence(NamedTuple):
    """The leader's log has another history: the follower's could agree with it up to `end_offset` of `epoch` only.

    Both UNDEFINED: this leader cannot tell, and the fetch is answered OFFSET_OUT_OF_RANGE.
    """

    epoch: int
    end_offset: int

    @property
    def is_undefined(self) -> bool:
        """True where the leader knows nothing of the follower's epoch."""
        return self.epoch == UNDEFINED or self.end_offset == UNDEFINED


def divergence(
    epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int, log_end_offset: int
) -> Divergence | None:
    """Return where a fetch at `fetch_offset`, after records of `last_fetched_epoch`, diverges from this log; None: it
    does not.

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
    """The offset to which a follower truncates after the leader's diverging (epoch, end offset exclusive).

    Where this log lacks that epoch, its own largest smaller one ends the common part, and the next fetch asks again
    from there (KIP-279: the epoch in the answer matters, not only its offset).
    """
    own_epoch, own_end = epochs.end_offset_for(diverging_epoch, log_end_offset)
    if own_epoch == UNDEFINED or own_end == UNDEFINED:
        return min(diverging_end, log_end_offset)
    if own_epoch != diverging_epoch:
        return min(own_end, log_end_offset)
    return min(own_end, diverging_end, log_end_offset)


class TruncationRule(Protocol):
    """Makes a follower's log agree with its leader's: one choice for leader and follower."""

    @property
    def name(self) -> str:
        """The setting's value that chooses it."""

    def divergence(
        self, epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int, log_end_offset: int
    ) -> Divergence | None:
        """Leader: whether a fetch parts from its log; None: it does not, or it is not looked at."""

    def before_first_fetch(self, high_watermark: int, latest_epoch: int | None) -> int | None:
        """Follower: where to truncate before the first fetch of a leader epoch; None: nowhere."""

    def epoch_to_send(self, latest_epoch: int | None) -> int:
        """Follower: the last fetched epoch that its fetches carry; UNDEFINED: none."""


class EpochTruncation(TruncationRule):
    """The leader tells by the follower's last epoch where the logs part; nothing is cut on suspicion (KIP-101)."""

    name = "epoch"

    @override
    def divergence(
        self, epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int, log_end_offset: int
    ) -> Divergence | None:
        return divergence(epochs, last_fetched_epoch, fetch_offset, log_end_offset)

    def before_first_fetch(self, high_watermark: int, latest_epoch: int | None) -> int | None:
        """Not to the high watermark: that can be behind what this very replica helped to commit (KIP-101, KAFKA-1211).
        Only a log that knows of no epoch cannot be compared with the leader's, and keeps just what is surely committed.
        """
        return high_watermark if latest_epoch is None else None

    def epoch_to_send(self, latest_epoch: int | None) -> int:
        """The log's latest."""
        return UNDEFINED if latest_epoch is None else latest_epoch


class HighWatermarkTruncation(TruncationRule):
    """Truncates to the high watermark as Kafka did before KIP-101, kept to show what it loses (mechanism E4). Never
    safe.

    Loss: a follower that restarts before it has heard of the newest high watermark cuts off what it helped to commit,
    and then becomes the leader. Divergence: after both lost power the one with less leads, the other's high watermark
    covers records that the leader has written anew, and the two are never compared.
    """

    name = "high-watermark"

    def divergence(
        self, epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int, log_end_offset: int
    ) -> Divergence | None:
        """Leaders had nothing to say about that: only an offset beyond their log's end was noticed."""
        return None

    def before_first_fetch(self, high_watermark: int, latest_epoch: int | None) -> int | None:
        """To the follower's own high watermark, always."""
        return high_watermark

    def epoch_to_send(self, latest_epoch: int | None) -> int:
        """Fetches carried none."""
        return UNDEFINED


BY_EPOCH: Final[TruncationRule] = EpochTruncation()
TRUNCATION_RULES: Final[Mapping[str, TruncationRule]] = {
    rule.name: rule for rule in (BY_EPOCH, HighWatermarkTruncation())
}
"""By the values of `squall.replication.truncation`."""
