"""A coordinator's log as a god reads it: the records of __transaction_state, and what they come to."""

from __future__ import annotations

from typing import NamedTuple

from squall.broker.protocol.coordinator_frame import decode_transaction_record
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import HEADER, BatchHeader, decode_batch
from squall.broker.protocol.schema.transaction_records import TransactionLogKey, TransactionLogValue
from squall.chaos.runtimes.sim.invariants.headers import BatchIdentity

Place = tuple[str, int]
PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = 2, 3, 4, 5
"""States, by the numbers that Kafka's log has for them."""
PREPARED, COMPLETED = (PREPARE_COMMIT, PREPARE_ABORT), (COMPLETE_COMMIT, COMPLETE_ABORT)


class TransactionRecord(NamedTuple):
    """A transactional id, as a record has it."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: int
    places: tuple[Place, ...]
    """Sorted."""
    started_ms: int
    updated_ms: int
    tagged: tuple[int, int, int] | None
    """Previous and next producer id and the client's generation; None where the record is too old to have them."""

    @property
    def commits(self) -> bool:
        """True if the decision is to commit; meaningful only if there is one."""
        return self.state in (PREPARE_COMMIT, COMPLETE_COMMIT)

    @property
    def raises_epoch(self) -> bool:
        """True if this transaction has its producer epoch for itself (KIP-890, part 2)."""
        return self.tagged is not None and self.tagged[2] >= 2


class TransactionChange(NamedTuple):
    """A record: what a transactional id was in this log before, and what it is now. None: nothing is known of it."""

    transactional_id: str
    before: TransactionRecord | None
    after: TransactionRecord | None


Said = list[tuple[str, "TransactionRecord | None"]]
"""The records of a batch: transactional id and what it is now."""
Decoded = dict[tuple[int, int], Said]
"""By base offset and checksum of the batch, as far as any log had it: every replica has the same, so each is decoded
once only."""


class TransactionJournal:
    """Represents one partition of __transaction_state in one log: every id as of its last record, and the steps to
    there.
    """

    __slots__ = ("_decoded", "entries", "news", "steps", "touched")

    def __init__(self, decoded: Decoded | None = None) -> None:
        """`decoded`: what all journals of one partition share."""
        self._decoded: Decoded = {} if decoded is None else decoded
        self.begin()

    def begin(self) -> None:
        """Forget all: the log is read anew."""
        self.entries: dict[str, TransactionRecord] = {}
        """By transactional id."""
        self.steps: dict[int, tuple[BatchIdentity, list[TransactionChange]]] = {}
        """By base offset of their batch."""
        self.touched: dict[str, None] = {}
        """Ids with a record since somebody last emptied this."""
        self.news: list[tuple[BatchIdentity, TransactionChange]] = []
        """Steps that came since somebody last took them."""

    def take(self, batch: BatchIdentity, data: memoryview) -> None:
        """One more batch is in the log."""
        if batch.is_control:
            return
        said = self._decoded.get((batch.base, batch.crc))
        if said is None:
            said = self._decoded[batch.base, batch.crc] = decoded(data)
        steps = [self._step(name, after) for name, after in said]
        self.steps[batch.base] = batch, steps
        self.news += [(batch, step) for step in steps]

    def _step(self, name: str, after: TransactionRecord | None) -> TransactionChange:
        before = self.entries.pop(name, None) if after is None else self.entries.get(name)
        if after is not None:
            self.entries[name] = after
        self.touched[name] = None
        return TransactionChange(name, before, after)


def decoded(data: memoryview) -> Said:
    """The records of a batch, without those that are of another kind or cannot be read (bit rot)."""
    said: Said = []
    try:
        for record in decode_batch(BatchHeader._make(HEADER.unpack_from(data)), data):
            found = decode_transaction_record(record.key or b"", record.value)
            if found is not None and isinstance(found[0], TransactionLogKey):
                said.append((found[0].transactional_id, entry_of(found[1], record.value)))
    except MalformedFrame:
        pass  # whoever loads this log says so
    return said


def entry_of(value: object, data: bytes | None) -> TransactionRecord | None:
    """The value of a record; `data`: its bytes, which begin with their version."""
    if not isinstance(value, TransactionLogValue) or data is None:
        return None
    places = [(topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids]
    is_tagged = int.from_bytes(data[:2], "big") >= 1
    return TransactionRecord(
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_status,
        tuple(sorted(places)),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        (value.previous_producer_id, value.next_producer_id, value.client_transaction_version) if is_tagged else None,
    )
