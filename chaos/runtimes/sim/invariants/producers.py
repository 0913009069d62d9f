"""Defines the invariants of one producer's committed batches: every sequence number occurs once, and none is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.batches import BatchIdentity

SEQUENCES: Final = 2**31
"""Is the number of sequences: a sequence wraps from SEQUENCES - 1 to 0."""


class ExpectedSequence(NamedTuple):
    """Holds the epoch and the next sequence of one producer id, by its committed batches."""

    epoch: int
    expected: int
    """Is the next sequence; -1 if any sequence may come."""

    @classmethod
    def after(cls, batch: BatchIdentity) -> ExpectedSequence:
        """Return the state after a batch. After a batch without sequence numbers, such as a marker, any sequence may
        come.
        """
        if batch.is_control or batch.sequence < 0:
            return cls(batch.producer_epoch, -1)
        return cls(batch.producer_epoch, (batch.sequence + batch.end - batch.base) % SEQUENCES)


def _has_no_sequence(batch: BatchIdentity) -> bool:
    """Return whether a batch is a marker, or offsets that a group's coordinator writes in the producer's transaction.
    """
    return batch.is_control or (batch.is_transactional and batch.sequence < 0)


def _continues(batch: BatchIdentity, producer: ExpectedSequence) -> bool:
    """Return whether a batch must have the sequence number `producer.expected`: the batch has a sequence number and the
    producer's present epoch, and the expected number is known.
    """
    return not _has_no_sequence(batch) and batch.producer_epoch == producer.epoch and producer.expected >= 0


@invariant("producer-sequences", CheckTrigger.BATCH, "KIP-98: sequence numbers; KIP-360")
def producer_sequences(batch: BatchIdentity, producer: ExpectedSequence | None) -> str | None:
    """The committed sequences of a producer id in one producer epoch have no gap. (An unknown producer may begin
    anywhere: a broker forgets producers.)
    """
    if producer is None or not _continues(batch, producer):
        return None
    ahead = (batch.sequence - producer.expected) % SEQUENCES
    if 0 < ahead < SEQUENCES // 2:
        return f"producer {batch.producer_id}: {producer.expected} was due, {batch.sequence} came: {batch}"
    return None


@invariant("appended-once", CheckTrigger.BATCH, "KIP-98: idempotence; KAFKA-5435, Redpanda #3038")
def appended_once(batch: BatchIdentity, producer: ExpectedSequence | None) -> str | None:
    """A sequence of a producer id in one producer epoch is committed at most once."""
    if producer is None or not _continues(batch, producer):
        return None
    ahead = (batch.sequence - producer.expected) % SEQUENCES
    if ahead >= SEQUENCES // 2:
        return f"producer {batch.producer_id}: {producer.expected} was due, {batch.sequence} came again: {batch}"
    return None


@invariant("producer-epochs", CheckTrigger.BATCH, "KIP-98, KIP-360: a fenced producer writes nothing more")
def producer_epochs(batch: BatchIdentity, producer: ExpectedSequence | None) -> str | None:
    """The producer epochs of a producer id do not go back, and a new epoch begins with sequence 0. (Offsets that a
    group's coordinator writes in the producer's transaction have no sequence.)
    """
    if producer is None or batch.producer_epoch == producer.epoch:
        return None
    if batch.producer_epoch < producer.epoch:
        return f"producer {batch.producer_id}: epoch {batch.producer_epoch} after {producer.epoch}: {batch}"
    if batch.sequence != 0 and not _has_no_sequence(batch):
        return f"producer {batch.producer_id}: epoch {batch.producer_epoch} begins with {batch.sequence}: {batch}"
    return None
