"""Replays one copy of a partition of __transaction_state, to derive the state of each transactional id from the
records.
"""

from __future__ import annotations

from typing import NamedTuple

from squall.broker.protocol.coordinator_frame import decode_transaction_record
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import HEADER, BatchHeader, decode_batch
from squall.broker.protocol.schema.transaction_records import TransactionLogKey, TransactionLogValue
from squall.chaos.runtimes.sim.invariants.headers import BatchIdentity

Place = tuple[str, int]
PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = 2, 3, 4, 5
"""Gives states of transactions by their numbers in Kafka's log."""
PREPARED, COMPLETED = (PREPARE_COMMIT, PREPARE_ABORT), (COMPLETE_COMMIT, COMPLETE_ABORT)


class TransactionRecord(NamedTuple):
    """Holds the state of a transactional id, as a record in the log has it."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: int
    places: tuple[Place, ...]
    """Lists the transaction's partitions, sorted."""
    started_ms: int
    updated_ms: int
    tagged: tuple[int, int, int] | None
    """Holds the record's tagged fields: (previous producer id, next producer id, client transaction version). The last
    is 2 with KIP-890, part 2. None if the record's version is 0, which has no tagged fields.
    """

    @property
    def commits(self) -> bool:
        """Is True if the state is PREPARE_COMMIT or COMPLETE_COMMIT."""
        return self.state in (PREPARE_COMMIT, COMPLETE_COMMIT)

    @property
    def raises_epoch(self) -> bool:
        """Is True if each transaction gets a new producer epoch (KIP-890, part 2)."""
        return self.tagged is not None and self.tagged[2] >= 2


class TransactionChange(NamedTuple):
    """Records the state of a transactional id before and after a record. None: there is no state."""

    transactional_id: str
    before: TransactionRecord | None
    after: TransactionRecord | None


DecodedRecords = list[tuple[str, "TransactionRecord | None"]]
"""Lists the records of a batch: transactional id and its new state."""
Decoded = dict[tuple[int, int], DecodedRecords]
"""Maps the base offset and checksum of a batch to its records. Every replica has the same batches, so each is decoded
only once.
"""


class TransactionJournal:
    """Follows one copy of a partition of __transaction_state: the state of each transactional id after its last record,
    and the changes on the way.
    """

    __slots__ = ("_decoded", "entries", "news", "steps", "changed_ids")

    def __init__(self, decoded: Decoded | None = None) -> None:
        """Start empty. `decoded`: a cache of decoded batches, which the replays of all replicas of one partition share.
        """
        self._decoded: Decoded = {} if decoded is None else decoded
        self.begin()

    def begin(self) -> None:
        """Forget everything, because the log is read again from its start."""
        self.entries: dict[str, TransactionRecord] = {}
        """Maps a transactional id to its state."""
        self.steps: dict[int, tuple[BatchIdentity, list[TransactionChange]]] = {}
        """Maps the base offset of a batch to the batch and the changes of transactional ids that it makes."""
        self.changed_ids: dict[str, None] = {}
        """Holds the transactional ids with new records that are not checked yet."""
        self.news: list[tuple[BatchIdentity, TransactionChange]] = []
        """Lists the changes that are not checked yet, each with the batch that makes it."""

    def take(self, batch: BatchIdentity, data: memoryview) -> None:
        """Replay one more batch of the log."""
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
        self.changed_ids[name] = None
        return TransactionChange(name, before, after)


def decoded(data: memoryview) -> DecodedRecords:
    """Return the records on transactional ids in a batch of __transaction_state. Records with another kind of key are
    left out, and, if bits were flipped, all from the first unreadable record on.
    """
    said: DecodedRecords = []
    try:
        for record in decode_batch(BatchHeader._make(HEADER.unpack_from(data)), data):
            found = decode_transaction_record(record.key or b"", record.value)
            if found is not None and isinstance(found[0], TransactionLogKey):
                said.append((found[0].transactional_id, entry_of(found[1], record.value)))
    except MalformedFrame:
        pass  # whoever loads this log says so
    return said


def entry_of(value: object, data: bytes | None) -> TransactionRecord | None:
    """Return the state in a record's value; `data`: the value's bytes, which begin with their version."""
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
