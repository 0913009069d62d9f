"""Defines the invariants of acknowledged records: they are committed, replicated, durable, and at the acknowledged
offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.models import PartitionModel


class Ack(NamedTuple):
    """Describes an acknowledged send: what the client sent, and what the replicas now hold at the acknowledged offset.
    """

    offset: int
    acks: int
    """Is the producer's acks setting; -1 is all."""
    min_isr: int
    """Is the topic's min.insync.replicas."""
    found: bytes | None
    """Is the beginning of the value that is at the offset now, as many bytes as `sent`; None if no log has a readable
    record there.
    """
    sent: bytes | None
    """Is the beginning of the value that was sent, unique to this record; None if it is not known."""
    epoch: int = -1
    """Is the newest leader epoch in which a running replica's log has the sent value at the offset; -1 if no log has
    it. Looked up only after a loss that the configuration permits.
    """
    durable: tuple[int, ...] | None = None
    """Lists the nodes on whose disks the record is durable, dead nodes included; None if the configuration promises no
    flush.
    """


def is_overtaken(ack: Ack, known: PartitionModel) -> bool:
    """Return whether a loss that the configuration permits may have taken this record.

    If such a loss happened when a leader of epoch E was elected, it may have taken the records that leaders of earlier
    epochs appended. Records from epoch E on must not be lost. If no log has the record any more, its epoch is not
    known. Then the loss may have taken it only if a leader of an earlier epoch ever had a record at its offset.
    """
    if known.void_epoch < 0:
        return False
    if ack.epoch >= 0:
        return ack.epoch < known.void_epoch
    return any(epoch < known.void_epoch for epoch in known.epochs_at(ack.offset))


def _is_not_promised(known: PartitionModel) -> bool:
    return known.promise.hw_truncation or known.promise.without_controller


@invariant(
    "acknowledged-is-committed", CheckTrigger.ACK, "Kafka: producer configuration acks; Vanlightly: acked values"
)
def acknowledged_is_committed(ack: Ack, known: PartitionModel) -> str | None:
    """With acks=all, success means that the leader's high watermark has passed the record. (Not checked if a loss that
    the configuration permits may have taken the record.)
    """
    if ack.acks != -1 or ack.offset < known.ledger.end or _is_not_promised(known) or is_overtaken(ack, known):
        return None
    return f"offset {ack.offset} was acknowledged, committed is what is before {known.ledger.end}"


@invariant("acknowledged-is-replicated", CheckTrigger.ACK, "Kafka, topic configuration min.insync.replicas")
def acknowledged_is_replicated(ack: Ack, known: PartitionModel) -> str | None:
    """With acks=all, success means that at least min ISR replicas hold the record. (The disks of dead nodes count, and
    so do replicas that have lost the record in a power loss since. If the configuration permitted a loss of committed
    records, records from earlier leader epochs are not checked.)
    """
    if ack.acks != -1 or _is_not_promised(known):
        return None
    batch = known.ledger.at(ack.offset)
    if batch is None or batch.end <= known.ledger.low or batch.epoch < known.void_epoch:
        return None
    needed = min(ack.min_isr, len(known.truth.replicas)) if known.truth is not None else ack.min_isr
    holders = [node for node in known.copies if known.held_once(node, batch.end)]
    return None if len(holders) >= needed else f"offset {ack.offset} is held by {holders}; min ISR is {ack.min_isr}"


@invariant("acknowledged-is-durable", CheckTrigger.ACK, "Kafka, topic configuration flush.messages")
def acknowledged_is_durable(ack: Ack, known: PartitionModel) -> str | None:
    """If flush.messages is 1, an acknowledged record is durable: with acks=all on at least min ISR replicas, with
    acks=1 on one replica. (Not checked if a loss that the configuration permits may have taken the record. With acks=1,
    also not checked if no log has a record at its offset any more.)
    """
    if ack.durable is None or ack.acks == 0 or _is_not_promised(known) or is_overtaken(ack, known):
        return None
    if ack.acks == -1:
        batch = known.ledger.at(ack.offset)
        if batch is None or batch.end <= known.ledger.low or batch.epoch < known.void_epoch:
            return None
        needed = min(ack.min_isr, len(known.truth.replicas)) if known.truth is not None else ack.min_isr
    else:
        needed = 1 if any(copy.low <= ack.offset < copy.end for copy in known.copies.values()) else 0
    if len(ack.durable) >= needed:
        return None
    return f"offset {ack.offset} was acknowledged, and is durable on {list(ack.durable)}; needed are {needed}"


@invariant("acknowledged-offset", CheckTrigger.ACK, "Bufstream 0.1 report: an acknowledgement carries offset 0")
def acknowledged_offset(ack: Ack, known: PartitionModel) -> str | None:
    """The record at the acknowledged offset is the record that was sent. (Checked if the record is committed, or if
    acks=1 and no other leader ever had a record there. Not checked if a loss that the configuration permits may have
    taken the record.)
    """
    if ack.found is None or ack.sent is None or ack.acks == 0 or ack.found == ack.sent:
        return None
    if ack.offset >= known.ledger.end or _is_not_promised(known) or is_overtaken(ack, known):
        return None
    if ack.acks != -1 and len(known.epochs_at(ack.offset)) > 1:
        return None
    return f"offset {ack.offset} holds {ack.found[:40]!r}, sent was {ack.sent[:40]!r}"
