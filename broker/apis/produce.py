"""Handles Produce: appends the batches of clients, and responds once the requested acknowledgement is due (mechanisms
R7 and R8 in docs/mechanisms.md).

Batches are appended in order of arrival as they are parsed. The first batches of a transaction are an exception: they
wait for the transaction's coordinator (`txn_verification`), and later requests of the connection wait with them. A
Produce that waits for replicas delays only its own response: the next Produce of the connection is appended meanwhile,
and responses still leave in order.

A request with many partitions is appended in chunks, between which other tasks run. Meanwhile no further request is
taken from the connection, so requests of one connection take effect in their order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from squall.broker.apis.delayed_appends import DelayedProduceResponse, PiecewiseProduceResponse
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.hot import decode_produce, encode_produce_response
from squall.broker.protocol.produce_counts import ProducerSettingsCounter
from squall.broker.protocol.records import HEADER, TRANSACTIONAL_BIT, BatchHeader
from squall.broker.replicas.order_queue import FEW_PARTITIONS, FIRST_COSTS, SPENT_IN_A_TURN
from squall.broker.replicas.purgatory import DelayedProduce, ProduceResult
from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from squall.broker.apis.record_validation import CheckedBatches, RecordValidator
    from squall.broker.apis.txn_verification import Refused, TxnVerification
    from squall.broker.env import Env
    from squall.broker.log.results import AppendResult
    from squall.broker.net.connection import PendingResponse
    from squall.broker.net.deadlines import ParkedRequestTimers
    from squall.broker.protocol.hot import ProduceIn, ProducePart, ProducePartOut
    from squall.broker.protocol.record_walk import CheckedBatch
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager

_NONE = int(ErrorCode.NONE)
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_NOT_ENOUGH_REPLICAS = int(ErrorCode.NOT_ENOUGH_REPLICAS)
_NOT_ENOUGH_AFTER_APPEND = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
_INVALID_ACKS = int(ErrorCode.INVALID_REQUIRED_ACKS)
_INVALID_RECORD = int(ErrorCode.INVALID_RECORD)
_WITHOUT_LOG_START = frozenset({int(ErrorCode.CORRUPT_MESSAGE), int(ErrorCode.MESSAGE_TOO_LARGE)})
"""Lists the errors for which Kafka's Produce response leaves the log start offset unset
(`ReplicaManager.appendRecordsToLeader`).
"""
_INVALID_TOPIC = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
_NO_TRANSACTIONAL_ID = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_TRANSACTIONAL_AT = 22
"""Is the position of the byte with `TRANSACTIONAL_BIT` in a batch."""
_TOPIC_IDS_FROM = 13
_ONE_BATCH = 2
"""Is `ProduceIn.size`, the number of topics plus batches, of a request with one batch."""
_ZSTD_FROM = 7
_LEADER_HINTS_FROM = 10

NOTHING_CHECKED: CheckedBatches = {}

Topics = list[tuple[bytes, "list[ProducePart]"]]
"""Lists the topics of a request, or of one chunk of it, with the batches of each topic."""
Results = list[tuple[bytes, list[ProduceResult]]]
"""Lists the results by topic. The key of a topic is its id or name, as in the request."""


class ProduceApi:
    """Handles Produce requests."""

    def __init__(
        self,
        env: Env,
        replicas: ReplicaManager,
        timers: ParkedRequestTimers,
        verification: TxnVerification,
        records: RecordValidator,
        start_soon: Callable[..., None],
        *,
        most_batches: int,
    ) -> None:
        """Create the handler of Produce. `most_batches` limits the batches and the topics of one request."""
        self._env, self._replicas, self.timers, self._verification, self._records = (
            env,
            replicas,
            timers,
            verification,
            records,
        )
        self._start_soon, self._most_batches = start_soon, most_batches
        self.counts = ProducerSettingsCounter(env.trace)
        self.messages_in = self.bytes_in = 0
        """Count the records, and the bytes of their batches, that were appended since the start of the node."""
        self._turn = trio.Lock()
        """Lets one request at a time append a chunk of its batches. Other tasks run between two chunks."""

    def handle(self, slot: PendingResponse, view: memoryview, at: int) -> None:
        """Append every batch of the request, and respond: at once, or when the appends are acknowledged. The request
        begins at byte `at` of `view`. Raises MalformedFrame, which closes the connection.
        """
        request = decode_produce(view, at, slot.version, self._most_batches)
        if request.size != _ONE_BATCH:  # a single batch repeats no partition
            request = request._replace(topics=_last_of_each(request.topics))
        slot.is_produce = request.acks != 0
        conn = slot.conn
        self.counts.count(conn.client_id, request, conn.unanswered_produces, len(conn.slots))
        by_ids = slot.version >= _TOPIC_IDS_FROM
        if not self._records.defer(slot, request, by_ids, partial(self._checked, slot, request)):
            self._checked(slot, request, NOTHING_CHECKED)

    def _checked(self, slot: PendingResponse, request: ProduceIn, checked: CheckedBatches) -> None:
        """Verify the request's transaction, if any, then append. This is called once the batches that need validation
        are validated.
        """
        if request.transactional_id is None:
            # Without a transactional id no coordinator can verify the transaction, so the whole request is refused.
            self._append_all(slot, request, checked, _all_refused(request) if _has_transactions(request) else None)
            return
        by_ids = slot.version >= _TOPIC_IDS_FROM
        if not self._verification.defer(slot, request, by_ids, partial(self._append_all, slot, request, checked)):
            self._append_all(slot, request, checked, None)

    def _append_all(
        self, slot: PendingResponse, request: ProduceIn, checked: CheckedBatches, refused: Refused | None
    ) -> None:
        """Append the batches of the request, and respond: at once, or when the appends are acknowledged. `checked` has
        the results of record validation. `refused` maps each batch that must not be appended to its error.
        """
        if request.size > FEW_PARTITIONS:
            turns = self._turns(slot, request, checked, refused)
            # The first chunk takes effect in this step. Later requests are held up only if more chunks follow.
            if next(turns, False):
                slot.conn.hold(when_closed=True)
                self._start_soon(self._append_rest, slot, turns)
            return
        acks = request.acks
        now_ms, results, parked = self._append_some(slot.version, acks, request.topics, checked, refused)
        if acks == 0:
            self._send_no_response(slot, results)
        elif parked:
            self._park(slot, results, parked, acks, now_ms + request.timeout_ms)
        else:
            self.reply(slot, results)

    async def _append_rest(self, slot: PendingResponse, turns: Iterator[bool]) -> None:
        """Append the chunks of a large request after its first chunk: each step of `turns` (see `_turns`) appends one.
        This continues even if the connection ends, because the whole request was received.
        """
        try:
            more = True
            while more:
                async with self._turn:
                    # A lock may be had though the node has stopped meanwhile: its logs are flushed, and must stay so.
                    await trio.lowlevel.checkpoint_if_cancelled()
                    more = next(turns, False)
                self._replicas.settle()
        finally:
            slot.conn.release()

    def _turns(
        self, slot: PendingResponse, request: ProduceIn, checked: CheckedBatches, refused: Refused | None
    ) -> Iterator[bool]:
        """Append every batch, and respond: at once, or when the appends are acknowledged. Yield (always True) at each
        point where other tasks may run.
        """
        find = self._replicas.by_id.get if slot.version >= _TOPIC_IDS_FROM else self._replicas.by_name.get
        results: Results = []
        delayed = PiecewiseProduceResponse(self, slot, results)
        slot.parked = delayed

        def append(topics: Topics) -> int:
            """Append these batches, and return the time of the append in ms of the node's clock."""
            now_ms, out, parked = self._append_some(slot.version, request.acks, topics, checked, refused)
            if results:  # the last topic of a chunk continues as the first of the next
                results[-1][1].extend(out.pop(0)[1])
            results.extend(out)
            if request.acks != 0 and not delayed.is_over():
                for one in parked:
                    delayed.wait_for(one)
            return now_ms

        turn: Topics = []
        spent = 0
        for key, parts in request.topics:
            begin = 0
            for at, (index, _) in enumerate(parts):
                if spent >= SPENT_IN_A_TURN:
                    DONE.entries += spent
                    append([*turn, (key, parts[begin:at])])
                    turn, begin, spent = [], at, 0
                    yield True
                hosted = find(key)
                spent += _cost(hosted.get(index) if hosted else None)
            turn.append((key, parts[begin:]))
        DONE.entries += spent
        now_ms = append(turn)
        if delayed.is_over():
            return  # the connection has ended
        if request.acks == 0:
            self._send_no_response(slot, results)
            return
        delayed.settled()
        # acks=1 has no deadline, as in `_park`.
        if request.acks == -1 and not delayed.is_over():
            self.timers.add(delayed, now_ms + request.timeout_ms)

    def _append_some(
        self, version: int, acks: int, topics: Topics, checked: CheckedBatches, refused: Refused | None
    ) -> tuple[int, Results, list[DelayedProduce]]:
        """Append the batches of these topics. `checked` has the results of record validation; `refused` maps each batch
        that must not be appended to its error.

        Return (now_ms, results, parked): the time on the node's clock, at which the request's time-out begins; the
        results for the response; and the appends that must be replicated or flushed before the response.
        """
        now_ms, wall_ms = int(self._env.mono() * 1000), self._env.wall_ms()
        by_id = version >= _TOPIC_IDS_FROM
        find = self._replicas.by_id.get if by_id else self._replicas.by_name.get
        results: Results = []
        parked: list[DelayedProduce] = []
        for key, parts in topics:
            hosted = find(key)
            out: list[ProduceResult] = []
            results.append((key, out))
            for index, records in parts:
                h = hosted.get(index) if hosted else None
                if h is None:
                    error, leader = self._replicas.absent(key, index, by_id=by_id)
                    out.append(ProduceResult(index, int(error), leader=leader))
                elif acks not in (-1, 0, 1):
                    out.append(ProduceResult(index, _INVALID_ACKS))
                elif h.internal:
                    # A client could decide on transactions that are not its own.
                    out.append(ProduceResult(index, _INVALID_TOPIC))
                elif refused and (key, index) in refused:
                    out.append(ProduceResult(index, refused[key, index]))
                else:
                    found = checked.get((key, index)) if checked else None
                    result, awaited = self._append(h, index, records, version, acks, now_ms, wall_ms, found)
                    out.append(result)
                    if awaited is not None:
                        parked.append(awaited)
        return now_ms, results, parked

    def _append(
        self,
        h: HostedPartition,
        index: int,
        records: memoryview | None,
        version: int,
        acks: int,
        now_ms: int,
        wall_ms: int,
        checked: CheckedBatch | AppendResult | None,
    ) -> tuple[ProduceResult, DelayedProduce | None]:
        """Append one batch to the local replica `h`. `checked` is the result of record validation, or None if the batch
        needed none.

        Return the result for the response, and the append that the response must wait for: its replication with
        acks=-1, its flush with acks=1. The second is None if the response need not wait.
        """
        state, log = h.state, h.log
        if not state.is_leader:
            return ProduceResult(index, _NOT_LEADER, leader=(state.leader_id, state.leader_epoch)), None
        if acks == -1 and state.under_min_isr_before_append():
            return ProduceResult(index, _NOT_ENOUGH_REPLICAS, log_start_offset=log.log_start_offset), None
        if records is None:
            return ProduceResult(index, _INVALID_RECORD, message="no records"), None
        zstd = version >= _ZSTD_FROM
        done = log.append_as_leader(records, state.leader_epoch, wall_ms, zstd=zstd, checked=checked)
        if done.error:
            start = -1 if done.error in _WITHOUT_LOG_START else log.log_start_offset
            refusal = ProduceResult(index, done.error, -1, -1, start, done.message)
            refusal.faults = done.faults
            return refusal, None
        if done.duplicate:
            self._trace_duplicate(h, records, done)
        else:
            self.messages_in += done.last_offset - done.base_offset + 1
            self.bytes_in += len(records)
            self._replicas.appended(h, now_ms, wall_ms)
        result = ProduceResult(index, _NONE, done.base_offset, done.log_append_time_ms, log.log_start_offset)
        # A duplicate waits like the first copy, which may not be committed yet.
        end = done.last_offset + 1
        # A flush that this topic asks for hides the newest records, so the state's end may be below the log's.
        if acks != -1:
            return result, DelayedProduce(h.unflushed, end, result) if end > state.log_end_offset else None
        if state.high_watermark < end:
            return result, DelayedProduce(h.uncommitted, end, result)
        if state.under_min_isr_after():
            result.refuse(_NOT_ENOUGH_AFTER_APPEND)
        return result, None

    def _trace_duplicate(self, h: HostedPartition, records: memoryview, done: AppendResult) -> None:
        """Write to the trace that a producer sent a batch again. The report of a run shows these events, and they are
        rare.
        """
        sent = BatchHeader._make(HEADER.unpack_from(records))
        self._env.trace(
            "known_batch",
            topic=h.log.topic,
            partition=h.log.partition,
            base_offset=done.base_offset,
            last_offset=done.last_offset,
            producer_id=sent.producer_id,
            sequence=sent.base_sequence,
            epoch=h.state.leader_epoch,
        )

    def _park(
        self, slot: PendingResponse, results: Results, parked: list[DelayedProduce], acks: int, deadline_ms: int
    ) -> None:
        delayed = DelayedProduceResponse(self, slot, results, parked)
        for append in parked:
            append.queue.add(append, delayed)
        if acks != -1:
            return  # A wait for the log's own flush has no deadline: the client's time-out is for replication.
        slot.parked = delayed
        self.timers.add(delayed, deadline_ms)

    def _send_no_response(self, slot: PendingResponse, results: Results) -> None:
        """Send no response, because acks=0 has none. An error closes the connection, as with Kafka."""
        _count_errors(slot, results)
        slot.drop()
        if any(result.error for _, parts in results for result in parts):
            slot.conn.close()

    def reply(self, slot: PendingResponse, results: Results) -> None:
        """Encode and send the response, with leader hints (KIP-951) if the version has a field for them."""
        _count_errors(slot, results)
        endpoints: list[tuple[int, str, int, str | None]] = []
        if slot.version >= _LEADER_HINTS_FROM:
            ids = {r.leader[0]: None for _, parts in results for r in parts if r.leader is not None}
            endpoints = self._replicas.endpoints([i for i in ids if i >= 0], slot.conn.listener) if ids else []
        body = encode_produce_response(
            slot.version, [(key, [_on_the_wire(r) for r in parts]) for key, parts in results], 0, endpoints
        )
        slot.reply(body)


def _count_errors(slot: PendingResponse, results: Results) -> None:
    if slot.timer is not None:
        slot.timer.count_errors(result.error for _, parts in results for result in parts)


def _cost(h: HostedPartition | None) -> int:
    """Return the cost of an append to this partition, in units of an ordinary append. The cost decides when other tasks
    run.
    """
    if h is None or not h.state.is_leader:
        return 1
    return FIRST_COSTS if h.log.epochs.must_be_written(h.state.leader_epoch) else 1


def _last_of_each(topics: Topics) -> Topics:
    """Keep only the last batch of a repeated partition, and drop topics without partitions: Kafka keeps the batches to
    append in a map (KafkaApis.handleProduceRequest).
    """
    found: dict[bytes, dict[int, memoryview | None]] = {}
    for key, parts in topics:
        found.setdefault(key, {}).update(parts)
    return [(key, list(parts.items())) for key, parts in found.items() if parts]


def _has_transactions(request: ProduceIn) -> bool:
    for _, parts in request.topics:
        for _, records in parts:
            if records and len(records) > _TRANSACTIONAL_AT and records[_TRANSACTIONAL_AT] & TRANSACTIONAL_BIT:
                return True
    return False


def _all_refused(request: ProduceIn) -> Refused:
    return {(key, index): _NO_TRANSACTIONAL_ID for key, parts in request.topics for index, _ in parts}


def _on_the_wire(r: ProduceResult) -> ProducePartOut:
    return r.index, r.error, r.base_offset, r.append_time_ms, r.log_start_offset, r.message, r.leader, r.faults
