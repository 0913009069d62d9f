"""Implements a fetching consumer with assigned partitions. It never moves a position on its own: if a position becomes
invalid (out of range, or the log was truncated below it), it reports an event and pauses the partition until `seek`.

Each poll sends a Fetch to every broker that leads an assigned partition and has no outstanding Fetch, and returns as
soon as anything has arrived. A slow broker delays no poll: its response is returned by the next poll after it arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode, name_of
from squall.broker.protocol.hot import FetchOut, FetchResponsePartition, decode_fetch_response
from squall.broker.protocol.records import Record
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from squall.broker.protocol.schema.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from squall.broker.protocol.wire import ZERO_UUID
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Leader, Place
from squall.workloads.client.connection import BrokerConnection, RequestFailed, UnsupportedApi
from squall.workloads.client.fetched import UnreadableBatch, read_records
from squall.workloads.client.outcomes import BAD_ANSWER, STALE_METADATA
from squall.workloads.client.reading_session import LOST, ClientFetchSession, OffsetBounds
from squall.workloads.client.settings import ConsumerSettings

FETCH_OLDEST = 4
FETCH_TOPIC_IDS_FROM = 13
CONSUMER_REPLICA_ID = -1


OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
LOG_TRUNCATED = "LOG_TRUNCATED"


class FetchedRecords(NamedTuple):
    """Holds the records of one partition that a poll returns; there may be none, but the broker answered."""

    place: Place
    position: int
    """Holds the position after these records: the next offset to fetch."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int
    """Holds the leader epoch of the broker that answered; -1 if brokers report no epochs."""
    records: list[Record]
    damage: list[UnreadableBatch]


class PositionInvalidated(NamedTuple):
    """Reports that a partition's position became invalid. The partition is paused until `seek`."""

    kind: str
    """Says why the position is invalid: OFFSET_OUT_OF_RANGE if it is outside of the leader's log, LOG_TRUNCATED if the
    leader's log lacks records below it.
    """
    place: Place
    position: int
    log_start_offset: int
    """Holds the log start offset; -1 if unknown."""
    end_offset: int
    """Holds, for LOG_TRUNCATED, the first offset that differs, or -1 if unknown; for OFFSET_OUT_OF_RANGE, the high
    watermark.
    """


class TransientReadError(NamedTuple):
    """Reports why a fetch returned nothing. The next polls retry it."""

    place: Place | None
    """Holds the partition; None if a whole request failed."""
    error: str


@dataclass(slots=True)
class PollResult:
    """Holds everything that one poll returns."""

    fetched: list[FetchedRecords] = field(default_factory=list)
    events: list[PositionInvalidated] = field(default_factory=list)
    errors: list[TransientReadError] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.fetched or self.events or self.errors)


@dataclass(slots=True)
class _PartitionState:
    """Holds the state of one assigned partition."""

    position: int
    returned: int
    """Holds the position after the records that polls have returned: lower than `position` while fetched records wait
    for a poll.
    """
    position_epoch: int = -1
    """Holds the leader epoch of the last record before the position; -1 if unknown (after a seek)."""
    leader_epoch: int = -1
    """Holds the leader epoch in which the position was last found to be valid."""
    validating: bool = False
    resting: bool = False
    retry_at: float = 0.0
    failures: int = 0


@dataclass(slots=True, eq=False)
class _FetchInFlight:
    """Holds a Fetch request that is not answered yet."""

    node_id: int
    version: int
    positions: dict[Place, tuple[int, int]]
    """Maps a partition to the requested (position, current leader epoch)."""
    names: dict[bytes, str]


class Consumer:
    """Fetches records of assigned partitions. It needs a running `Client`, but no task of its own."""

    def __init__(self, client: Client, settings: ConsumerSettings | None = None) -> None:
        self.settings = settings or ConsumerSettings()
        self._client = client
        self._env = client.env
        self._parts: dict[Place, _PartitionState] = {}
        self._asked: dict[int, _FetchInFlight] = {}
        self._sessions: dict[int, ClientFetchSession] = {}
        self._polled = PollResult()
        self._wake = client.env.signal()
        client.listen(lambda moved: self._wake.set())

    @property
    def positions(self) -> Mapping[Place, int]:
        """Return each assigned partition's position after the records that polls have returned."""
        return {place: part.returned for place, part in self._parts.items()}

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read exactly these partitions from now on, from these offsets."""
        self._polled = PollResult()
        self._parts = {place: _PartitionState(position, position) for place, position in positions.items()}
        self._client.track(topic for topic, _ in positions)

    def seek(self, place: Place, position: int) -> None:
        """Continue at `position`, which may be any offset. Fetched records of this partition that no poll returned are
        dropped.
        """
        self._polled.fetched = [fetched for fetched in self._polled.fetched if fetched.place != place]
        self._parts[place] = _PartitionState(position, position)

    def drop(self, place: Place) -> None:
        """Stop reading this partition. Fetched records of it that no poll returned are dropped."""
        self._polled.fetched = [fetched for fetched in self._polled.fetched if fetched.place != place]
        self._parts.pop(place, None)

    async def poll(self, limit_s: float) -> PollResult:
        """Return everything that arrived since the previous poll. If nothing did, wait until something arrives, at most
        for `limit_s` seconds; the result is empty if nothing arrives in that time.
        """
        give_up_at = self._env.mono() + limit_s
        while not self._polled:
            now = self._env.mono()
            if now >= give_up_at:
                break
            self._ask(now)
            look_at = min([part.retry_at for part in self._parts.values() if part.retry_at > now], default=give_up_at)
            # At least half a millisecond, so that rounding cannot make the loop spin without time passing.
            await self._wake.wait(max(min(look_at, give_up_at) - now, 0.0005))
        polled, self._polled = self._polled, PollResult()
        for fetched in polled.fetched:
            self._parts[fetched.place].returned = fetched.position
        return polled

    def _ask(self, now: float) -> None:
        """Send a Fetch to each broker that leads a readable partition and has no outstanding Fetch."""
        by_node: dict[int, list[tuple[Place, _PartitionState, Leader]]] = {}
        for place, part in self._parts.items():
            if part.resting or part.validating or part.retry_at > now:
                continue
            leader = self._client.view.leader(*place)
            if leader is None:
                part.retry_at = now + self._client.backoff(1)
                self._client.refresh_soon()
            elif leader.node_id not in self._asked:
                by_node.setdefault(leader.node_id, []).append((place, part, leader))
        for node_id, wanted in by_node.items():
            connection = self._client.connection(node_id)
            if connection is not None:
                self._ask_node(node_id, connection, wanted)

    def _ask_node(
        self, node_id: int, connection: BrokerConnection, wanted: list[tuple[Place, _PartitionState, Leader]]
    ) -> None:
        fetch: dict[Place, tuple[int, int]] = {}
        suspect: dict[Place, tuple[_PartitionState, Leader]] = {}
        for place, part, leader in wanted:
            # After a change of leader, the new leader's log may lack the records that were read (KIP-320).
            if part.position_epoch >= 0 and leader.epoch > part.leader_epoch:
                suspect[place] = (part, leader)
            else:
                fetch[place] = (part.position, leader.epoch)
        try:
            if suspect:
                self._validate(connection, suspect)
            if fetch:
                self._fetch(node_id, connection, fetch)
        except RequestFailed:
            # The session has noted positions of a request that was not sent: a later one would not name them again.
            if node_id in self._sessions and node_id not in self._asked:
                self._sessions[node_id].restart()
            self._client.refresh_soon()
        except UnsupportedApi as problem:
            self._polled.errors.append(TransientReadError(None, str(problem)))
            connection.close(BAD_ANSWER)

    def _fetch(self, node_id: int, connection: BrokerConnection, positions: dict[Place, tuple[int, int]]) -> None:
        version = connection.version(ApiKey.FETCH, FetchRequest.MAX_VERSION, FETCH_OLDEST)
        view, settings = self._client.view, self.settings
        ids = {topic: view.topic_id(topic) for topic, _ in positions}
        if ZERO_UUID in ids.values():
            version = min(version, FETCH_TOPIC_IDS_FROM - 1)
        session = self._sessions.setdefault(node_id, ClientFetchSession(wanted=settings.sessions))
        named = session.request_for({place: (*asked, ids[place[0]]) for place, asked in positions.items()})
        by_id = version >= FETCH_TOPIC_IDS_FROM
        topics: dict[str, FetchTopic] = {}
        for (topic, index), (position, epoch, _) in named.parts.items():
            asked = topics.get(topic)
            if asked is None:
                asked = topics[topic] = FetchTopic(topic_id=ids[topic]) if by_id else FetchTopic(topic)
            limit = settings.partition_max_bytes
            asked.partitions.append(FetchPartition(index, epoch, position, partition_max_bytes=limit))
        gone = [
            ForgottenTopic(topic_id=topic_id, partitions=[index])
            if by_id
            else ForgottenTopic(topic, partitions=[index])
            for (topic, index), topic_id in named.forgotten.items()
        ]
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=settings.isolation,
            session_id=named.session_id,
            session_epoch=named.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=gone,
        )
        names = {topic_id: topic for topic, topic_id in ids.items()}
        asked_now = _FetchInFlight(node_id, version, positions, names)
        # The broker may hold the request for `max_wait_ms` before it answers.
        limit_s = (self._client.settings.request_timeout_ms + settings.max_wait_ms) / 1000
        answer = partial(self._answered, asked_now)
        connection.submit(ApiKey.FETCH, version, request.encode(version), answer, limit_s)
        self._asked[node_id] = asked_now

    def _answered(self, asked: _FetchInFlight, body: memoryview | None, failure: RequestFailed | None) -> None:
        if body is not None:
            # Decoded before anything changes: after MalformedFrame the connection calls this again, with a failure.
            response = decode_fetch_response(body, 0, asked.version)
        if self._asked.get(asked.node_id) is asked:
            del self._asked[asked.node_id]
        session, may_omit = self._sessions[asked.node_id], False
        if failure is not None or response.error != ErrorCode.NONE:
            session.restart()
        else:
            may_omit = session.answered(response.session_id)
        if failure is not None:
            self._polled.errors.append(TransientReadError(None, failure.why))
            self._client.refresh_soon()
        elif response.error in LOST:
            pass  # the next request opens another session
        elif response.error != ErrorCode.NONE:
            for place in asked.positions:
                self._retry_later(place, response.error)
        else:
            omitted, served, starved = dict(asked.positions), list[Place](), False
            for topic, parts in response.topics:
                by_id = asked.version >= FETCH_TOPIC_IDS_FROM
                name = asked.names.get(bytes(topic)) if by_id else bytes(topic).decode()
                for reported in parts:
                    place = (name or "", reported.index)
                    if place in omitted and reported.error == ErrorCode.NONE:
                        served += [place] if reported.records else []
                        end = reported.last_stable_offset if self.settings.isolation else reported.high_watermark
                        # There are records for it, but others filled the response.
                        starved |= not reported.records and omitted[place][0] < end
                    omitted.pop(place, None)
                    bounds = OffsetBounds(
                        reported.high_watermark, reported.last_stable_offset, reported.log_start_offset
                    )
                    session.record(place, bounds if reported.error == ErrorCode.NONE else None)
                    self._take_in(place, reported, response, asked)
            for place in omitted if may_omit else ():
                self._return_unchanged(place, session.unchanged(place), asked)
            if starved:
                self._request_last(served)
        self._wake.set()

    def _request_last(self, served: list[Place]) -> None:
        """Move partitions whose records filled a response to the end of the next request, so that the others get their
        share: a broker fills a response in the order of the request, up to fetch.max.bytes (KIP-74). In a session the
        broker does this itself (KIP-227). Kafka's consumer does it after each response with records; if a response has
        room for all partitions, their order does not matter.
        """
        for place in served:
            if place in self._parts:
                self._parts[place] = self._parts.pop(place)

    def _return_unchanged(self, place: Place, bounds: OffsetBounds | None, asked: _FetchInFlight) -> None:
        """Add a partition without records to the poll's result, because a response of the incremental fetch session
        omitted it: nothing has changed there (KIP-227). `bounds` are its last reported offsets, `asked` is the answered
        Fetch.
        """
        part = self._parts.get(place)
        position, epoch = asked.positions[place]
        if bounds is None or part is None or part.position != position or part.resting:
            return
        part.leader_epoch, part.failures = epoch, 0
        self._polled.fetched.append(FetchedRecords(place, position, *bounds, epoch, [], []))

    def _take_in(
        self, place: Place, reported: FetchResponsePartition, response: FetchOut, asked: _FetchInFlight
    ) -> None:
        part = self._parts.get(place)
        position, epoch = asked.positions.get(place, (-1, -1))
        if part is None or part.position != position or part.resting:
            return  # the partition was sought or dropped meanwhile
        if reported.error == ErrorCode.NONE:
            part.leader_epoch = epoch
            self._take_in_records(place, part, reported)
        elif reported.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            part.resting = True
            end = reported.high_watermark
            event = PositionInvalidated(OFFSET_OUT_OF_RANGE, place, position, reported.log_start_offset, end)
            self._polled.events.append(event)
        elif reported.current_leader is not None and self._heed(place, reported.current_leader, response):
            self._polled.errors.append(TransientReadError(place, name_of(reported.error)))
        else:
            self._retry_later(place, reported.error)

    def _take_in_records(self, place: Place, part: _PartitionState, reported: FetchResponsePartition) -> None:
        read = read_records(reported.records, part.position, reported.aborted, self.settings.isolation)
        part.position = read.next_position
        part.failures = 0
        if read.last_epoch >= 0:
            part.position_epoch = read.last_epoch
        bounds = (reported.high_watermark, reported.last_stable_offset, reported.log_start_offset, part.leader_epoch)
        self._polled.fetched.append(FetchedRecords(place, read.next_position, *bounds, read.records, read.damage))

    def _heed(self, place: Place, reported: tuple[int, int], response: FetchOut) -> bool:
        """Apply the current leader that a broker reported with its error (KIP-951). `reported` is (broker id, leader
        epoch). Return True if the client did not know of it.
        """
        endpoints = {node_id: (host, port) for node_id, host, port, _ in response.node_endpoints}
        leader = Leader(*reported)
        return self._client.hint(place, leader, endpoints.get(leader.node_id))

    def _retry_later(self, place: Place, code: int) -> None:
        part = self._parts.get(place)
        if part is not None:
            part.failures += 1
            part.retry_at = self._env.mono() + self._client.backoff(part.failures)
        self._polled.errors.append(TransientReadError(place, name_of(code)))
        if code in STALE_METADATA:
            self._client.refresh_soon()

    def _validate(self, connection: BrokerConnection, suspect: dict[Place, tuple[_PartitionState, Leader]]) -> None:
        """Ask the new leader of each partition in `suspect` for the end offset, in its log, of the epoch of the last
        record read (OffsetForLeaderEpoch, KIP-320). The new leader's log may lack records that were read.
        """
        kind = OffsetForLeaderEpochRequest
        version = connection.version(kind.API_KEY, kind.MAX_VERSION, kind.MIN_VERSION)
        topics: dict[str, OffsetForLeaderTopic] = {}
        for (topic, index), (part, leader) in suspect.items():
            asked = topics.setdefault(topic, OffsetForLeaderTopic(topic))
            asked.partitions.append(OffsetForLeaderPartition(index, leader.epoch, part.position_epoch))
        request = kind(CONSUMER_REPLICA_ID, list(topics.values()))
        limit_s = self._client.settings.request_timeout_ms / 1000
        answer = partial(self._validated, version, suspect)
        connection.submit(request.API_KEY, version, request.encode(version), answer, limit_s)
        # Behind `submit`, which raises on a closed connection: then the next poll asks again.
        for part, _ in suspect.values():
            part.validating = True

    def _validated(
        self,
        version: int,
        suspect: dict[Place, tuple[_PartitionState, Leader]],
        body: memoryview | None,
        failure: RequestFailed | None,
    ) -> None:
        ends: dict[Place, EpochEndOffset] = {}
        if body is not None:
            response, _ = OffsetForLeaderEpochResponse.decode(body, 0, version)
            ends = {(topic.topic, end.partition): end for topic in response.topics for end in topic.partitions}
        for place, (part, leader) in suspect.items():
            part.validating = False
            # The partition was assigned anew, sought or dropped meanwhile.
            if self._parts.get(place) is not part:
                continue
            end = ends.get(place)
            if end is None:
                self._retry_later(place, ErrorCode.NETWORK_EXCEPTION)
            elif end.error_code != ErrorCode.NONE:
                self._retry_later(place, end.error_code)
            # The leader's log does not have this epoch, or its part of the epoch ends below the position (KIP-320).
            elif end.end_offset < part.position or end.leader_epoch < part.position_epoch:
                part.resting = True
                event = PositionInvalidated(LOG_TRUNCATED, place, part.position, -1, end.end_offset)
                self._polled.events.append(event)
            else:
                part.leader_epoch = leader.epoch
        if failure is not None:
            self._client.refresh_soon()
        self._wake.set()
