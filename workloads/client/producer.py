"""Sends records: carries out the accumulator's decisions over connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import encode_batch
from squall.broker.protocol.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from squall.broker.protocol.schema.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from squall.broker.protocol.wire import ZERO_UUID
from squall.workloads.client.accumulator import (
    Done,
    Header,
    PartitionQueue,
    ProducerBatch,
    QueuedRecord,
    RecordAccumulator,
    SettledBatch,
)
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Leader, Place
from squall.workloads.client.connection import BrokerConnection, RequestFailed, UnsupportedApi
from squall.workloads.client.outcomes import BAD_ANSWER, CLOSED, CONNECTION_LOST, STALE_METADATA, may_be_deposed
from squall.workloads.client.settings import CODECS, ProducerSettings
from squall.workloads.client.task_notifier import TaskNotifier

PRODUCE_OLDEST = 3
"""Is the first version of Produce that carries record batches of format 2."""
PRODUCE_TOPIC_IDS_FROM = 13
PRODUCE_V1_TRANSACTIONS = 11
"""Is the last version of Produce for transactions whose producer adds the partitions itself (KIP-890)."""
REQUEST_OVERHEAD = 128
RECORD_MARGIN = 256
MAX_INT32 = 2**31 - 1


def _nothing() -> None:
    pass


@dataclass(slots=True, eq=False)
class _ProduceInFlight:
    """Holds a Produce request that is not answered yet."""

    serial: int
    """Identifies the connection that the request was sent over."""
    version: int
    batches: dict[Place, ProducerBatch]
    names: dict[bytes, str]
    """Maps topic ids to names, as of the time of sending."""


class Producer:
    """Sends records in the order and with the outcomes that `accumulator` decides, over a running `Client` of its own
    or a shared one.

    `before_send` is called before any bytes of records are passed to a connection, `after_outcomes` after some records
    got their outcomes: a recorder writes its entries then. An exception from either ends the producer's task.
    """

    def __init__(
        self,
        client: Client,
        settings: ProducerSettings | None = None,
        *,
        before_send: Callable[[], None] = _nothing,
        after_outcomes: Callable[[], None] = _nothing,
    ) -> None:
        self.settings = settings or ProducerSettings()
        self._client = client
        self._env = client.env
        self._before_send = before_send
        self._after_outcomes = after_outcomes
        shared = client.settings
        self._accumulator = RecordAccumulator(
            self.settings,
            client.env.rng,
            backoff_ms=shared.retry_backoff_ms,
            backoff_max_ms=shared.retry_backoff_max_ms,
        )
        self._codec = CODECS[self.settings.codec]
        self._producer_id = -1
        self._producer_epoch = -1
        self._max_produce = ProduceRequest.MAX_VERSION
        self._in_flight: dict[int, int] = {}
        self._unanswered: set[int] = set()
        """Holds the brokers that got a request with acks=0 over a connection that is not known to be closed."""
        self._wake = client.env.signal()
        self._room = TaskNotifier()
        self._look_at_ms: int | None = None
        self._closed = False
        self._timeout_s = shared.request_timeout_ms / 1000
        # The broker times out first, because its response says more than a closed connection does.
        self._broker_timeout_ms = shared.request_timeout_ms - min(1000, shared.request_timeout_ms // 5)
        client.listen(self._on_change)

    @property
    def retired(self) -> str:
        """Return why the producer takes no new records. The string is empty if it takes them."""
        return self._accumulator.retired

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes of records that have no outcome yet."""
        return self._accumulator.buffered_bytes

    @property
    def idle(self) -> bool:
        """Return whether every record has its outcome."""
        return self._accumulator.idle

    def takes(self, size: int) -> bool:
        """Return whether a record of `size` bytes, key and headers included, would be taken now."""
        return self._accumulator.takes(size + RECORD_MARGIN)

    def send(
        self,
        topic: str,
        index: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header],
        timestamp_ms: int,
        done: Done,
    ) -> None:
        """Send a record. `done` is called once, later, with its outcome.

        Raises BufferFull or ProducerRetired; the record is then not taken and `done` is never called.
        """
        now_ms = int(self._env.mono() * 1000)
        record = QueuedRecord(key, value, headers, timestamp_ms, done)
        look_at_ms = self._accumulator.add(topic, index, record, now_ms)
        if look_at_ms is not None and (self._look_at_ms is None or look_at_ms < self._look_at_ms):
            self._look_at_ms = look_at_ms
            self._wake.set()

    async def room(self) -> None:
        """Wait, after BufferFull, until some records have their outcome and no longer take space in the buffer."""
        await self._room.wait()

    def retire(self, why: str) -> None:
        """Take no new records, but still send the records that were taken."""
        self._accumulator.retire(why)

    def identify(self, producer_id: int, epoch: int, *, implicit: bool = False) -> None:
        """Use this producer id and epoch, which a transaction coordinator gave, from now on. Nothing may be in flight.

        `implicit` means that the partition's leader adds the partition to the transaction (transaction.version 2).
        """
        self._max_produce = ProduceRequest.MAX_VERSION if implicit else PRODUCE_V1_TRANSACTIONS
        # A new epoch begins at sequence 0. In V1 an epoch outlives a transaction, and its sequences continue.
        if (producer_id, epoch) != (self._producer_id, self._producer_epoch):
            self._accumulator.restart_sequences()
        self._producer_id, self._producer_epoch = producer_id, epoch
        self._wake.set()

    async def flushed(self) -> None:
        """Wait until every record sent so far has its outcome."""
        self._accumulator.flush()
        self._wake.set()
        while not self._accumulator.idle:
            await self._room.wait()

    async def finish(self) -> None:
        """Send lingering records and wait until every record has its outcome, at most about the delivery time-out."""
        self._accumulator.flush()
        self._wake.set()
        while not self._accumulator.idle:
            await self._room.wait()

    def close(self) -> None:
        """Stop sending at once. A record without an outcome gets INFO if it may have been appended, and FAIL if it
        cannot have been.
        """
        if not self._closed:
            self._closed = True
            self._settle(self._accumulator.abandon(CLOSED))
            self._report_outcomes()
            self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send until `close`. Records may be passed to `send` before this runs."""
        async with trio.open_nursery() as nursery:
            # With a transactional id, the coordinator gives the producer id (`identify`).
            if self.settings.idempotence and not self.settings.transactional_id:
                nursery.start_soon(self._get_producer_id)
            task_status.started()
            while not self._closed:
                look_at_ms = None if self._accumulator.idle else self._look()
                await self._sleep_until(look_at_ms)
            nursery.cancel_scope.cancel()

    def _look(self) -> int | None:
        """Give expired records their outcomes, and send what may be sent. Return the time of the next check in ms by
        env.mono(), or None.
        """
        now_ms = int(self._env.mono() * 1000)
        # Lingering batches cannot expire either: a delivery time-out is longer than the linger.
        if now_ms < self._accumulator.idle_until_ms:
            return self._accumulator.idle_until_ms
        expired = self._accumulator.expire(now_ms)
        if expired:
            self._settle(expired)
            self._report_outcomes()
        self._send_all(now_ms)
        return self._accumulator.next_look_ms(now_ms)

    async def _sleep_until(self, look_at_ms: int | None) -> None:
        self._look_at_ms = look_at_ms
        if look_at_ms is None:
            await self._wake.wait()
            return
        # At least half a millisecond: `look_at_ms` and the clock are whole ms, so a shorter wait may end before it is
        # due, again and again.
        await self._wake.wait(max(look_at_ms / 1000 - self._env.mono(), 0.0005))

    async def _get_producer_id(self) -> None:
        """Wait until a broker has given a producer id; records wait, and may expire, in the meantime."""
        # Without a transactional id nothing times out; Kafka's producer sends the same value.
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=MAX_INT32)
        failures = 0
        while True:
            answer = await self._client.ask(request, InitProducerIdResponse)
            if answer.error_code == ErrorCode.NONE:
                self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
                self._wake.set()
                return
            failures += 1
            await self._env.sleep(self._client.backoff(failures))

    def _on_change(self, moved: Sequence[Place]) -> None:
        for topic, index in moved:
            self._accumulator.leader_moved(topic, index)
        self._wake.set()

    def _send_all(self, now_ms: int) -> None:
        """Send all batches that may be sent now."""
        if self.settings.idempotence and self._producer_id < 0:
            return
        # Each pass sends at most one request to each leader; more passes use up `max_in_flight`.
        progress = True
        while progress:
            progress = False
            for node_id, lanes in self._by_leader(now_ms).items():
                connection = self._client.connection(node_id)
                if connection is None:
                    self._refresh_after_refusal(node_id)
                elif self._takes_more(connection):
                    progress |= self._send_some(connection, lanes, now_ms)
                    if self.settings.acks == 0:
                        self._unanswered.add(node_id)

    def _refresh_after_refusal(self, node_id: int) -> None:
        """Request metadata after a closed connection: a broker that does not lead answers a Produce with acks=0 by
        closing the connection.
        """
        if node_id in self._unanswered:
            self._unanswered.remove(node_id)
            self._client.refresh_soon()

    def _by_leader(self, now_ms: int) -> dict[int, list[PartitionQueue]]:
        found: dict[int, list[PartitionQueue]] = {}
        for lane in self._accumulator.sendable(now_ms):
            leader = self._client.view.leader(lane.topic, lane.index)
            if leader is None:
                self._client.refresh_soon()
            else:
                found.setdefault(leader.node_id, []).append(lane)
        return found

    def _takes_more(self, connection: BrokerConnection) -> bool:
        in_flight = self._in_flight.get(connection.serial, 0)
        return in_flight < self.settings.max_in_flight and not connection.congested

    def _send_some(self, connection: BrokerConnection, lanes: list[PartitionQueue], now_ms: int) -> bool:
        """Send one request with a batch of each partition queue, as far as they fit. Return False if no batch could be
        sent.
        """
        try:
            version = connection.version(ApiKey.PRODUCE, self._max_produce, PRODUCE_OLDEST)
        except UnsupportedApi:
            connection.close(BAD_ANSWER)
            return False
        batches: dict[Place, ProducerBatch] = {}
        size = REQUEST_OVERHEAD
        for lane in lanes:
            # The first batch is sent whatever its size. `break`, not `continue`: a small batch must not overtake an
            # older one.
            if batches and size + lane.waiting[0].size > self.settings.max_request_bytes:
                break
            batch = self._accumulator.take(lane, connection.serial, now_ms)
            if batch is not None:
                batches[lane.topic, lane.index] = batch
                size += batch.size
        if not batches:
            return False
        ids = {topic: self._client.view.topic_id(topic) for topic, _ in batches}
        # A broker without topic ids (KIP-516): the request has to name its topics.
        if ZERO_UUID in ids.values():
            version = min(version, PRODUCE_TOPIC_IDS_FROM - 1)
        body = self._encode(batches, ids, version)
        # As late as possible, when a request is certain to be sent: the recorder writes its invocations here.
        self._before_send()
        names = {topic_id: topic for topic, topic_id in ids.items()}
        self._submit(connection, body, _ProduceInFlight(connection.serial, version, batches, names))
        return True

    def _encode(self, batches: dict[Place, ProducerBatch], ids: dict[str, bytes], version: int) -> bytes:
        topics: dict[str, TopicProduceData] = {}
        for (topic, index), batch in batches.items():
            data = topics.get(topic)
            if data is None:
                by_id = version >= PRODUCE_TOPIC_IDS_FROM
                data = topics[topic] = TopicProduceData(topic_id=ids[topic]) if by_id else TopicProduceData(topic)
            data.partition_data.append(PartitionProduceData(index, self._batch_bytes(batch)))
        transactional_id = self.settings.transactional_id or None
        request = ProduceRequest(transactional_id, self.settings.acks, self._broker_timeout_ms, list(topics.values()))
        return request.encode(version)

    def _batch_bytes(self, batch: ProducerBatch) -> bytes:
        if batch.encoded is None:
            batch.encoded = encode_batch(
                [
                    (delta, record.timestamp_ms, record.key, record.value, record.headers)
                    for delta, record in enumerate(batch.records)
                ],
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=batch.sequence,
                codec=self._codec,
                transactional=bool(self.settings.transactional_id),
            )
        return batch.encoded

    def _submit(self, connection: BrokerConnection, body: bytes, sent: _ProduceInFlight) -> None:
        self._in_flight[sent.serial] = self._in_flight.get(sent.serial, 0) + 1
        try:
            if self.settings.acks == 0:
                connection.post(ApiKey.PRODUCE, sent.version, body, partial(self._posted, sent))
            else:
                connection.submit(ApiKey.PRODUCE, sent.version, body, partial(self._answered, sent), self._timeout_s)
        except RequestFailed as failure:
            self._failed(sent, failure)

    def _posted(self, sent: _ProduceInFlight, whole: bool) -> None:
        """Settle a request with acks=0, which has no response. `whole` says whether the connection took all its bytes;
        nothing else is known.
        """
        if self._closed:
            return
        if not whole:
            self._failed(sent, RequestFailed(CONNECTION_LOST, sent=True))
            return
        self._release(sent.serial)
        for batch in sent.batches.values():
            self._settle(self._accumulator.acked(batch, -1, -1))
        self._done()

    def _answered(self, sent: _ProduceInFlight, body: memoryview | None, failure: RequestFailed | None) -> None:
        if body is None:
            assert failure is not None
            self._failed(sent, failure)
            return
        # Decoded before anything changes: after MalformedFrame the connection calls this again, with a failure.
        response, _ = ProduceResponse.decode(body, 0, sent.version)
        if self._closed:
            return
        self._release(sent.serial)
        now_ms = int(self._env.mono() * 1000)
        left = dict(sent.batches)
        for topic in response.responses:
            name = sent.names.get(topic.topic_id, "") if sent.version >= PRODUCE_TOPIC_IDS_FROM else topic.name
            for part in topic.partition_responses:
                batch = left.pop((name, part.index), None)
                if batch is not None:
                    self._settle(self._judge(batch, part, response, now_ms))
        # A response has to answer each batch. One that it omits may have been appended.
        for batch in left.values():
            self._settle(self._accumulator.lost(batch, BAD_ANSWER, now_ms, sent=True))
        self._done()

    def _judge(
        self, batch: ProducerBatch, part: PartitionProduceResponse, response: ProduceResponse, now_ms: int
    ) -> list[SettledBatch]:
        if part.error_code == ErrorCode.NONE:
            return self._accumulator.acked(batch, part.base_offset, part.log_append_time_ms)
        settled = self._accumulator.refused(batch, part.error_code, now_ms)
        if part.error_code in STALE_METADATA:
            leader = part.current_leader
            endpoints = {node.node_id: (node.host, node.port) for node in response.node_endpoints}
            place = (batch.lane.topic, batch.lane.index)
            # No request for metadata if the refusal itself names a newer leader (KIP-951).
            if not self._client.hint(
                place, Leader(leader.leader_id, leader.leader_epoch), endpoints.get(leader.leader_id)
            ):
                self._client.refresh_soon()
        elif may_be_deposed(part.error_code, batch.attempts):
            self._client.refresh_soon()
        return settled

    def _failed(self, sent: _ProduceInFlight, failure: RequestFailed) -> None:
        if self._closed:
            return
        self._release(sent.serial)
        now_ms = int(self._env.mono() * 1000)
        for batch in sent.batches.values():
            self._settle(self._accumulator.lost(batch, failure.why, now_ms, sent=failure.sent))
        self._client.refresh_soon()
        self._done()

    def _release(self, serial: int) -> None:
        left = self._in_flight.get(serial, 0) - 1
        if left > 0:
            self._in_flight[serial] = left
        else:
            self._in_flight.pop(serial, None)

    def _settle(self, settled: list[SettledBatch]) -> None:
        for one in settled:
            for record, outcome in one.outcomes():
                record.done(outcome)

    def _done(self) -> None:
        """Do what follows when records got outcomes or may be retried: call `after_outcomes`, and look for batches that
        can be sent.
        """
        self._report_outcomes()
        self._wake.set()

    def _report_outcomes(self) -> None:
        self._after_outcomes()
        self._room.notify_all()
