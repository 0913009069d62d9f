"""Where two logs part: the leader's answer to a follower's last fetched epoch, and what the follower makes of it.

Truncating by leader epoch and not to the high watermark is what keeps acknowledged records when leaders change
quickly (KIP-101, KIP-279), and fetch requests that carry the last fetched epoch need no extra round trip for it
(KIP-595). Used by partitions and, with its own log, by the metadata quorum.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

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
    """Whether a fetch at `fetch_offset`, after records of `last_fetched_epoch`, parts from this log; None: it does not.

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
