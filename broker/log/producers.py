"""Keeps the producer state of one log: idempotence (mechanism P2 in docs/mechanisms.md, KIP-98, KIP-360) and open
transactions (mechanisms P3 and R5).

The state is a function of the batches. The leader checks a batch before it appends; leader and followers update the
state after an append; a restart reads the newest snapshot file and replays the batches that follow it. The rules
themselves are in `producer_rules`.
"""

from __future__ import annotations

from collections import deque
from struct import Struct

from crc32c import crc32c

from squall.broker.env import Fs
from squall.broker.log.indexes import AbortedTxn
from squall.broker.log.markers import TxnMarker, read_marker
from squall.broker.log.producer_rules import (
    EPOCH_RAISED_BY_END,
    BatchMetadata,
    EndedTxn,
    ProducerRules,
    ProducerStateEntry,
    VerificationStateEntry,
)
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import CONTROL_BIT, SEQUENCE_MASK, TRANSACTIONAL_BIT, BatchHeader

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = Struct(">hIi")
"""Packs the version, the CRC-32C of the following bytes, and the number of entries."""
_SNAPSHOT_CRC_FROM = 6
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
"""Packs producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, and the first
offset of the open transaction.
"""


class ProducerStates(ProducerRules):
    """Holds the state of all producers in one log, by producer id."""

    __slots__ = ("entries", "ongoing", "undecided", "verifications")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerStateEntry] = {}
        self.ongoing: dict[int, int] = {}
        """Maps the first offset of each open transaction to its producer id, in the order of the offsets."""
        self.undecided: deque[EndedTxn] = deque()
        """Holds the ended transactions whose marker may not be below the high watermark yet, in the order of their
        markers.
        """
        self.verifications: dict[int, dict[int, VerificationStateEntry]] = {}
        """Holds, by producer id and epoch, whether the transaction coordinator was asked if a transaction may begin
        here, and its answer. Not on disk.

        Each epoch has its own entry: a client with another epoch, true or made up, must not use the answer for this
        epoch.
        """

    # ----------------------------------------------------------------------------------------------- the leader's

    def check(self, header: BatchHeader, *, verify: bool = False) -> ErrorCode | BatchMetadata | None:
        """Check a client's batch: return None if it may be appended, the `BatchMetadata` of a duplicate, or an error
        code.

        `verify`: no transaction begins here unless its coordinator has agreed
        (transaction.partition.verification.enable).
        """
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        entry = self.entries.get(producer_id)
        if entry is not None:
            if self.is_fenced(entry, epoch):
                return ErrorCode.INVALID_PRODUCER_EPOCH
            # Check this before the transaction: a retry may arrive after the marker, and gets its first answer.
            known = self.known_batch(entry, header) if first >= 0 else None
            if known is not None:
                return known
        if header.attributes & TRANSACTIONAL_BIT and not self.is_ongoing(entry, epoch):
            asked = self.verification(producer_id, epoch)
            if verify and not self.is_verified(asked, epoch):
                return ErrorCode.INVALID_TXN_STATE
            if entry is None and self.begins_too_late(asked, first):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        # Any first sequence of an unknown producer is accepted, because the state of an idle producer expires.
        if entry is None or first < 0:
            return None  # a group coordinator writes offsets for the producer without sequences
        if first != self.expected_sequence(entry, epoch):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return ErrorCode.INVALID_TXN_STATE if self.leaves_transaction(entry, header) else None

    def check_marker(
        self, producer_id: int, epoch: int, marker: TxnMarker, transaction_version: int
    ) -> ErrorCode | None:
        """Check a coordinator's marker. Return None if it may be appended, `ErrorCode.NONE` if it is a duplicate, or an
        error code.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return None
        if self.is_marker_repeated(entry, epoch, marker, transaction_version):
            return ErrorCode.NONE
        if self.is_marker_late(entry, epoch, transaction_version):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.is_coordinator_fenced(entry, marker):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None

    def take_marker(
        self, producer_id: int, epoch: int, marker: TxnMarker, transaction_version: int
    ) -> ErrorCode | None:
        """Check a marker. Return None if it may be appended, `ErrorCode.NONE` if it is a duplicate, or an error code.
        Unless there is an error, remove the verifications that the marker ends: a transaction that was verified before
        a marker must be verified again.
        """
        verdict = self.check_marker(producer_id, epoch, marker, transaction_version)
        if not verdict:
            self._void(producer_id, epoch, transaction_version)
        return verdict

    def _void(self, producer_id: int, marker_epoch: int, transaction_version: int) -> None:
        for asked in list(self.verifications.get(producer_id, {}).values()):
            if self.is_voided(asked, marker_epoch, transaction_version):
                self._forget_verification(producer_id, asked.epoch)

    def _forget_verification(self, producer_id: int, epoch: int) -> None:
        of_producer = self.verifications.get(producer_id, {})
        of_producer.pop(epoch, None)
        if not of_producer:
            self.verifications.pop(producer_id, None)
        assert self.verifications.get(producer_id) != {}

    def verification(self, producer_id: int, epoch: int) -> VerificationStateEntry | None:
        """Return the question to the coordinator that `begin_verification` noted for this producer and epoch, answered
        or not. Return None if there is none, for example because a marker has removed it.
        """
        return self.verifications.get(producer_id, {}).get(epoch)

    def begin_verification(
        self, header: BatchHeader, wall_ms: int, *, raises_epoch: bool
    ) -> VerificationStateEntry | None:
        """Begin to verify with the coordinator that this partition is in the transaction of a batch (KIP-890). Call it
        before the batch is appended.

        Returns the verification to request; the caller sets its `agreed` if the coordinator confirms. Returns None if
        no request is needed: the transaction is open in this log, the coordinator has confirmed it before, or the batch
        is a duplicate. `raises_epoch`: the producer has transaction version 2.
        """
        assert header.attributes & TRANSACTIONAL_BIT
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        entry = self.entries.get(producer_id)
        if self.is_ongoing(entry, epoch) or (entry is not None and self.known_batch(entry, header) is not None):
            return None
        asked = self.verification(producer_id, epoch)
        if asked is None:
            asked = VerificationStateEntry(epoch, first, raises_epoch)
            self.verifications.setdefault(producer_id, {})[epoch] = asked
        assert asked.epoch == epoch
        asked.lowest_sequence = min(asked.lowest_sequence, first)
        asked.wall_ms = wall_ms
        return None if self.is_verified(asked, epoch) else asked

    # ------------------------------------------------------------------------------------------------- everybody's

    def appended(
        self, producer_id: int, epoch: int, sequence: int, base_offset: int, delta: int, timestamp: int, txn: bool
    ) -> None:
        """Update the state after a producer's data batch was appended at base_offset .. base_offset + delta."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerStateEntry(epoch)
        elif entry.epoch != epoch:
            entry.restart(epoch)
        if sequence >= 0:
            last = sequence + delta & SEQUENCE_MASK
            entry.next_sequence = last + 1 & SEQUENCE_MASK
            entry.remember(BatchMetadata(sequence, last, base_offset, base_offset + delta, timestamp))
        entry.timestamp = timestamp
        if txn and entry.txn_first_offset < 0:
            entry.txn_first_offset = base_offset
            # Offsets only grow, so the first key is always the start of the oldest open transaction.
            self.ongoing[base_offset] = producer_id
            self._forget_verification(producer_id, epoch)
        assert entry.epoch == epoch
        assert not txn or entry.txn_first_offset >= 0

    def ended(self, header: BatchHeader, marker: TxnMarker) -> AbortedTxn | None:
        """Update the state after a marker was appended. Returns the entry for the transaction index if the marker
        aborts a transaction that has data here, else None.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerStateEntry(header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.restart(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        # A marker counts as activity: otherwise the producer's epoch could expire soon after it (KAFKA-9144).
        entry.timestamp = header.max_timestamp
        # A batch does not show its marker's generation. Taken as the second, the next transaction's verification stays.
        self._void(header.producer_id, header.producer_epoch, EPOCH_RAISED_BY_END)
        assert entry.epoch == header.producer_epoch
        first, entry.txn_first_offset = entry.txn_first_offset, -1
        if first < 0:
            return None
        self.ongoing.pop(first, None)
        self.undecided.append(EndedTxn(header.producer_id, first, header.base_offset, not marker.commit))
        if marker.commit:
            return None
        stable = next(iter(self.ongoing), header.base_offset + 1)
        return AbortedTxn(header.producer_id, first, header.base_offset, stable)

    def replay(self, header: BatchHeader, batch: memoryview | None) -> AbortedTxn | None:
        """Update the state from a batch in the log. `batch`: its bytes, needed for control batches only."""
        if header.producer_id < 0:
            return None
        if not header.attributes & CONTROL_BIT:
            self.appended(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset_delta,
                header.max_timestamp,
                header.attributes & TRANSACTIONAL_BIT != 0,
            )
            return None
        assert batch is not None, "a marker cannot be replayed without its bytes"
        marker = read_marker(header, batch)
        return None if marker is None else self.ended(header, marker)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction that is open or whose marker is not below `high_watermark`
        (exclusive); None if there is none. Removes the transactions that the high watermark has passed.
        """
        undecided = self.undecided
        while undecided and not self.is_undecided(undecided[0], high_watermark):
            undecided.popleft()
        return self.oldest_unstable(self.ongoing, undecided)

    def has_ended_transactions(self) -> bool:
        """Return whether a transaction of any known producer has ended in this log."""
        return any(entry.coordinator_epoch >= 0 for entry in self.entries.values())

    def expire(self, wall_ms: int, after_ms: int) -> list[int]:
        """Remove producers that were inactive for `after_ms`, and return their ids."""
        old = [pid for pid, entry in self.entries.items() if self.may_forget(entry, wall_ms, after_ms)]
        for producer_id in old:
            del self.entries[producer_id]
        for producer_id, by_epoch in list(self.verifications.items()):
            for epoch, asked in list(by_epoch.items()):
                if wall_ms - asked.wall_ms >= after_ms:
                    self._forget_verification(producer_id, epoch)
        return old

    # --------------------------------------------------------------------------------------------------- snapshots

    def encode(self) -> bytes:
        """Return Kafka's producer snapshot, version 1, which has only the last batch of each producer."""
        rows = bytearray()
        for producer_id, entry in self.entries.items():
            last = entry.window[-1] if entry.window else BatchMetadata(-1, -1, -1, -1, -1)
            rows += _SNAPSHOT_ENTRY.pack(
                producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.last_offset - last.base_offset,
                entry.timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
        data = bytearray(_SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, 0, len(self.entries)) + rows)
        crc = crc32c(memoryview(data)[_SNAPSHOT_CRC_FROM:])
        _SNAPSHOT_HEAD.pack_into(data, 0, SNAPSHOT_VERSION, crc, len(self.entries))
        assert len(data) == _SNAPSHOT_HEAD.size + len(self.entries) * _SNAPSHOT_ENTRY.size
        return bytes(data)

    @classmethod
    def decode(cls, data: bytes) -> ProducerStates | None:
        """Decode a snapshot. Returns None if it is damaged or has another version."""
        if len(data) < _SNAPSHOT_HEAD.size:
            return None
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        if version != SNAPSHOT_VERSION or crc != crc32c(memoryview(data)[_SNAPSHOT_CRC_FROM:]):
            return None
        if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
            return None
        states = cls()
        for row in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
            producer_id, epoch, last, last_offset, delta, timestamp, coordinator_epoch, txn_first_offset = row
            entry = states.entries[producer_id] = ProducerStateEntry(epoch)
            entry.timestamp = timestamp
            entry.coordinator_epoch = coordinator_epoch
            entry.txn_first_offset = txn_first_offset
            if last_offset >= 0:
                first = last - delta & SEQUENCE_MASK
                entry.remember(BatchMetadata(first, last, last_offset - delta, last_offset, timestamp))
                entry.next_sequence = last + 1 & SEQUENCE_MASK
        pairs = [(entry.txn_first_offset, pid) for pid, entry in states.entries.items() if entry.txn_first_offset >= 0]
        states.ongoing = dict(sorted(pairs))
        assert len(states.ongoing) <= len(states.entries)
        return states


def snapshot_name(offset: int) -> str:
    """Return Kafka's file name of the producer snapshot of everything before `offset`."""
    return f"{offset:020d}.snapshot"


def write_snapshot(fs: Fs, directory: str, offset: int, states: ProducerStates) -> None:
    """Write the snapshot at `offset` to the page cache. Its CRC shows if a crash left it incomplete."""
    assert offset >= 0
    file = fs.open(f"{directory}/{snapshot_name(offset)}", create=True, truncate=True)
    try:
        file.append(states.encode())
    finally:
        file.close()


def snapshot_offsets(fs: Fs, directory: str) -> list[int]:
    """Return the offsets of a directory's snapshots, ascending."""
    # `Fs.list` sorts by name, which is by offset: names have 20 digits.
    names = [name for name in fs.list(directory) if name.endswith(".snapshot")]
    return [int(name[:-9]) for name in names if name[:-9].isdigit()]


def remove_snapshots(fs: Fs, directory: str, *, above: int = 2**63, below: int = -1) -> bool:
    """Remove the snapshots above `above` or below `below`. Returns whether any was removed.

    The removal must be durable (`fsync_dir`) before new batches replace truncated ones: otherwise an old snapshot could
    return after a power loss and be applied to the new batches.
    """
    gone = [offset for offset in snapshot_offsets(fs, directory) if offset > above or offset < below]
    for offset in gone:
        fs.remove(f"{directory}/{snapshot_name(offset)}")
    return bool(gone)


def load_snapshot(fs: Fs, directory: str, up_to: int) -> tuple[ProducerStates, int]:
    """Return the newest undamaged snapshot at or before `up_to` with its offset; (empty state, -1) if there is none."""
    for offset in reversed(snapshot_offsets(fs, directory)):
        if offset > up_to:
            continue
        file = fs.open(f"{directory}/{snapshot_name(offset)}")
        try:
            states = ProducerStates.decode(file.pread(file.size(), 0))
        finally:
            file.close()
        if states is not None:
            return states, offset
    return ProducerStates(), -1
