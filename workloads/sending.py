"""Checks the settings and the planned operations of workloads that send single records."""

from __future__ import annotations

from collections.abc import Collection

from squall.workloads.agenda import PlannedRecord
from squall.workloads.client.settings import IDEMPOTENT_IN_FLIGHT
from squall.workloads.scenario import MAX_BYTES, MIN_BYTES


def contradictions(
    *, acks: int, idempotence: bool, max_in_flight: int, linger_ms: int, delivery_timeout_ms: int
) -> list[str]:
    """Return a sentence for each contradiction between these producer settings."""
    found = []
    if idempotence and acks != -1:
        found.append("idempotence needs acks=all (-1)")
    if idempotence and max_in_flight > IDEMPOTENT_IN_FLIGHT:
        found.append(f"idempotence allows at most {IDEMPOTENT_IN_FLIGHT} requests in flight (max_in_flight)")
    if delivery_timeout_ms <= linger_ms:
        found.append(f"linger_ms {linger_ms} leaves nothing of delivery_timeout_ms {delivery_timeout_ms}")
    return found


def wrong_send(operation: PlannedRecord, producers: int, partitions: int, topics: Collection[str]) -> str:
    """Return why this send is not possible in a load with so many producers, and with so many partitions in each of
    these topics; empty if it is possible.
    """
    if not 0 <= operation.producer < producers:
        return f"there is no producer {operation.producer}: workload.producers is {producers}"
    if not 0 <= operation.partition < partitions or operation.topic not in topics:
        return f"there is no partition {operation.topic}-{operation.partition}"
    return wrong_size(operation.bytes)


def wrong_size(size: int) -> str:
    """Return why a record cannot have this size; empty if it can."""
    if not MIN_BYTES <= size <= MAX_BYTES:
        return f"{size} bytes: between {MIN_BYTES} and {MAX_BYTES} are allowed"
    return ""
