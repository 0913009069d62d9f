"""Produce: append what clients send, answer when the acknowledgements they asked for are there (R7, R8).

Batches are appended in arrival order as they are parsed. A Produce that waits for replicas parks only its own reply:
the next one on the same connection is appended meanwhile, and replies still leave in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.protocol.errors import ErrorCode
from broker.protocol.hot import decode_produce, encode_produce_response

if TYPE_CHECKING:
    from broker.env import Env
    from broker.net.connection import Slot
    from broker.net.deadlines import Timers
    from broker.protocol.hot import ProducePartOut
    from broker.replicas.hosted import Hosted
    from broker.replicas.replica_manager import ReplicaManager

_NONE = int(ErrorCode.NONE)
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_NOT_ENOUGH_REPLICAS = int(ErrorCode.NOT_ENOUGH_REPLICAS)
_NOT_ENOUGH_AFTER_APPEND = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
_TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)
_INVALID_ACKS = int(ErrorCode.INVALID_REQUIRED_ACKS)
_INVALID_RECORD = int(ErrorCode.INVALID_RECORD)
_TOPIC_IDS_FROM = 13
_ZSTD_FROM = 7
_LEADER_HINTS_FROM = 10

Result = list[Any]
"""One partition's part of the reply: index, error, base offset, append time, log start, message, current leader."""
Results = list[tuple[bytes, list[Result]]]
Parked = tuple[int, "Hosted", Result]
"""The offset that a partition's high watermark must reach, the partition, its result."""


class DelayedProduce:
    """A Produce whose acknowledgement waits for high watermarks; `owed` counts the partitions still waited for."""

    __slots__ = ("_api", "_parked", "_results", "_slot", "bucket", "owed")

    def __init__(self, api: ProduceApi, slot: Slot, results: Results, parked: list[Parked]) -> None:
        self._api, self._slot, self._results, self._parked = api, slot, results, parked
        self.owed = len(parked)
        self.bucket = -1

    def complete(self, result: Result, error: int) -> None:
        """One partition is settled; the last one sends the reply. Late calls (after expiry) change nothing."""
        if not self.owed:
            return
        if error:
            result[1], result[2] = error, -1
        result[7] = False
        self.owed -= 1
        if not self.owed:
            self._api.timers.remove(self)
            self._api.reply(self._slot, self._results)

    def expire(self) -> None:
        """The client's time-out: whatever is still owed may or may not get replicated later."""
        if not self.owed:
            return
        for result in self._give_up():
            result[1], result[2] = _TIMED_OUT, -1
        self._api.reply(self._slot, self._results)

    def abandon(self) -> None:
        """Its connection has ended: nobody waits any more, whatever becomes of the records."""
        if self.owed:
            self._api.timers.remove(self)
            self._give_up()

    def _give_up(self) -> list[Result]:
        """The results that are still owed, and will not be waited for."""
        self.owed = 0
        owed = [(h, result) for _, h, result in self._parked if result[7]]
        for h, _ in owed:
            h.give_up()
        return [result for _, result in owed]


class ProduceApi:
    """Handles Produce requests."""

    def __init__(self, env: Env, replicas: ReplicaManager, timers: Timers) -> None:
        self._env, self._replicas, self.timers = env, replicas, timers

    def handle(self, slot: Slot, view: memoryview, at: int) -> None:
        """Append every batch of the request, then answer or park. MalformedFrame closes the connection."""
        request = decode_produce(view, at, slot.version)
        acks, now = request.acks, self._env.mono()
        now_ms, wall_ms = int(now * 1000), self._env.wall_ms()
        find = self._replicas.by_id.get if slot.version >= _TOPIC_IDS_FROM else self._replicas.by_name.get
        results: Results = []
        parked: list[Parked] = []
        for key, parts in request.topics:
            hosted = find(key)
            out: list[Result] = []
            results.append((key, out))
            for index, records in parts:
                h = hosted.get(index) if hosted else None
                if h is None:
                    error, leader = self._replicas.absent(key, index, by_id=slot.version >= _TOPIC_IDS_FROM)
                    out.append([index, int(error), -1, -1, -1, None, leader, False])
                elif acks not in (-1, 0, 1):
                    out.append([index, _INVALID_ACKS, -1, -1, -1, None, None, False])
                else:
                    result, wait_for = self._append(h, index, records, slot.version, acks, now_ms, wall_ms)
                    out.append(result)
                    if wait_for >= 0:
                        parked.append((wait_for, h, result))
        if acks == 0:
            self._answer_nothing(slot, results)
        elif parked:
            self._park(slot, results, parked, acks, now_ms + request.timeout_ms)
        else:
            self.reply(slot, results)

    def _append(
        self, h: Hosted, index: int, records: memoryview | None, version: int, acks: int, now_ms: int, wall_ms: int
    ) -> tuple[Result, int]:
        """Append one partition's batch. Returns its result and the offset up to which it has to be replicated, or with
        acks=1 known here, before it is acknowledged: -1 where it can be at once.
        """
        state, log = h.state, h.log
        if not state.is_leader:
            return [index, _NOT_LEADER, -1, -1, -1, None, (state.leader_id, state.leader_epoch), False], -1
        if acks == -1 and state.under_min_isr_before_append():
            return [index, _NOT_ENOUGH_REPLICAS, -1, -1, log.log_start_offset, None, None, False], -1
        if records is None:
            return [index, _INVALID_RECORD, -1, -1, -1, "no records", None, False], -1
        done = log.append_as_leader(records, state.leader_epoch, wall_ms, zstd=version >= _ZSTD_FROM)
        if done.error:
            return [index, done.error, -1, -1, log.log_start_offset, done.message, None, False], -1
        if not done.duplicate:
            self._replicas.appended(h, now_ms, wall_ms)
        result = [index, _NONE, done.base_offset, done.log_append_time_ms, log.log_start_offset, None, None, False]
        end = done.last_offset + 1
        if acks != -1:
            return result, end if end > state.log_end_offset else -1
        if state.high_watermark >= end:
            if state.under_min_isr_after():
                result[1], result[2] = _NOT_ENOUGH_AFTER_APPEND, -1
            return result, -1
        return result, end

    def _park(self, slot: Slot, results: Results, parked: list[Parked], acks: int, deadline_ms: int) -> None:
        delayed = DelayedProduce(self, slot, results, parked)
        if acks != -1:
            # For a flush of the log's own, which takes as long as it takes.
            for end, h, result in parked:
                result[7] = True
                h.unflushed.append((end, delayed, result))
            return
        for end, h, result in parked:
            result[7] = True
            h.waiting.append((end, delayed, result))
        slot.parked = delayed
        self.timers.add(delayed, deadline_ms)

    def _answer_nothing(self, slot: Slot, results: Results) -> None:
        """acks=0 has no response; an error is told by closing the connection, as Kafka does."""
        slot.drop()
        if any(result[1] for _, parts in results for result in parts):
            slot.conn.close()

    def reply(self, slot: Slot, results: Results) -> None:
        """Encode and send; leader hints (KIP-951) where the version carries them."""
        endpoints: list[tuple[int, str, int, str | None]] = []
        if slot.version >= _LEADER_HINTS_FROM:
            ids = {r[6][0]: None for _, parts in results for r in parts if r[6] is not None and r[6][0] >= 0}
            endpoints = self._replicas.endpoints(list(ids), slot.conn.listener) if ids else []
        body = encode_produce_response(
            slot.version, [(key, [_told(r) for r in parts]) for key, parts in results], 0, endpoints
        )
        slot.reply(body)


def _told(result: Result) -> ProducePartOut:
    """What of a result goes on the wire."""
    index, error, base_offset, append_time_ms, log_start_offset, message, leader, _ = result
    return index, error, base_offset, append_time_ms, log_start_offset, message, leader
