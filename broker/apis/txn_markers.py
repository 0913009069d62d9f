"""Handles WriteTxnMarkers: a transaction coordinator ends a transaction in the partitions led here (mechanism P3 in
docs/mechanisms.md, KIP-98, KIP-890).

A marker is acknowledged once it is committed: the coordinator forgets the transaction after that, and no component
would write the marker again. A marker that is in the log already, because its response was lost, is not appended again.

A transaction may have thousands of partitions. Their markers are appended in chunks, between which other tasks run.

Admins send WriteTxnMarkers, too: `kafka-transactions abort` ends a transaction that its coordinator has forgotten
(KIP-664). So every listener serves it. Kafka demands the permission ALTER on the cluster; here no request needs a
permission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from squall.broker.apis.delayed_appends import PiecewiseProduceResponse
from squall.broker.log.markers import TxnMarker
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from squall.broker.replicas.order_queue import FIRST_COSTS, SPENT_IN_A_TURN
from squall.broker.replicas.purgatory import DelayedProduce, ProduceResult
from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from squall.broker.env import Env
    from squall.broker.net.connection import PendingResponse
    from squall.broker.net.deadlines import ParkedRequestTimers
    from squall.broker.protocol.schema.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager

_NONE = int(ErrorCode.NONE)
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_NOT_ENOUGH_REPLICAS = int(ErrorCode.NOT_ENOUGH_REPLICAS)
_NOT_ENOUGH_AFTER_APPEND = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

_SERVER_ERROR = int(ErrorCode.UNKNOWN_SERVER_ERROR)

MarkerResults = dict[int, dict[str, list[ProduceResult]]]
"""Maps producer id and topic to the results of the partitions. As with Kafka, markers of one producer id share an entry
of the response.
"""


class TxnMarkersApi:
    """Handles WriteTxnMarkers requests of coordinators and admins."""

    def __init__(
        self,
        env: Env,
        replicas: ReplicaManager,
        timers: ParkedRequestTimers,
        timeout_ms: int,
        start_soon: Callable[..., None],
    ) -> None:
        self._env, self._replicas, self.timers, self._timeout_ms = env, replicas, timers, timeout_ms
        self._start_soon = start_soon

    def handle(self, request: WriteTxnMarkersRequest, slot: PendingResponse) -> None:
        """Append every marker of the request. Respond once each is replicated or has failed, or when the time is over.
        """
        results: MarkerResults = {}
        delayed = PiecewiseProduceResponse(self, slot, results)
        turns = self._turns(request, results, delayed)
        if next(turns, False):
            slot.conn.hold()
            self._start_soon(self._append_rest, slot, turns, delayed)
        else:
            delayed.settled()
        if not delayed.is_over():
            slot.parked = delayed
            self.timers.add(delayed, int(self._env.mono() * 1000) + self._timeout_ms)

    async def _append_rest(
        self, slot: PendingResponse, turns: Iterator[bool], delayed: PiecewiseProduceResponse[MarkerResults]
    ) -> None:
        """Append the chunks of markers after the first: each step of `turns` (see `_turns`) appends one. Stop if
        `delayed`, the response, has timed out or its connection has ended. The coordinator then sends the remaining
        markers again.
        """
        try:
            more = True
            while more:
                await trio.lowlevel.checkpoint()
                if delayed.is_over():
                    return
                more = next(turns, False)
                if not more:
                    delayed.settled()
                self._replicas.settle()
        finally:
            slot.conn.release()

    def _turns(
        self, request: WriteTxnMarkersRequest, results: MarkerResults, delayed: PiecewiseProduceResponse[MarkerResults]
    ) -> Iterator[bool]:
        """Append the markers. Yield (always True) at each point where other tasks may run."""
        spent = 0
        for marker in request.markers:
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    out = results.setdefault(marker.producer_id, {}).setdefault(topic.name, [])
                    if spent >= SPENT_IN_A_TURN:
                        spent = 0
                        yield True
                    result, awaited, cost = self._end(topic.name.encode(), index, marker)
                    spent += cost
                    DONE.entries += cost
                    out.append(result)
                    if awaited is not None:
                        delayed.wait_for(awaited)

    def _end(
        self, key: bytes, index: int, asked: WritableTxnMarker
    ) -> tuple[ProduceResult, DelayedProduce | None, int]:
        """End the transaction of the marker `asked` in partition `index` of the topic named `key`. Return (result,
        append, cost): the partition's result; the append to wait for, or None; and the cost, which decides when other
        tasks run. The cost is FIRST_COSTS for the first append of a leader epoch, which waits for the disk, else 1.
        """
        parts = self._replicas.by_name.get(key)
        h = parts.get(index) if parts else None
        if h is None:
            return ProduceResult(index, int(self._replicas.absent(key, index, by_id=False)[0])), None, 1
        # No check of `h.internal`, unlike in Produce: offsets that a group commits in a transaction get markers, too.
        state, log = h.state, h.log
        if not state.is_leader:
            return ProduceResult(index, _NOT_LEADER), None, 1
        if asked.producer_id < 0 or asked.producer_epoch < 0:  # Kafka fails on such a marker, and so answers it.
            return ProduceResult(index, _SERVER_ERROR), None, 1
        if state.under_min_isr_before_append():
            return ProduceResult(index, _NOT_ENOUGH_REPLICAS), None, 1
        now_ms, wall_ms = int(self._env.mono() * 1000), self._env.wall_ms()
        cost = FIRST_COSTS if log.epochs.must_be_written(state.leader_epoch) else 1
        marker = TxnMarker(asked.transaction_result, asked.coordinator_epoch)
        version = asked.transaction_version
        done = log.end_transaction(
            asked.producer_id, asked.producer_epoch, marker, version, state.leader_epoch, wall_ms
        )
        self._trace(h, asked, done.error, -1 if done.duplicate else done.base_offset)
        if done.error:
            return ProduceResult(index, done.error), None, cost
        if not done.duplicate:
            watcher = self._replicas.marker_watchers.get(log.topic)
            if watcher is not None:  # before the marker is answered, and before anything else is asked of the topic
                watcher(h, asked.producer_id, asked.transaction_result, done.base_offset)
            self._replicas.appended(h, now_ms, wall_ms)
        result = ProduceResult(index, _NONE)
        end = done.last_offset + 1
        if state.high_watermark < end:
            return result, DelayedProduce(h.uncommitted, end, result), cost
        if state.under_min_isr_after():
            result.refuse(_NOT_ENOUGH_AFTER_APPEND)
        return result, None, cost

    def _trace(self, h: HostedPartition, asked: WritableTxnMarker, error: int, offset: int) -> None:
        """Write an event about a marker to the node's trace. `offset` is -1 if the marker was refused or was in the log
        already.
        """
        self._env.trace("txn_marker", topic=h.log.topic, partition=h.log.partition, producer=asked.producer_id,
                        epoch=asked.producer_epoch, coordinator_epoch=asked.coordinator_epoch,
                        commit=asked.transaction_result, offset=offset, error=error)  # fmt: skip

    def reply(self, slot: PendingResponse, results: MarkerResults) -> None:
        """Encode and send the response."""
        markers = []
        for producer_id, topics in results.items():
            found = [
                WritableTxnMarkerTopicResult(name=name, partitions=[_on_the_wire(result) for result in parts])
                for name, parts in topics.items()
            ]
            markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=found))
        slot.reply(WriteTxnMarkersResponse(markers=markers).encode(slot.version))


def _on_the_wire(result: ProduceResult) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition_index=result.index, error_code=result.error)
