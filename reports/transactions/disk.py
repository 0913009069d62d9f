"""Reads transactions from the brokers' partition logs on disk if no trace shows them: Apache Kafka writes no trace.

A run directory holds these logs after a run that was not `valid`. Their times are the brokers' wall clock, in ms, and
are shown as the end of that millisecond, so that no effect comes before its cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from struct import error as StructError

from squall.broker.protocol.coordinator_frame import decode_transaction_record
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import BatchHeader, batches, decode_batch
from squall.broker.protocol.schema.transaction_records import TransactionLogValue
from squall.reports.run_files import RunFiles, integer
from squall.reports.transactions.observed import CoordinatorDecision, ObservedTxnMarker

STATE_LOG = "__transaction_state"
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Lists the states of transactions by Kafka's number (TransactionState)."""
BYTES_AT_MOST = 256 << 20
"""Limits the bytes of all segments that are read; later segments are left out."""
_KEY, _VALUE = Struct(">hh"), Struct(">hi")


class WallClockAxis:
    """Converts times of the brokers' wall clock to seconds on the page's time axis."""

    def __init__(self, files: RunFiles, wall_ms: int, mono_ns: int) -> None:
        self._files, self._wall_ms, self._mono_ns = files, wall_ms, mono_ns

    def seconds(self, timestamp_ms: int) -> float | None:
        """Convert a wall-clock time to seconds on the page's time axis: the end of the millisecond `timestamp_ms`. None
        if the origin of the axis is not known.
        """
        return self._files.seconds(self._mono_ns + (timestamp_ms + 1 - self._wall_ms) * 1_000_000)


def read_logs(
    files: RunFiles, clock: WallClockAxis, partitions: Iterable[str]
) -> tuple[list[CoordinatorDecision], list[ObservedTxnMarker]]:
    """Return states of transactions, and markers of these partitions: each once, from whichever replica has it."""
    budget = [BYTES_AT_MOST]
    states: dict[tuple[str, int], CoordinatorDecision] = {}
    markers: dict[tuple[str, int], ObservedTxnMarker] = {}
    wanted = set(partitions)
    for folder in sorted((files.path / "nodes").glob("*/data/*-*")):
        if folder.name in wanted:
            for header, batch in _batches(folder, budget):
                marker = _marker(clock, folder.name, header, batch)
                if marker is not None:
                    markers.setdefault((marker.partition, marker.offset), marker)
        elif folder.name.rpartition("-")[0] == STATE_LOG:
            for header, batch in _batches(folder, budget):
                for offset, state in _states(clock, header, batch):
                    states.setdefault((folder.name, offset), state)
    in_order = sorted(states.items(), key=lambda each: (each[1].t, each[0]))
    return [state for _, state in in_order], sorted(markers.values(), key=lambda each: each.t)


def _batches(folder: Path, budget: list[int]) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the header and the bytes of each batch of a partition's segments, up to the first batch that cannot be
    read. `budget` holds one number, the bytes that may still be read from all logs; each segment's size is subtracted.
    """
    # Segments are named by their base offsets, with leading zeros: so this is the order of the log.
    for path in sorted(folder.glob("*.log")):
        try:
            budget[0] -= path.stat().st_size
            if budget[0] < 0:
                return
            view = memoryview(path.read_bytes())
            for header, start, stop in batches(view):
                yield header, view[start:stop]
        except (OSError, MalformedFrame):
            return


def _marker(clock: WallClockAxis, partition: str, header: BatchHeader, batch: memoryview) -> ObservedTxnMarker | None:
    if not header.is_control or header.producer_id < 0:
        return None
    at = clock.seconds(header.max_timestamp)
    try:
        (record,) = decode_batch(header, batch)
        _, kind = _KEY.unpack_from(record.key or b"")
        _, epoch = _VALUE.unpack_from(record.value or b"")
    except (MalformedFrame, StructError, ValueError):
        return None
    # The types of control records that end transactions: 0 is ABORT, 1 is COMMIT.
    if at is None or kind not in (0, 1):
        return None
    ids = header.producer_id, header.producer_epoch
    return ObservedTxnMarker(at, -1, partition, *ids, epoch, kind == 1, header.base_offset, 0)


def _states(clock: WallClockAxis, header: BatchHeader, batch: memoryview) -> Iterator[tuple[int, CoordinatorDecision]]:
    if header.is_control:
        return
    try:
        for record in decode_batch(header, batch):
            found = decode_transaction_record(record.key or b"", record.value)
            at = clock.seconds(record.timestamp)
            if found is None or at is None or not isinstance(found[1], TransactionLogValue):
                continue
            value, name = found[1], str(getattr(found[0], "transactional_id", ""))
            status = integer(value.transaction_status)
            state = STATES[status] if 0 <= status < len(STATES) else f"state {status}"
            parts = tuple(
                f"{each.topic}-{index}" for each in value.transaction_partitions or () for index in each.partition_ids
            )
            # A coordinator's epoch is the leader epoch of its partition of the transaction log.
            ids = value.producer_id, value.producer_epoch, header.leader_epoch
            yield record.offset, CoordinatorDecision(at, -1, name, state, *ids, tuple(sorted(parts)))
    except MalformedFrame:
        return
