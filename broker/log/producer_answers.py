"""Builds the leader's result for a producer's batch that is not appended, because it is refused or a duplicate."""

from __future__ import annotations

from squall.broker.log.markers import read_marker
from squall.broker.log.producer_rules import BatchMetadata
from squall.broker.log.producers import ProducerStates
from squall.broker.log.results import AppendResult
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.records import CONTROL_BIT, BatchHeader


def answer_to(
    producers: ProducerStates,
    header: BatchHeader,
    batch: memoryview,
    log_end_offset: int,
    place: str,
    *,
    verify: bool,
) -> AppendResult | None:
    """Return the result for a producer's batch that is refused or a duplicate, or None if the batch may be appended. A
    duplicate gets its earlier offsets.

    `place`: topic and partition, for messages. `verify`: refuse a batch that begins a transaction unless the
    transaction's coordinator has agreed.
    """
    assert header.producer_id >= 0
    if header.attributes & CONTROL_BIT:
        try:
            marker = read_marker(header, batch)
        except MalformedFrame as problem:
            return AppendResult.refused(ErrorCode.CORRUPT_MESSAGE, str(problem))
        if marker is None:
            return None
        found = producers.check_marker(header.producer_id, header.producer_epoch, marker, 0)
        return None if found is None else marker_answer(found, log_end_offset)
    verdict = producers.check(header, verify=verify)
    if verdict is None:
        return None
    if isinstance(verdict, BatchMetadata):
        return AppendResult(0, verdict.base_offset, verdict.last_offset, verdict.timestamp, True, None)
    entry = producers.entries.get(header.producer_id)
    known = "nothing is known" if entry is None else f"expected {entry.next_sequence} of epoch {entry.epoch}"
    who = f"producer {header.producer_id} epoch {header.producer_epoch}"
    return AppendResult.refused(verdict, f"{who} sent sequence {header.base_sequence}; {known} in {place}")


def marker_answer(verdict: ErrorCode, log_end_offset: int) -> AppendResult:
    """Return the answer to a marker that is not appended. For a duplicate marker it has the log's last offset."""
    if verdict == ErrorCode.NONE:
        assert log_end_offset > 0
        return AppendResult(0, -1, log_end_offset - 1, -1, True, None)
    return AppendResult.refused(verdict, "the transaction has a newer producer epoch or coordinator")
