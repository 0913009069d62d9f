"""Replicates partitions from their leaders: one task and one Fetch for each leader; the next Fetch acknowledges the
records of the one before (mechanisms R9 and E3 in docs/mechanisms.md).

If a partition is added while a Fetch is parked at the leader, the follower closes the connection and fetches again:
otherwise the first acknowledgement for a new topic would wait until the parked Fetch ends. If another partition is
added soon after, more may follow, as when a topic with many partitions is created. Then the Fetches get a short max
wait, and new partitions wait for its end instead of closing the connection.

A response is applied only to partitions that still follow the same leader in the same epoch, and whose log end offset
has not moved since the request.
"""

# Rejected: answering parked fetches on the leader when partitions are added (it races with the follower's metadata);
# keeping the newest bytes in memory for followers (no gain); a timer that delays their fetches (more latency, the
# same CPU). Followers keep a fetch session: without, seven idle topics of 6 partitions raised the brokers' CPU from
# 0.65 to 0.91 cores at 1,000 records/s, and p50 from 5.7 to 7.2 ms.

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from squall.broker.env import LinkClosed
from squall.broker.log.scan import CorruptRecords, UnexpectedOffset
from squall.broker.net.frames import LARGE, FrameReader, ReceiveMemoryLimit
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.header import decode_response_header, encode_request
from squall.broker.protocol.hot import (
    FetchIn,
    FetchResponsePartition,
    decode_fetch_response,
    encode_fetch_request,
)
from squall.broker.protocol.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from squall.broker.protocol.timestamps import EARLIEST, LATEST
from squall.broker.replicas.fetcher_session import LOST, FetcherSession, PartitionFetchState, PartKey
from squall.broker.replicas.order_queue import FEW_PARTITIONS, FIRST_COSTS, SPENT_IN_A_TURN
from squall.broker.work import DONE

if TYPE_CHECKING:
    from squall.broker.config import BrokerConfig
    from squall.broker.env import Env, Transport
    from squall.broker.net.peers import PeerClient
    from squall.broker.replicas.flushes import UnflushedAppend
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager

_VERSION = 17
AGAIN_MS = 500
"""Gives a time in ms. If new partitions cut parked Fetches short twice within this time, more new partitions are
expected. Fetches then get a short max wait, until no new partition has come for this time.
"""
SHORT_WAIT_MS = 20
"""Gives the short max wait of Fetches, in ms, while more new partitions are expected."""
Resolve = Callable[[int], tuple[str, int] | None]
"""Returns the address of a node, or None if it is unknown."""


class StorageFailed(Exception):
    """Reports that the disk failed. The node stops, as Kafka stops when its last log directory fails."""


class Fetcher:
    """Fetches from one leader all partitions that follow this leader."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        leader_id: int,
        replicas: ReplicaManager,
        peers: PeerClient,
        resolve: Resolve,
        broker_epoch: Callable[[], int],
        start_soon: Callable[..., None],
    ) -> None:
        self._env, self._config, self.leader_id, self._replicas = env, config, leader_id, replicas
        self._peers, self._resolve, self._broker_epoch, self._start_soon = peers, resolve, broker_epoch, start_soon
        self.following: dict[PartKey, PartitionFetchState] = {}
        self._asking = FetcherSession(config.replica_fetch_max_bytes)
        # No limit: the leader keeps to replica.fetch.response.max.bytes, and this node has chosen whom it asks.
        self._memory = ReceiveMemoryLimit(1 << 62)
        self._link: Transport | None = None
        self._held: list[UnflushedAppend] = []
        """Holds the appends that must be flushed before the next Fetch."""
        self.bytes_in = 0
        """Counts the bytes of batches that this fetcher has appended."""
        self._changed = trio.Event()
        self._renew = False
        self._ended_ms = -AGAIN_MS
        """Holds the monotonic time, in ms, at which a parked Fetch was last cut short to add a new partition."""
        self._short_until_ms = 0
        self._parked_long = False
        """Is True while a Fetch is in flight that the leader may park for the full configured max wait."""
        self._client_id = f"broker-{config.node_id}-fetcher"
        self._correlation_id = 0
        self._sent_ms = 0

    def follow(self, hosted: HostedPartition) -> None:
        """Start to fetch a partition, or start again in a later leader epoch."""
        key = hosted.state.topic_id, hosted.state.index
        self.following[key] = PartitionFetchState(hosted)
        now_ms = int(self._env.mono() * 1000)
        # A new partition ends a parked Fetch. If that happens again soon, park the next Fetches briefly.
        if self._parked_long and not self._renew:
            if now_ms - self._ended_ms < AGAIN_MS:
                self._short_until_ms = now_ms + AGAIN_MS
            self._ended_ms = now_ms
        elif now_ms < self._short_until_ms:
            self._short_until_ms = now_ms + AGAIN_MS
        # A Fetch in flight that names the partition does so in its earlier epoch, and its answer would be dropped.
        if self._parked_long or key in self._asking.asked:
            self._wake()
        else:
            self._changed.set()

    def unfollow(self, hosted: HostedPartition) -> None:
        """Stop fetching a partition. No error is raised if it was not fetched."""
        if self.following.pop((hosted.state.topic_id, hosted.state.index), None) is not None and not self.following:
            self._wake()

    def stop(self) -> None:
        """Stop fetching all partitions, and ignore responses that may have arrived already."""
        self.following.clear()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        if self._link is not None:
            self._renew = True
            self._link.close()

    def close_if_silent(self, now_ms: int) -> None:
        """Close the connection if the leader has not answered for replica.socket.timeout.ms."""
        if self._link is not None and self._sent_ms and now_ms - self._sent_ms > self._config.replica_socket_timeout_ms:
            self._link.close()

    async def run(self) -> None:
        """Fetch until cancelled."""
        backoff_s = self._config.replica_fetch_backoff_ms / 1000
        while True:
            self._renew = self._parked_long = False
            self._sent_ms = 0
            try:
                await self._session()
            except (OSError, MalformedFrame) as error:
                if not self._renew:
                    self._env.trace("fetch_failed", leader=self.leader_id, why=str(error))
            finally:
                if self._link is not None:
                    self._link.close()
                    self._link = None
            if not self.following:
                await self._pause(math.inf)
            elif not self._renew:  # else this node closed the link itself, to fetch again at once
                await self._pause(backoff_s)

    async def _pause(self, seconds: float) -> None:
        self._changed = trio.Event()
        with self._env.timeout(seconds):
            await self._changed.wait()

    async def _session(self) -> None:
        """Fetch over one connection to the leader until the connection fails."""
        address = self._resolve(self.leader_id)
        if address is None or not self.following:
            return
        with self._env.timeout(self._config.replica_socket_timeout_ms / 1000):
            self._link = await self._env.connect(*address)
        if self._link is None:
            raise LinkClosed("connecting took too long")
        frames = FrameReader(self._env, self._link, self._memory, 1 << 30, grows_to=LARGE)
        # The last connection may have lost an answer: then leader and follower disagree on the session's epoch.
        self._asking.restart()
        while True:
            if self._held or self._replicas.log_starts_adopted:
                await self._make_durable()
            wanted = self._wanted()
            if not wanted:
                await self._pause(self._until_next())
                if not self.following:
                    return
                continue
            await self._send(wanted)
            for view in await frames.burst():
                self._sent_ms, self._parked_long = 0, False
                try:
                    await self._take(view)
                except LinkClosed:
                    raise  # an OSError, too; any other one comes from the disk
                except OSError as error:
                    raise StorageFailed(str(error)) from error
            self._replicas.settle()

    async def _make_durable(self) -> None:
        """Make durable what the next Fetch reports to the leader: the records below its fetch offsets, if their topics
        ask for a flush, and the log start offsets.
        """
        held, self._held = self._held, []
        try:
            await self._replicas.flush_followed(held)
            self._replicas.checkpoint_adopted_log_starts()
        except OSError as error:
            raise StorageFailed(str(error)) from error

    def _until_next(self) -> float:
        """Return the seconds until a partition in back-off may be fetched again."""
        now_ms = int(self._env.mono() * 1000)
        waits = [f.not_before_ms - now_ms for f in self.following.values()]
        return max(1, min(waits, default=1000)) / 1000

    def _wanted(self) -> list[tuple[PartKey, PartitionFetchState]]:
        """Return the partitions that may be fetched now."""
        now_ms = int(self._env.mono() * 1000)
        return [item for item in self.following.items() if item[1].not_before_ms <= now_ms]

    async def _send(self, wanted: list[tuple[PartKey, PartitionFetchState]]) -> None:
        config, link, session = self._config, self._link, self._asking
        assert link is not None
        topics, forgotten = session.build_request(wanted)
        wait_ms, now_ms = config.replica_fetch_wait_max_ms, int(self._env.mono() * 1000)
        self._parked_long = now_ms >= self._short_until_ms
        request = FetchIn(
            config.node_id,
            self._broker_epoch(),
            wait_ms if self._parked_long else min(wait_ms, SHORT_WAIT_MS),
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            0,
            session.session_id,
            session.epoch,
            None,
            topics,
            forgotten,
            "",
        )
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        body = encode_fetch_request(request, _VERSION)
        frame = memoryview(encode_request(ApiKey.FETCH, _VERSION, self._correlation_id, self._client_id, body))
        self._sent_ms = now_ms
        while frame:
            sent = link.send((frame,))
            frame = frame[sent:]
            if frame:
                await link.wait_writable()

    async def _take(self, view: memoryview) -> None:
        correlation_id, at = decode_response_header(view, ApiKey.FETCH, _VERSION)
        if correlation_id != self._correlation_id:
            raise MalformedFrame(f"response {correlation_id} to request {self._correlation_id}")
        response = decode_fetch_response(view, at, _VERSION)
        # No back-off: the next request opens a session, and asks for the same records.
        if response.error in LOST:
            self._asking.restart()
            return
        if response.error:
            raise LinkClosed(f"leader answered {ErrorCode(response.error).name}")
        # Partitions that the response omits are unchanged: they have neither records nor new offsets.
        asked = self._asking.asked
        reported = [(part, asked[topic_id, part.index]) for topic_id, parts in response.topics for part in parts
                if (topic_id, part.index) in asked]  # fmt: skip
        self._asking.answered(response.session_id)
        if len(reported) <= FEW_PARTITIONS:
            for part, before in reported:
                self._apply(part, before.following, before.offset)
            return
        spent = 0
        for part, before in reported:
            if spent >= SPENT_IN_A_TURN:
                spent = 0
                self._replicas.settle()
                await trio.lowlevel.checkpoint()
            f = before.following
            waits_for_disk = part.records and f.hosted.log.epochs.must_be_written(f.leader_epoch)
            cost = FIRST_COSTS if waits_for_disk else 1
            spent += cost
            DONE.entries += cost
            self._apply(part, f, before.offset)

    def _apply(self, part: FetchResponsePartition, f: PartitionFetchState, offset: int) -> None:
        """Apply the part of a Fetch response that concerns one partition: append its records, or handle its error."""
        h = f.hosted
        state, log = h.state, h.log
        current = self.following.get((state.topic_id, state.index))
        # Orders may have come while the response was on its way: a new epoch, a truncation, the end of the replica.
        if current is not f or not state.accepts_fetched(f.leader_epoch, offset):
            return
        if part.error:
            self._refused(part, f)
            return
        f.failures = 0
        if part.diverging is not None:
            self._replicas.apply_effects(h, state.diverged(log.epochs, *part.diverging))
            return
        if part.records:
            try:
                if not log.append_as_follower(part.records, f.leader_epoch).bytes:
                    # Without an error the same request would get the same answer, again and again.
                    raise CorruptRecords(f"no whole batch of epoch {f.leader_epoch} or before")
            except (CorruptRecords, UnexpectedOffset) as wrong:
                self._env.trace("bad_records", topic=log.topic, partition=log.partition, why=str(wrong))
                self._back_off(f)
                return
            self.bytes_in += len(part.records)
        held = self._replicas.followed(h, part.high_watermark, part.log_start_offset)
        if held is not None:
            self._held.append(held)

    def _refused(self, part: FetchResponsePartition, f: PartitionFetchState) -> None:
        log = f.hosted.log
        self._env.trace(
            "fetch_refused",
            topic=log.topic,
            partition=log.partition,
            leader=self.leader_id,
            error=ErrorCode(part.error).name,
            offset=log.log_end_offset,
            epoch=f.leader_epoch,
        )
        self._back_off(f)
        # The back-off may end before the leader has answered: do not ask twice.
        if part.error == ErrorCode.OFFSET_OUT_OF_RANGE and not f.resolving:
            f.resolving = True
            self._start_soon(self._resolve_out_of_range, f)

    async def _resolve_out_of_range(self, f: PartitionFetchState) -> None:
        """Ask the leader for its log start and log end offsets, then let the state machine decide
        (`Partition.out_of_range`).
        """
        state, log = f.hosted.state, f.hosted.log
        offset = log.log_end_offset
        try:
            start = await self._leader_offset(f, EARLIEST)
            end = await self._leader_offset(f, LATEST)
        except OSError as error:
            self._env.trace("fetch_failed", leader=self.leader_id, why=str(error))
            return
        finally:
            f.resolving = False
        # As in `_apply`: the answers hold for the epoch and the log end of the question.
        if start >= 0 and end >= 0 and state.accepts_fetched(f.leader_epoch, offset):
            self._replicas.apply_effects(f.hosted, state.out_of_range(start, end))

    async def _leader_offset(self, f: PartitionFetchState, which: int) -> int:
        """Ask the leader for its log start offset (`which`: EARLIEST) or log end offset (LATEST). Return -1 if the
        leader answers an error.
        """
        state = f.hosted.state
        part = ListOffsetsPartition(partition_index=state.index, current_leader_epoch=f.leader_epoch, timestamp=which)
        request = ListOffsetsRequest(
            replica_id=self._config.node_id, topics=[ListOffsetsTopic(name=state.topic, partitions=[part])]
        )
        timeout_ms = self._config.replica_socket_timeout_ms
        response = await self._peers.request(self.leader_id, ApiKey.LIST_OFFSETS, 7, request, timeout_ms=timeout_ms)
        answered = response.topics[0].partitions[0]
        return -1 if answered.error_code else int(answered.offset)

    def _back_off(self, f: PartitionFetchState) -> None:
        """Let this partition wait for its back-off. The other partitions are still fetched."""
        f.failures += 1
        base = 20 if f.failures < 3 else self._config.replica_fetch_backoff_ms
        f.not_before_ms = int(self._env.mono() * 1000) + base


class ReplicaFetcherManager:
    """Holds a fetcher for each leader that this broker follows."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        peers: PeerClient,
        resolve: Resolve,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._env, self._config, self._peers = env, config, peers
        self._resolve, self._broker_epoch = resolve, broker_epoch
        self._fetchers: dict[int, Fetcher] = {}
        self._replicas: ReplicaManager | None = None
        self._nursery: trio.Nursery | None = None
        self._stopped = False

    def bind(self, replicas: ReplicaManager, nursery: trio.Nursery) -> None:
        """Set the replica manager that applies fetched records, and the nursery for tasks. Call this before the first
        `follow`.
        """
        self._replicas, self._nursery = replicas, nursery

    def follow(self, hosted: HostedPartition) -> None:
        """Fetch a partition from its current leader, and from no other."""
        leader_id = hosted.state.leader_id
        for other, fetcher in self._fetchers.items():
            if other != leader_id:
                fetcher.unfollow(hosted)
        if leader_id < 0 or self._stopped:
            return
        found = self._fetchers.get(leader_id)
        if found is None:
            assert self._replicas is not None
            assert self._nursery is not None
            found = self._fetchers[leader_id] = Fetcher(
                self._env,
                self._config,
                leader_id,
                self._replicas,
                self._peers,
                self._resolve,
                self._broker_epoch,
                self._nursery.start_soon,
            )
            # Before `run`, which pauses if there is no partition to fetch.
            found.follow(hosted)
            self._nursery.start_soon(found.run)
            return
        found.follow(hosted)

    @property
    def bytes_in(self) -> int:
        """Return the bytes of batches that were fetched from leaders and appended."""
        return sum(fetcher.bytes_in for fetcher in self._fetchers.values())

    def unfollow(self, hosted: HostedPartition) -> None:
        """Stop fetching a partition from every leader."""
        for fetcher in self._fetchers.values():
            fetcher.unfollow(hosted)

    def stop(self) -> None:
        """Stop all fetching, because the logs are about to be closed and closed logs accept no records."""
        self._stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()

    def close_silent_connections(self, now_ms: int) -> None:
        """Close the connections that do not answer. Call this periodically."""
        for fetcher in self._fetchers.values():
            fetcher.close_if_silent(now_ms)
