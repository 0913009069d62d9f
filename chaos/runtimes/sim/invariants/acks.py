"""What must hold when records are acknowledged to a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chaos.runtimes.sim.invariants.table import When, invariant

if TYPE_CHECKING:
    from chaos.runtimes.sim.invariants.known import Known


class Ack(NamedTuple):
    """A send that was answered with success."""

    offset: int
    acks: int
    """-1 is all."""
    min_isr: int
    """What the topic asked for."""
    found: bytes | None
    """What the value begins with that is at the offset now, as many bytes as `sent`; None where no log tells."""
    sent: bytes | None
    """What the value that was sent begins with, and no other does; None where that is not known."""


def _may_be_gone(known: Known) -> bool:
    return known.void_epoch >= 0 or bool(known.lost) or known.promise.hw_truncation or known.promise.without_controller


@invariant("acknowledged-is-committed", When.ACK, "Kafka: producer configuration acks; Vanlightly: acked values")
def acknowledged_is_committed(ack: Ack, known: Known) -> str | None:
    """With acks=all, success means that the leader's high watermark has passed the record. (Unless a permitted loss
    has overtaken it.)"""
    if ack.acks != -1 or ack.offset < known.ledger.end or _may_be_gone(known):
        return None
    return f"offset {ack.offset} was acknowledged, committed is what is before {known.ledger.end}"


@invariant("acknowledged-is-replicated", When.ACK, "Kafka, topic configuration min.insync.replicas")
def acknowledged_is_replicated(ack: Ack, known: Known) -> str | None:
    """With acks=all, success means that at least min ISR replicas hold the record (the disks of dead nodes count, and
    so does what a power loss has taken since)."""
    if ack.acks != -1 or known.promise.hw_truncation or known.promise.without_controller or known.void_epoch >= 0:
        return None
    batch = known.ledger.at(ack.offset)
    if batch is None or batch.end <= known.ledger.low:
        return None
    needed = min(ack.min_isr, len(known.truth.replicas)) if known.truth is not None else ack.min_isr
    holders = [node for node in known.copies if known.held_once(node, batch.end)]
    return None if len(holders) >= needed else f"offset {ack.offset} is held by {holders}; min ISR is {ack.min_isr}"


@invariant("acknowledged-offset", When.ACK, "Bufstream 0.1 report: an acknowledgement carries offset 0")
def acknowledged_offset(ack: Ack, known: Known) -> str | None:
    """The record at the acknowledged offset is the one that was sent. (Where it is committed, or acks=1 and no other
    leader has come since.)"""
    if ack.found is None or ack.sent is None or ack.acks == 0 or ack.found == ack.sent:
        return None
    if ack.offset >= known.ledger.end or (ack.acks != -1 and len(known.leaders) > 1) or _may_be_gone(known):
        return None
    return f"offset {ack.offset} holds {ack.found[:40]!r}, sent was {ack.sent[:40]!r}"
