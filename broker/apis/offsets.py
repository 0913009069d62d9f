"""Answers ListOffsets (mechanism R6 in docs/mechanisms.md) and OffsetForLeaderEpoch (mechanism E3) from this broker's
replicas.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from squall.broker.log.lookups import SearchBudget, SearchPause
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.net.fair_scheduler import give_way
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from squall.broker.protocol.schema.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from squall.broker.protocol.timestamps import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from squall.broker.work import DONE

if TYPE_CHECKING:
    from squall.broker.apis.decompression import DecompressionPool
    from squall.broker.log.lookups import CandidateBatch, TimestampLookup
    from squall.broker.net.connection import PendingResponse
    from squall.broker.protocol.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest
    from squall.broker.protocol.schema.offset_for_leader_epoch import OffsetForLeaderEpochRequest
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager

    Step = CandidateBatch | SearchPause

_CONSUMER = -1
_EPOCHS_FROM = 4
_NOT_AVAILABLE_FROM = 5


_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""Maps each special timestamp to the first version of ListOffsets that knows it."""
Part = ListOffsetsPartitionResponse


class _TimestampLookup(NamedTuple):
    """Holds a partition whose answer needs a search of the log by timestamp."""

    part: Part
    hosted: HostedPartition
    leader_epoch: int
    lookup: TimestampLookup
    may_fail: bool
    """Is True if the leader does not know yet which records are committed. Then a search that finds nothing answers
    OFFSET_NOT_AVAILABLE.
    """


class OffsetApis:
    """Answers requests about offsets. A handler waits only if it must search a compressed batch, or many batches."""

    def __init__(self, replicas: ReplicaManager, unpacking: DecompressionPool) -> None:
        self._replicas, self._unpacking = replicas, unpacking

    def _find(self, name: str, index: int) -> HostedPartition | None:
        return self._replicas.by_name.get(name.encode(), {}).get(index)

    def _absent(self, name: str, index: int) -> ErrorCode:
        known = self._replicas.knows(name.encode(), index)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def list_offsets_to_clients(
        self, request: ListOffsetsRequest, slot: PendingResponse
    ) -> ListOffsetsResponse | DeferredResponse:
        """Answer `list_offsets` on a listener for clients. A request that names a replica is answered as a consumer's,
        because a follower's answer includes offsets that are not committed yet.
        """
        request.replica_id = min(request.replica_id, _CONSUMER)
        return self.list_offsets(request, slot)

    def list_offsets(
        self, request: ListOffsetsRequest, slot: PendingResponse
    ) -> ListOffsetsResponse | DeferredResponse:
        """Return offsets by timestamp or by the special values -1 to -6. Consumers see offsets up to the high watermark
        (up to the last stable offset at read_committed), followers up to the log end offset (KIP-207). As in Kafka, the
        response has one row per topic, and a partition that is requested twice gets one row with an error.
        """
        named = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
        rows: dict[tuple[str, int], Part] = {}
        left: list[tuple[_TimestampLookup, Step]] = []
        turn = SearchBudget()
        for topic in request.topics:
            for asked in topic.partitions:
                place = topic.name, asked.partition_index
                if named[place] > 1:
                    rows[place] = _refuse(Part(partition_index=asked.partition_index), ErrorCode.INVALID_REQUEST)
                    continue
                found = self._list_one(topic.name, asked, request.replica_id, request.isolation_level, slot.version)
                if isinstance(found, _TimestampLookup):
                    step = _search_on(found, turn)
                    if step is not None:
                        left.append((found, step))
                    found = found.part
                rows[place] = found
        topics: dict[str, list[Part]] = {}
        for (name, _), part in rows.items():
            topics.setdefault(name, []).append(part)
        response = ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=name, partitions=parts) for name, parts in topics.items()]
        )
        if left:
            return DeferredResponse(partial(self._search, left, response, slot), holds=True)
        return _downgraded_to(response, slot.version)

    async def _search(
        self, left: list[tuple[_TimestampLookup, Step]], response: ListOffsetsResponse, slot: PendingResponse
    ) -> ListOffsetsResponse:
        conn, turn = slot.conn, SearchBudget()
        for search, first in left:
            step: Step | None = first
            while step is not None and not conn.closed:
                if isinstance(step, SearchPause):
                    if turn.is_over:
                        await give_way()
                        turn = SearchBudget()
                else:
                    found = await self._unpacking.run(step.search, lambda: conn.closed)
                    search.lookup.take(step, found)
                state = search.hosted.state
                if not state.is_leader or state.leader_epoch != search.leader_epoch:
                    _refuse(search.part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    break
                step = _search_on(search, turn)
        return _downgraded_to(response, slot.version)

    def _list_one(
        self, name: str, asked: ListOffsetsPartition, replica_id: int, isolation: int, version: int
    ) -> Part | _TimestampLookup:
        index = asked.partition_index
        part = Part(partition_index=index, error_code=0, timestamp=-1, offset=-1, leader_epoch=-1)
        h = self._find(name, index)
        error = self._absent(name, index) if h is None else h.state.check_leader_epoch(asked.current_leader_epoch)
        if error or h is None:
            return _refuse(part, error)
        wanted = asked.timestamp
        if wanted < EARLIEST_PENDING_UPLOAD or version < _SINCE.get(wanted, 0):
            return _refuse(part, ErrorCode.UNSUPPORTED_VERSION)
        state, log = h.state, h.log
        limit = state.log_end_offset
        if replica_id == _CONSUMER:
            limit = state.read_limit(isolation, h.first_unstable_offset())
        # A new leader's high watermark may be lower than one that clients already heard from the old leader. It is
        # safe to answer once it has reached the start of the new leader's epoch.
        settled = replica_id != _CONSUMER or state.latest_offset_available()
        if wanted >= 0 or wanted == MAX_TIMESTAMP:
            lookup = log.offset_for_timestamp(None if wanted == MAX_TIMESTAMP else wanted, limit)
            return _TimestampLookup(part, h, state.leader_epoch, lookup, not settled)
        if wanted in (EARLIEST, EARLIEST_LOCAL):
            part.offset = log.log_start_offset
            found_epoch = log.epochs.epoch_for_offset(part.offset)
            part.leader_epoch = -1 if found_epoch is None else found_epoch
        elif wanted == LATEST:
            if not settled:
                return _refuse(part, ErrorCode.OFFSET_NOT_AVAILABLE)
            part.offset, part.leader_epoch = limit, state.leader_epoch
        # There is no tiered storage, so no offset is in it or on its way there: -1.
        return part

    def offset_for_leader_epoch(
        self, request: OffsetForLeaderEpochRequest, slot: PendingResponse
    ) -> OffsetForLeaderEpochResponse:
        """Return the end offset of a leader epoch in this log. A follower truncates its log to that offset, a consumer
        resumes from it (KIP-101, KIP-320). Only leaders answer.
        """
        topics = []
        for topic in request.topics:
            parts = []
            for p in topic.partitions:
                h = self._find(topic.topic, p.partition)
                error = (
                    self._absent(topic.topic, p.partition)
                    if h is None
                    else h.state.check_leader_epoch(p.current_leader_epoch)
                )
                epoch, end = -1, -1
                if not error and h is not None:
                    epoch, end = h.state.end_of_epoch(h.log.epochs, p.leader_epoch)
                parts.append(
                    EpochEndOffset(error_code=int(error), partition=p.partition, leader_epoch=epoch, end_offset=end)
                )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
        return OffsetForLeaderEpochResponse(topics=topics)


def _search_on(search: _TimestampLookup, turn: SearchBudget) -> Step | None:
    """Continue a search by timestamp until it ends, or must pause. Return None if it has ended; `search.part` then has
    the result. Return a batch if the caller must read it off the event loop, because reading takes long. Return a
    `SearchPause` if the budget `turn` is used up.
    """
    lookup, part = search.lookup, search.part
    while (step := SearchPause.TURN_IS_OVER if turn.is_over else lookup.next(turn)) is not None:
        if isinstance(step, SearchPause):
            return step
        turn.bytes -= len(step.data)
        if not step.is_quick:
            return step
        DONE.bytes += len(step.data)
        DONE.records += step.header.record_count
        lookup.take(step, step.search())
    if lookup.found is not None:
        part.timestamp, part.offset, part.leader_epoch = lookup.found
    elif search.may_fail:
        _refuse(part, ErrorCode.OFFSET_NOT_AVAILABLE)
    return None


def _refuse(part: Part, error: ErrorCode) -> Part:
    part.error_code, part.timestamp, part.offset, part.leader_epoch = int(error), -1, -1, -1
    return part


def _downgraded_to(response: ListOffsetsResponse, version: int) -> ListOffsetsResponse:
    """Adapt the response to the version of the request. Before version 4 a response has no leader epochs. Before
    version 5 clients do not know OFFSET_NOT_AVAILABLE, and get LEADER_NOT_AVAILABLE (KIP-207).
    """
    for topic in response.topics:
        for part in topic.partitions:
            if version < _EPOCHS_FROM:
                part.leader_epoch = -1
            if version < _NOT_AVAILABLE_FROM and part.error_code == ErrorCode.OFFSET_NOT_AVAILABLE:
                # Clients from before KIP-207 do not know OFFSET_NOT_AVAILABLE; they retry after this error.
                part.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
    return response
