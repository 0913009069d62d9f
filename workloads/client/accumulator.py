"""Decides batches, sequences, retries and outcomes of one producer's records, without I/O. Producers batch records for
leaders, and a batch that is sent again is not appended again (mechanisms P1 and P2 in docs/mechanisms.md).

Records of a partition queue in the partition's *lane*, in batches numbered in the order of sending. `producer` does the
I/O: it takes batches out, sends them, and reports the result of each attempt: `acked`, `refused` with an error, or
`lost` with its connection. Every call returns the batches that now have their final outcome ("settled").

How order is kept (with idempotence, or with one batch in flight):
- A batch never changes its sequence or its bytes: a retry is the same batch, and a broker that has it already answers
with its first offset.
- While a lane has batches in flight, its next batch uses the same connection, so that no broker sees a later batch
before an earlier batch that is still on its way to another broker.
- After any failure a lane waits until it has nothing in flight, then sends from the lowest number, one batch at a time,
until a batch is acknowledged. The same holds for a lane's first batch: a broker without state for a producer accepts
*any* sequence, so a second batch could be appended although the first was not.
- A batch that got a sequence and is not acknowledged leaves a gap, and a batch in doubt may still arrive. Nothing may
be sent after it: its lane stops, unsent batches fail, and the producer takes no new records. The other lanes finish.
The caller continues with a new producer, which gets a new producer id; the old one's epoch is not bumped.

A batch is FAIL only if each of its attempts got an error that proves that nothing was appended, or never left the
client. With one attempt in doubt it is INFO, unless a later attempt is acknowledged.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from squall.broker.protocol.errors import name_of
from squall.workloads.client.outcomes import (
    DELIVERY_TIMED_OUT,
    PRODUCER_STOPPED,
    OperationStatus,
    Outcome,
    ProduceErrorMeaning,
    meaning,
)
from squall.workloads.client.settings import IDEMPOTENT_IN_FLIGHT, ProducerSettings

MAX_SEQUENCE = 2**31 - 1
# The size of the header of a record batch (format 2).
BATCH_OVERHEAD = 61
RECORD_OVERHEAD = 21
"""Bounds the bytes of a record, not counting key, value and headers: five varints and the attributes."""

Done = Callable[[Outcome], None]
Header = tuple[str, bytes | None]


class BufferFull(Exception):
    """Reports that the producer already holds `buffer_bytes` of records without a final outcome."""


class ProducerRetired(Exception):
    """Reports that this producer takes no new records. The message says why."""


class QueuedRecord(NamedTuple):
    """Holds a record that was passed to the producer, with its callback."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp_ms: int
    """Gives the record's create time, in ms."""
    done: Done
    """Is called once, with the record's outcome."""


class ProducerBatch:
    """Holds records of one partition that are sent together and share one status. It is sealed (takes no more records)
    once it is full or was taken out to be sent.
    """

    __slots__ = (
        "attempts",
        "deadline_ms",
        "doubts",
        "encoded",
        "error",
        "lane",
        "number",
        "records",
        "sealed",
        "send_at_ms",
        "sequence",
        "size",
    )

    def __init__(self, lane: PartitionQueue, number: int, send_at_ms: int, deadline_ms: int) -> None:
        self.lane = lane
        self.number = number
        self.send_at_ms = send_at_ms
        self.deadline_ms = deadline_ms
        self.records: list[QueuedRecord] = []
        self.size = BATCH_OVERHEAD
        self.sequence = -1
        self.sealed = False
        self.attempts = 0
        self.doubts = 0
        """Counts the attempts after which the broker may have appended the batch."""
        self.error = ""
        """Names the batch's most recent error; empty if there was none."""
        self.encoded: bytes | None = None
        """Holds the batch's bytes, which are encoded at the first attempt and never change."""

    def __repr__(self) -> str:
        return f"<{self.lane.topic}-{self.lane.index} #{self.number} seq {self.sequence} x{len(self.records)}>"


class SettledBatch(NamedTuple):
    """Holds a batch with its final outcome: all of its records have the same status."""

    batch: ProducerBatch
    status: OperationStatus
    base_offset: int
    log_append_ms: int
    """Gives the log append time in ms; -1 if the records keep their create times."""
    error: str

    def outcomes(self) -> Iterator[tuple[QueuedRecord, Outcome]]:
        """Yield each record with its own outcome, in order."""
        for delta, record in enumerate(self.batch.records):
            if self.status is OperationStatus.OK:
                offset = self.base_offset + delta if self.base_offset >= 0 else -1
                stamp = self.log_append_ms if self.log_append_ms >= 0 else record.timestamp_ms
                yield record, Outcome(OperationStatus.OK, offset, stamp, "", self.batch.attempts)
            else:
                yield record, Outcome(self.status, -1, -1, self.error)


class PartitionQueue:
    """Holds the batches of one partition that have no final outcome yet."""

    __slots__ = (
        "confirmed",
        "hold_until_ms",
        "in_flight",
        "index",
        "next_number",
        "next_sequence",
        "route",
        "stopped",
        "topic",
        "waiting",
    )

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.index = index
        self.waiting: deque[ProducerBatch] = deque()
        """Holds the waiting batches, ascending by number. Batches to be retried come first; only the last batch may
        take more records.
        """
        self.in_flight: list[ProducerBatch] = []
        """Holds the batches in flight, in the order in which they were sent."""
        self.route = -1
        """Identifies the connection that the batches in flight were sent over; -1 before the first send."""
        self.next_sequence = 0
        self.next_number = 0
        self.confirmed = False
        """Is True if a batch was acknowledged since the start or the last failure, so that several batches may be in
        flight.
        """
        self.hold_until_ms = 0
        """Gives the time at which the back-off after a failure ends."""
        self.stopped = False
        """Is True if order can no longer be kept, so that nothing more is sent."""


class RecordAccumulator:
    """Holds one producer's batches that have no final outcome yet, in one queue (lane) for each partition. Times are
    monotonic ms.
    """

    def __init__(
        self, settings: ProducerSettings, rng: random.Random, *, backoff_ms: int = 100, backoff_max_ms: int = 1_000
    ) -> None:
        self._settings = settings
        self._rng = rng
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._lanes: dict[tuple[str, int], PartitionQueue] = {}
        self._busy: dict[tuple[str, int], PartitionQueue] = {}
        self._ordered = settings.idempotence or settings.max_in_flight == 1
        # Without an order to keep, only the limit of the connection counts (`Producer._takes_more`).
        self._lane_limit = min(settings.max_in_flight, IDEMPOTENT_IN_FLIGHT) if self._ordered else 1 << 30
        self._flushing = False
        self.buffered_bytes = 0
        """Counts the bytes of records that have no final outcome yet."""
        self.idle_until_ms = 0
        """Gives a time before which no batch becomes sendable or expires, because all batches linger."""
        self.retired = ""
        """Says why no new records are taken; empty while they are."""

    @property
    def idle(self) -> bool:
        """Return whether no batch waits or is in flight."""
        return not self._busy

    def takes(self, size: int) -> bool:
        """Return whether `add` would accept a record that adds `size` bytes to a batch. The first record is always
        accepted.
        """
        fits = not self.buffered_bytes or self.buffered_bytes + size <= self._settings.buffer_bytes
        return fits and not self.retired

    def add(self, topic: str, index: int, record: QueuedRecord, now_ms: int) -> int | None:
        """Queue a record. Return the time, in ms, at which the caller must call `sendable` and `expire`: now if a batch
        is full, else when the record's new batch has lingered. Return None if the record joined an earlier batch that
        is not full.

        Raises BufferFull or ProducerRetired; the record is then not queued.
        """
        size = _size_of(record)
        if self.retired:
            raise ProducerRetired(self.retired)
        if not self.takes(size):
            raise BufferFull(f"{self.buffered_bytes} bytes")
        rested = not self._busy
        lane = self._lane(topic, index)
        look_at_ms = None
        batch = lane.waiting[-1] if lane.waiting else None
        if batch is None or batch.sealed or batch.size + size > self._settings.batch_size:
            # The open batch has no room left for this record, so it need not linger any longer.
            if batch is not None and not batch.sealed:
                batch.sealed = True
                look_at_ms = now_ms
            batch = self._open(lane, now_ms)
            if look_at_ms is None:
                look_at_ms = batch.send_at_ms
        batch.records.append(record)
        batch.size += size
        self.buffered_bytes += size
        if batch.size >= self._settings.batch_size:
            batch.sealed = True
            look_at_ms = now_ms
        if look_at_ms is not None:
            # If nothing was queued, the old time belongs to batches that are gone, and min() would keep it.
            self.idle_until_ms = look_at_ms if rested else min(self.idle_until_ms, look_at_ms)
        return look_at_ms

    def sendable(self, now_ms: int) -> list[PartitionQueue]:
        """Return the partition queues whose next batch may be sent now, the queue that has waited longest first."""
        lanes = [lane for lane in self._busy.values() if self._may_send(lane, now_ms)]
        lanes.sort(key=lambda lane: lane.waiting[0].deadline_ms)
        return lanes

    def take(self, lane: PartitionQueue, route: int, now_ms: int) -> ProducerBatch | None:
        """Take out the next batch to send it over the connection `route`; None if it may not be sent there now."""
        if not self._may_send(lane, now_ms) or (self._ordered and lane.in_flight and lane.route != route):
            return None
        batch = lane.waiting.popleft()
        assert not lane.in_flight or not self._ordered or lane.in_flight[-1].number < batch.number, lane.in_flight
        # Numbered when it is first sent, not when it is queued: a batch that expires before that leaves no gap.
        if self._settings.idempotence and batch.sequence < 0:
            batch.sequence = lane.next_sequence
            lane.next_sequence = _sequence_after(batch.sequence, len(batch.records))
        batch.sealed = True
        batch.attempts += 1
        lane.in_flight.append(batch)
        lane.route = route
        return batch

    def acked(self, batch: ProducerBatch, base_offset: int, log_append_ms: int) -> list[SettledBatch]:
        """Settle a batch that was appended at `base_offset` (-1 if unknown)."""
        lane = batch.lane
        lane.in_flight.remove(batch)
        lane.confirmed = True
        return [self._settle(batch, OperationStatus.OK, base_offset, log_append_ms)]

    def refused(self, batch: ProducerBatch, code: int, now_ms: int) -> list[SettledBatch]:
        """Handle an attempt that was answered with an error: retry the batch, or settle it."""
        batch.error = name_of(code)
        match meaning(code):
            case ProduceErrorMeaning.REFUSED:
                return self._give_up(batch)
            case ProduceErrorMeaning.NOT_NOW:
                return self._requeue(batch, now_ms)
            case ProduceErrorMeaning.OUT_OF_ORDER:
                # Expected behind a batch that failed. Without an earlier batch, the broker lost acknowledged records.
                return self._requeue(batch, now_ms) if self._has_earlier(batch) else self._give_up(batch)
            case ProduceErrorMeaning.DOUBT:
                batch.doubts += 1
                return self._requeue(batch, now_ms)
            case ProduceErrorMeaning.END_IN_DOUBT:
                batch.doubts += 1
                return self._give_up(batch)

    def lost(self, batch: ProducerBatch, why: str, now_ms: int, *, sent: bool) -> list[SettledBatch]:
        """Handle an attempt whose connection ended or that timed out. `sent` is true if some of its bytes may have
        reached a broker.
        """
        batch.error = why
        if sent:
            batch.doubts += 1
        return self._requeue(batch, now_ms)

    def expire(self, now_ms: int) -> list[SettledBatch]:
        """Settle the waiting batches whose delivery time-out has passed: each gets its final outcome. Batches in flight
        wait for their response or for the end of their connection.
        """
        settled: list[SettledBatch] = []
        for lane in list(self._busy.values()):
            while lane.waiting and lane.waiting[0].deadline_ms <= now_ms:
                settled += self._give_up(lane.waiting[0])
        return settled

    def abandon(self, why: str) -> list[SettledBatch]:
        """Give every batch the outcome that it has at this moment (FAIL or INFO), because the producer is closed
        without waiting.
        """
        self._retire(why)
        settled: list[SettledBatch] = []
        for lane in list(self._busy.values()):
            for batch in (*lane.in_flight, *lane.waiting):
                in_flight = batch in lane.in_flight
                # The broker may still append it after the producer was closed.
                batch.doubts += in_flight
                batch.error = batch.error or why
                settled.append(self._end(batch))
        return settled

    def flush(self) -> None:
        """Send batches without lingering from now on, because the producer is closing."""
        self._flushing = True
        self.idle_until_ms = 0

    def retire(self, why: str) -> None:
        """Take no new records, but still send the queued records."""
        self._retire(why)

    def restart_sequences(self) -> None:
        """Restart sequences at 0 for a new producer id or epoch. No batch may wait or be in flight."""
        assert self.idle
        # A partition that knows an older epoch refuses a newer one that does not begin at sequence 0.
        for lane in self._lanes.values():
            lane.next_sequence, lane.confirmed = 0, False

    def leader_moved(self, topic: str, index: int) -> None:
        """End the back-off of a partition's queue, because the partition has a newer leader."""
        lane = self._lanes.get((topic, index))
        if lane is not None:
            lane.hold_until_ms = 0

    def next_look_ms(self, now_ms: int) -> int | None:
        """Return the earliest time at which a waiting batch becomes sendable or expires if no record arrives before;
        None if there is no such time.
        """
        looks: list[int] = []
        for lane in self._busy.values():
            if lane.waiting:
                head = lane.waiting[0]
                looks.append(head.deadline_ms)
                at_ms = max(lane.hold_until_ms, 0 if self._need_not_linger(lane) else head.send_at_ms)
                # A batch that is due but was not sent waits for a connection or a response, and either wakes the
                # producer. With a time in the past it would spin.
                if at_ms > now_ms and not self._must_wait_for_answers(lane):
                    looks.append(at_ms)
        return min(looks, default=None)

    def _lane(self, topic: str, index: int) -> PartitionQueue:
        key = (topic, index)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = PartitionQueue(topic, index)
        self._busy[key] = lane
        return lane

    def _open(self, lane: PartitionQueue, now_ms: int) -> ProducerBatch:
        settings = self._settings
        batch = ProducerBatch(
            lane, lane.next_number, now_ms + settings.linger_ms, now_ms + settings.delivery_timeout_ms
        )
        lane.next_number += 1
        lane.waiting.append(batch)
        return batch

    def _may_send(self, lane: PartitionQueue, now_ms: int) -> bool:
        if not lane.waiting or now_ms < lane.hold_until_ms or self._must_wait_for_answers(lane):
            return False
        return self._need_not_linger(lane) or lane.waiting[0].send_at_ms <= now_ms

    def _need_not_linger(self, lane: PartitionQueue) -> bool:
        return self._flushing or len(lane.waiting) > 1 or lane.waiting[0].sealed

    def _must_wait_for_answers(self, lane: PartitionQueue) -> bool:
        if not self._ordered or not lane.in_flight:
            return False
        confirmed = lane.confirmed or self._settings.keep_in_flight
        # Until a batch is acknowledged, a broker without state for the producer would accept any sequence.
        if not confirmed or len(lane.in_flight) >= self._lane_limit:
            return True
        # A batch to be retried has a lower number than the batches in flight: wait for their responses.
        return lane.in_flight[-1].number > lane.waiting[0].number

    def _has_earlier(self, batch: ProducerBatch) -> bool:
        lane = batch.lane
        return any(other.number < batch.number for other in (*lane.waiting, *lane.in_flight))

    def _requeue(self, batch: ProducerBatch, now_ms: int) -> list[SettledBatch]:
        """Put a batch back at the front of its partition's queue, or settle it if nothing more may be sent."""
        lane = batch.lane
        # A stopped lane has a gap before this batch: a broker would refuse every retry.
        if lane.stopped or batch.deadline_ms <= now_ms:
            return self._give_up(batch)
        lane.in_flight.remove(batch)
        lane.confirmed = False
        lane.hold_until_ms = max(lane.hold_until_ms, now_ms + self._backoff(batch.attempts))
        # Batches in flight may fail in any order, and their sequences must be sent again in ascending order.
        place = sum(other.number < batch.number for other in lane.waiting)
        lane.waiting.insert(place, batch)
        return []

    def _backoff(self, attempts: int) -> int:
        exponential = min(self._backoff_max_ms, self._backoff_ms * 2 ** min(attempts - 1, 16))
        return int(exponential * (0.8 + 0.4 * self._rng.random()))

    def _give_up(self, batch: ProducerBatch) -> list[SettledBatch]:
        """Settle a batch that was not acknowledged. Stop its partition's queue if later batches could get out of order.
        """
        lane = batch.lane
        # A broker refuses all sequences behind a gap. Without sequences, a batch in doubt may still arrive, behind
        # later ones.
        gap = batch.sequence >= 0 or (self._ordered and batch.doubts > 0)
        settled = [self._end(batch)]
        if gap and not lane.stopped:
            lane.stopped = True
            self._retire(f"{lane.topic}-{lane.index}: gave up {batch!r} after {batch.error}")
            for later in list(lane.waiting):
                later.error = later.error or PRODUCER_STOPPED
                settled.append(self._end(later))
        return settled

    def _end(self, batch: ProducerBatch) -> SettledBatch:
        lane = batch.lane
        if batch in lane.in_flight:
            lane.in_flight.remove(batch)
        else:
            lane.waiting.remove(batch)
        lane.confirmed = False
        batch.error = batch.error or DELIVERY_TIMED_OUT
        status = OperationStatus.INFO if batch.doubts else OperationStatus.FAIL
        # As in Jepsen, a process begins nothing more after an operation in doubt: its successor has a new producer id.
        if status is OperationStatus.INFO:
            self._retire(f"{lane.topic}-{lane.index}: in doubt after {batch.error}")
        return self._settle(batch, status, -1, -1)

    def _settle(
        self, batch: ProducerBatch, status: OperationStatus, base_offset: int, log_append_ms: int
    ) -> SettledBatch:
        lane = batch.lane
        # `add` counted the records alone.
        self.buffered_bytes -= batch.size - BATCH_OVERHEAD
        if not lane.waiting and not lane.in_flight:
            self._busy.pop((lane.topic, lane.index), None)
        error = "" if status is OperationStatus.OK else batch.error
        return SettledBatch(batch, status, base_offset, log_append_ms, error)

    def _retire(self, why: str) -> None:
        self.retired = self.retired or why


def _size_of(record: QueuedRecord) -> int:
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += 10 + len(name) + len(content or b"")
    return size


def _sequence_after(sequence: int, count: int) -> int:
    """Return the sequence that follows `count` records. Sequences count from 0 to 2^31-1 and wrap around."""
    return (sequence + count) % (MAX_SEQUENCE + 1)
