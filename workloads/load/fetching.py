"""Fetches one range of offsets from whichever broker leads the partition, and passes it on batch by batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import trio

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode, name_of
from squall.broker.protocol.hot import decode_fetch_response
from squall.broker.protocol.records import batches
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from squall.broker.protocol.schema.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from squall.broker.protocol.timestamps import EARLIEST
from squall.broker.protocol.wire import ZERO_UUID
from squall.workloads.client.admin import list_offsets
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Leader, Place
from squall.workloads.client.connection import BrokerConnection, RequestFailed, UnsupportedApi
from squall.workloads.client.consumer import CONSUMER_REPLICA_ID, FETCH_OLDEST, FETCH_TOPIC_IDS_FROM
from squall.workloads.client.settings import ConsumerSettings
from squall.workloads.load.reading import GoneOffsets, NoProgress, OffsetsGone, RangeReader, ReadBatch, TopicRemade


class FetchedBytes(NamedTuple):
    """Holds the part of a Fetch response that a range reader needs, copied from the receive buffer."""

    error: int
    records: bytes
    aborted: Sequence[tuple[int, int]] | None
    log_start_offset: int
    high_watermark: int


async def read_range(
    client: Client,
    reader: RangeReader,
    emit: Callable[[list[ReadBatch]], Awaitable[None]],
    settings: ConsumerSettings,
    patience_s: float,
) -> None:
    """Read the reader's range from its position to its end, and pass the batches to `emit` in order. `settings` limits
    each response and chooses the isolation level. The next response is requested while one is decoded. `patience_s`:
    for how many seconds no broker may serve the range, before the read fails.

    Raises a LoadError if the range cannot be read as it was planned.
    """
    if reader.done:
        return
    client.track([reader.wanted.topic])
    fetcher = _RangeFetcher(client, reader, settings, patience_s)
    to_decoder, from_fetcher = trio.open_memory_channel[FetchedBytes](0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run, to_decoder)
        async for fetched in from_fetcher:
            if fetched.log_start_offset > reader.position:
                reader.skip_to(fetched.log_start_offset, "the log begins behind them")
            found = reader.take(memoryview(fetched.records), fetched.aborted)
            if found:
                await emit(found)


class _RangeFetcher:
    """Requests the bytes of one range, in order, from the partition's leaders."""

    def __init__(self, client: Client, reader: RangeReader, settings: ConsumerSettings, patience_s: float) -> None:
        self._client, self._wanted, self._settings, self._patience_s = client, reader.wanted, settings, patience_s
        self._allow_gaps = reader.allow_gaps
        self._position, self._end = reader.position, reader.wanted.end
        self._valid_epoch = self._wanted.leader_epoch
        """Is the highest leader epoch whose log is known to have the range."""

    async def run(self, to_decoder: trio.MemorySendChannel[FetchedBytes]) -> None:
        """Send the bytes of the whole range to the channel. Raises NoProgress, TopicRemade and OffsetsGone."""
        client, wanted = self._client, self._wanted
        with to_decoder:
            failures, why, since = 0, "", client.env.mono()
            while self._position < self._end:
                if failures:
                    if client.env.mono() - since > self._patience_s:
                        span = f"{wanted.topic}-{wanted.partition}, offset {self._position}"
                        raise NoProgress(f"{span}: nothing could be read for {self._patience_s:.0f} s: {why}")
                    client.refresh_soon()
                    await client.env.sleep(client.backoff(failures))
                try:
                    fetched = await self._fetch()
                    if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                        fetched = fetched._replace(log_start_offset=await self._log_start())
                    why = self._problem(fetched)
                except (RequestFailed, UnsupportedApi) as problem:
                    why = str(problem)
                if why:
                    failures += 1
                    continue
                failures, since = 0, client.env.mono()
                if fetched.records or fetched.log_start_offset > self._position:
                    self._position = max(self._position, fetched.log_start_offset)
                    size = 0
                    for header, _, end in batches(memoryview(fetched.records)):
                        if header.base_offset >= self._end:
                            # By this batch the reader sees whether offsets before it are missing.
                            self._position, size = self._end, end if self._end == wanted.end else size
                            break
                        self._position, size = max(self._position, header.next_offset), end
                    await to_decoder.send(fetched._replace(records=fetched.records[:size]))
            if self._end < wanted.end:
                # What has these offsets now was written by later leaders, and the plan had not seen it.
                await to_decoder.send(FetchedBytes(0, b"", None, wanted.end, -1))

    def _problem(self, fetched: FetchedBytes) -> str:
        """Return why a response gives nothing, or an empty string if it does."""
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            # The reader skips what is before the log's start, or refuses to. The high watermark may still rise.
            if fetched.log_start_offset > self._position:
                return ""
            return f"the high watermark is {fetched.high_watermark}"
        if fetched.error:
            return name_of(fetched.error)
        return "" if fetched.records else f"the high watermark is {fetched.high_watermark}"

    async def _log_start(self) -> int:
        """Return the log start offset, which brokers leave out of the answer to a fetch of an offset that is out of
        range. Raises RequestFailed.
        """
        place, limit_s = (self._wanted.topic, self._wanted.partition), self._client.settings.request_timeout_ms / 1000
        listed = (await list_offsets(self._client, [place], EARLIEST, timeout_s=limit_s))[place]
        if listed.error:
            raise RequestFailed(listed.error, sent=True)
        return listed.offset

    async def _fetch(self) -> FetchedBytes:
        wanted, client = self._wanted, self._client
        leader, connection = await self._connected()
        topic_id = client.view.topic_id(wanted.topic)
        if wanted.topic_id not in (ZERO_UUID, topic_id) and topic_id != ZERO_UUID:
            ids = f"its id was {wanted.topic_id.hex()} and is {topic_id.hex()}"
            raise TopicRemade(f"{wanted}: the topic was made anew since the load was planned: {ids}")
        if leader.epoch > self._valid_epoch >= 0:
            await self._validate(leader)
        version = connection.version(ApiKey.FETCH, FetchRequest.MAX_VERSION, FETCH_OLDEST)
        if topic_id == ZERO_UUID:
            version = min(version, FETCH_TOPIC_IDS_FROM - 1)
        settings = self._settings
        part = FetchPartition(
            wanted.partition, leader.epoch, self._position, partition_max_bytes=settings.partition_max_bytes
        )
        topic = FetchTopic(topic_id=topic_id) if version >= FETCH_TOPIC_IDS_FROM else FetchTopic(wanted.topic)
        topic.partitions.append(part)
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=settings.isolation,
            topics=[topic],
        )
        limit_s = (client.settings.request_timeout_ms + settings.max_wait_ms) / 1000
        return await connection.exchange(request, version, limit_s, lambda body: _only_part(body, version))

    async def _connected(self) -> tuple[Leader, BrokerConnection]:
        """Return the partition's leader and a connection to it. Raises RequestFailed if there is none in time."""
        client, wanted = self._client, self._wanted
        with client.env.timeout(client.settings.request_timeout_ms / 1000):
            while True:
                leader = client.view.leader(wanted.topic, wanted.partition)
                connection = None if leader is None else client.connection(leader.node_id)
                if leader is not None and connection is not None:
                    return leader, connection
                if leader is None:
                    client.refresh_soon()
                await client.env.sleep(0.02)
        raise RequestFailed("no leader", sent=False)

    async def _validate(self, leader: Leader) -> None:
        """Check that the log of a new leader has the range (KIP-320). If it ends before, an unclean election has taken
        records that the plan had seen committed. Raises OffsetsGone then, unless the load allows gaps: the range ends
        where that log ended.
        """
        wanted = self._wanted
        place = wanted.topic, wanted.partition
        end = await end_of_epoch(self._client, leader, place, self._valid_epoch)
        if end is not None and end < wanted.end:
            first = max(end, wanted.start)
            if not self._allow_gaps:
                raise OffsetsGone(str(GoneOffsets(place, first, wanted.end, leader.epoch, self._valid_epoch)))
            self._end = min(self._end, first)
        self._valid_epoch = leader.epoch


async def end_of_epoch(client: Client, leader: Leader, place: Place, epoch: int) -> int | None:
    """Return the offset at which the log of this leader ends the leader epoch `epoch`, or the last one before it that
    the log has (KIP-320); None if the leader does not know. Raises RequestFailed, UnsupportedApi.
    """
    part = OffsetForLeaderPartition(place[1], leader.epoch, epoch)
    request = OffsetForLeaderEpochRequest(CONSUMER_REPLICA_ID, [OffsetForLeaderTopic(place[0], [part])])
    answer = await client.ask_node(leader.node_id, request, OffsetForLeaderEpochResponse)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise RequestFailed(name_of(found.error_code), sent=True)
    return found.end_offset if found.leader_epoch >= 0 and found.end_offset >= 0 else None


def _only_part(body: memoryview, version: int) -> FetchedBytes:
    response = decode_fetch_response(body, 0, version)
    if response.error or not response.topics:
        return FetchedBytes(response.error, b"", None, -1, -1)
    part = response.topics[0][1][0]
    records = bytes(part.records) if part.records else b""
    return FetchedBytes(part.error, records, part.aborted, part.log_start_offset, part.high_watermark)
