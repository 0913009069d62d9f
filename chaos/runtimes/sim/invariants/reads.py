"""Defines the invariants of records that readers receive: they are committed, and the same at every read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.models import PartitionModel, ServedRecord


@invariant("consistent-read", CheckTrigger.READ, "Vanlightly, KIP-966: ConsistentReadProperty")
def consistent_read(now: ServedRecord, first: ServedRecord, known: PartitionModel) -> str | None:
    """Whatever leader serves an offset to a reader, the record is the same as at the first read. (After a permitted
    loss, lost offsets count as not read before. Not checked for a leader of an epoch before such a loss, for a leader
    whose disk has flipped bits, if followers truncate to their high watermark as before KIP-101, or if leaders are
    elected without a controller.)
    """
    if now.value == first.value:
        return None
    return (
        f"offset {now.offset} was served as value {first.value} in epoch {first.epoch}, "
        f"and as value {now.value} in epoch {now.epoch}"
    )


@invariant(
    "served-is-committed", CheckTrigger.READ, "KAFKA-9835; Vanlightly, KIP-966: consumers can consume up to the HWM"
)
def served_is_committed(now: ServedRecord, first: ServedRecord, known: PartitionModel) -> str | None:
    """When a reader receives a record, some leader's high watermark has passed it. (Not checked for a leader of an
    epoch before a permitted loss, for a leader whose disk has flipped bits, if followers truncate to their high
    watermark as before KIP-101, or if leaders are elected without a controller.)
    """
    if now.offset < known.ledger.end:
        return None
    return f"offset {now.offset} was served in epoch {now.epoch}, committed is what is before {known.ledger.end}"
