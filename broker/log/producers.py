"""What a log remembers of its producers: idempotence (P2, KIP-98, KIP-360) and open transactions.

The state is a function of the batches: the leader checks before it appends, everybody updates after, and a restart
reads the newest snapshot file and replays the batches behind it.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from broker.env import Fs
from broker.log.indexes import AbortedTxn
from broker.protocol.errors import ErrorCode, MalformedFrame
from broker.protocol.records import (
    CONTROL_BIT,
    SEQUENCE_MASK,
    TRANSACTIONAL_BIT,
    BatchHeader,
    decode_batch,
)

WINDOW = 5
"""Newest batches of a producer that are known again when they come once more: clients keep at most 5 in flight."""
ABORT, COMMIT = 0, 1

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = Struct(">hIi")
"""Version, CRC-32C of what follows it, number of entries."""
_SNAPSHOT_CRC_FROM = 6
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
"""Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction's start."""
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")


class Sent(NamedTuple):
    """A batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Producer:
    """One producer id's state in one log."""

    __slots__ = ("coordinator_epoch", "epoch", "next_sequence", "timestamp", "txn_first_offset", "window")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.window: deque[Sent] = deque(maxlen=WINDOW)
        self.next_sequence = 0
        self.timestamp = -1
        """Largest timestamp of the last batch or marker, ms: how old the state is."""
        self.coordinator_epoch = -1
        self.txn_first_offset = -1
        """Where the open transaction begins; -1 where none is open."""

    def restart(self, epoch: int) -> None:
        """A new producer epoch: sequences begin anew and old batches are not duplicates."""
        self.epoch = epoch
        self.window.clear()
        self.next_sequence = 0


class Marker(NamedTuple):
    """The content of a control batch that ends a transaction."""

    commit: bool
    coordinator_epoch: int


class EndedTxn(NamedTuple):
    """A transaction that ended at the marker `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


def read_marker(header: BatchHeader, batch: memoryview) -> Marker | None:
    """The marker in a control batch; None for other control records. MalformedFrame where it cannot be read."""
    records = decode_batch(header, batch)
    try:
        if len(records) != 1 or header.producer_id < 0:
            return None
        _, kind = _MARKER_KEY.unpack_from(records[0].key or b"")
        if kind not in (ABORT, COMMIT):
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(records[0].value or b"")
    except StructError as problem:
        raise MalformedFrame(f"control record: {problem}") from problem
    return Marker(kind == COMMIT, coordinator_epoch)


class ProducerStates:
    """The producers of one log, by id."""

    __slots__ = ("_ended", "_open", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, Producer] = {}
        self._open: dict[int, int] = {}
        """First offset -> producer id of the open transactions, in the order of their offsets."""
        self._ended: deque[EndedTxn] = deque()
        """Transactions whose marker the high watermark may not have passed yet, in the order of their markers."""

    # ----------------------------------------------------------------------------------------------- the leader's

    def check(self, header: BatchHeader) -> ErrorCode | Sent | None:
        """May a client's batch be appended? None: yes. A `Sent`: it is there already. Else the reason why not."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        first = header.base_sequence
        if header.producer_epoch > entry.epoch:
            expected = 0
        else:
            last = first + header.last_offset_delta & SEQUENCE_MASK
            for sent in entry.window:
                if sent.first_sequence == first and sent.last_sequence == last:
                    return sent
            expected = entry.next_sequence
        if first != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if entry.txn_first_offset >= 0 and not header.attributes & TRANSACTIONAL_BIT:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def check_marker(self, header: BatchHeader, marker: Marker) -> ErrorCode | None:
        """May a coordinator's marker be appended? None, or the reason why not."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None

    # ------------------------------------------------------------------------------------------------- everybody's

    def appended(
        self, producer_id: int, epoch: int, sequence: int, base_offset: int, delta: int, timestamp: int, txn: bool
    ) -> None:
        """A data batch of a producer is in the log at base_offset .. base_offset + delta."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = Producer(epoch)
        elif entry.epoch != epoch:
            entry.restart(epoch)
        last = sequence + delta & SEQUENCE_MASK
        entry.next_sequence = last + 1 & SEQUENCE_MASK
        entry.window.append(Sent(sequence, last, base_offset, base_offset + delta, timestamp))
        entry.timestamp = timestamp
        if txn and entry.txn_first_offset < 0:
            entry.txn_first_offset = base_offset
            self._open[base_offset] = producer_id

    def ended(self, header: BatchHeader, marker: Marker) -> AbortedTxn | None:
        """A marker is in the log. What belongs in the index of aborted transactions, if it ended one so."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = Producer(header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.restart(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.timestamp = header.max_timestamp
        first, entry.txn_first_offset = entry.txn_first_offset, -1
        if first < 0:
            return None
        self._open.pop(first, None)
        self._ended.append(EndedTxn(header.producer_id, first, header.base_offset, not marker.commit))
        if marker.commit:
            return None
        stable = next(iter(self._open), header.base_offset + 1)
        return AbortedTxn(header.producer_id, first, header.base_offset, stable)

    def replay(self, header: BatchHeader, batch: memoryview | None) -> AbortedTxn | None:
        """Take a batch of the log into account, as it stands. `batch`: its bytes, needed for control batches only."""
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

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where readers of committed data stop: min of `high_watermark` and every transaction not ended below it."""
        ended = self._ended
        while ended and ended[0].last_offset < high_watermark:
            ended.popleft()
        stable = high_watermark
        if self._open:
            stable = min(stable, next(iter(self._open)))
        for txn in ended:
            stable = min(stable, txn.first_offset)
        return stable

    def expire(self, wall_ms: int, after_ms: int) -> list[int]:
        """Forget producers whose last batch or marker is older than `after_ms`, unless a transaction is open."""
        old = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.txn_first_offset < 0 and wall_ms - entry.timestamp >= after_ms
        ]
        for producer_id in old:
            del self.entries[producer_id]
        return old

    # --------------------------------------------------------------------------------------------------- snapshots

    def encode(self) -> bytes:
        """Kafka's producer snapshot, version 1: of each producer only the last batch."""
        rows = bytearray()
        for producer_id, entry in self.entries.items():
            last = entry.window[-1] if entry.window else Sent(-1, -1, -1, -1, -1)
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
        return bytes(data)

    @classmethod
    def decode(cls, data: bytes) -> ProducerStates | None:
        """From a snapshot; None where it is damaged or of another version."""
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
            entry = states.entries[producer_id] = Producer(epoch)
            entry.timestamp = timestamp
            entry.coordinator_epoch = coordinator_epoch
            entry.txn_first_offset = txn_first_offset
            if last_offset >= 0:
                first = last - delta & SEQUENCE_MASK
                entry.window.append(Sent(first, last, last_offset - delta, last_offset, timestamp))
                entry.next_sequence = last + 1 & SEQUENCE_MASK
        pairs = [(entry.txn_first_offset, pid) for pid, entry in states.entries.items() if entry.txn_first_offset >= 0]
        states._open = dict(sorted(pairs))
        return states


def snapshot_name(offset: int) -> str:
    """Kafka's name of the snapshot of everything before `offset`."""
    return f"{offset:020d}.snapshot"


def write_snapshot(fs: Fs, directory: str, offset: int, states: ProducerStates) -> None:
    """Write the snapshot at `offset` to the page cache. A torn one is recognised by its CRC and ignored."""
    file = fs.open(f"{directory}/{snapshot_name(offset)}", create=True, truncate=True)
    try:
        file.append(states.encode())
    finally:
        file.close()


def snapshot_offsets(fs: Fs, directory: str) -> list[int]:
    """The offsets of a directory's snapshots, ascending."""
    names = [name for name in fs.list(directory) if name.endswith(".snapshot")]
    return [int(name[:-9]) for name in names if name[:-9].isdigit()]


def remove_snapshots(fs: Fs, directory: str, *, above: int = 2**63, below: int = -1) -> bool:
    """Remove the snapshots of offsets beyond `above` or before `below`. True if there were any.

    Before new batches take the place of truncated ones this must be durable (`fsync_dir`): an old snapshot that comes
    back would be taken for one of the new batches.
    """
    gone = [offset for offset in snapshot_offsets(fs, directory) if offset > above or offset < below]
    for offset in gone:
        fs.remove(f"{directory}/{snapshot_name(offset)}")
    return bool(gone)


def load_snapshot(fs: Fs, directory: str, up_to: int) -> tuple[ProducerStates, int]:
    """The newest undamaged snapshot at or before `up_to`, and its offset; an empty one at -1 if there is none."""
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
