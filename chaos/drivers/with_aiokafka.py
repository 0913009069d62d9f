"""Drives aiokafka's producer and consumer, whose event loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    IllegalOperation,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
)

from squall.broker.overriding import override
from squall.chaos.drivers.library import (
    FAIL,
    INFO,
    OK,
    ConsumerAdapter,
    DriverConfig,
    OffsetOutOfRange,
    OutcomeCallback,
    Place,
    ProducerAdapter,
    ReadRecord,
    RecordSender,
)

T = TypeVar("T")

version = str(aiokafka.__version__)

HAND, SEND = "hand", "send"
"""Name the steps in which a record can fail. HAND: the library does not take it. SEND: its future has an error."""
NO_ROOM = (KafkaTimeoutError, MessageSizeTooLargeError)
"""Lists errors of records that aiokafka did not take."""
START_S = 30.0
ASK_S = 5.0


class EventLoopThread:
    """Runs an asyncio event loop in a thread until the process ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, awaitable: Awaitable[T], within_s: float) -> T:
        """Run an awaitable in the loop and return its result; call it from another thread. Raise TimeoutError after
        `within_s` seconds.
        """

        async def bounded() -> T:
            return await asyncio.wait_for(awaitable, within_s)

        return asyncio.run_coroutine_threadsafe(bounded(), self.loop).result()


def settings(config: DriverConfig) -> dict[str, Any]:
    """Return the arguments for AIOKafkaProducer that plain and transactional producers share. request_timeout_ms is not
    among them: a plain producer sets it to the delivery time-out, a transactional one to the request time-out.
    """
    return {
        "bootstrap_servers": config.bootstrap,
        "client_id": config.client_id,
        "acks": "all" if config.acks == -1 else config.acks,
        "enable_idempotence": config.idempotence,
        "linger_ms": config.linger_ms,
        "max_batch_size": config.batch_size,
        "compression_type": None if config.codec == "none" else config.codec,
        "max_request_size": max(config.max_record_bytes + 1024, 1_048_576),
    }


class AiokafkaSender(RecordSender):
    """Hands records over to aiokafka's producer."""

    def __init__(self, answer: OutcomeCallback) -> None:
        self._answer = answer
        self._io = EventLoopThread()
        self._unanswered = 0

    def serve(self, producer: AIOKafkaProducer) -> None:
        """Send the records with this producer, which has been started. This method must be called in the event loop."""
        self._sends = producer.send
        self._queue: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self._sender = asyncio.ensure_future(self._send_all())

    @override
    def send(self, op: int, topic: str, partition: int, key: bytes | None, value: bytes, timestamp_ms: int) -> None:
        """Queue a record for the one coroutine that sends all records, so that waiting records do not overtake each
        other.
        """
        self._unanswered += 1
        record = (op, topic, partition, key, value, timestamp_ms)
        self._io.loop.call_soon_threadsafe(self._queue.put_nowait, record)

    async def _send_all(self) -> None:
        while True:
            op, topic, partition, key, value, timestamp_ms = await self._queue.get()
            try:
                sent = await self._sends(topic, value, key, partition, timestamp_ms)
            except (KafkaError, IllegalOperation, AssertionError) as refused:
                self._lost(op, HAND, refused)
            else:
                sent.add_done_callback(partial(self._done, op))

    def _done(self, op: int, sent: asyncio.Future[Any]) -> None:
        error = sent.exception()
        if error is not None:
            self._lost(op, SEND, error)
            return
        # With acks=0 the broker sends no response, so the record has no metadata.
        metadata = sent.result()
        offset, timestamp_ms = (-1, -1) if metadata is None else (metadata.offset, metadata.timestamp)
        self._told(op, OK, -1 if offset is None else max(-1, offset), -1 if timestamp_ms is None else timestamp_ms, "")

    def _lost(self, op: int, which: str, error: BaseException) -> None:
        never_left = which == HAND and isinstance(error, NO_ROOM)
        self._told(op, FAIL if never_left else INFO, -1, -1, type(error).__name__)

    def _told(self, op: int, status: int, offset: int, timestamp_ms: int, error: str) -> None:
        self._unanswered -= 1
        self._answer(op, status, offset, timestamp_ms, error)

    @override
    def pump(self) -> None:
        """Do nothing: the event loop calls back by itself."""


class _AiokafkaProducer(AiokafkaSender, ProducerAdapter):
    def __init__(self, config: DriverConfig, answer: OutcomeCallback) -> None:
        super().__init__(answer)
        self._io.run(self._start(config), START_S)

    async def _start(self, config: DriverConfig) -> None:
        # aiokafka has no delivery time-out: it gives a batch up when the batch is as old as the request time-out.
        producer = AIOKafkaProducer(**settings(config), request_timeout_ms=config.delivery_timeout_ms)
        await producer.start()
        self.serve(producer)

    @override
    def finish(self, within_s: float) -> None:

        async def answered() -> None:
            while self._unanswered:
                await asyncio.sleep(0.02)

        try:
            self._io.run(answered(), within_s)
        except TimeoutError:
            pass  # the harness counts records without an outcome as in doubt


class _AiokafkaConsumer(ConsumerAdapter):
    def __init__(self, config: DriverConfig) -> None:
        self._io = EventLoopThread()
        self._io.run(self._start(config), START_S)

    async def _start(self, config: DriverConfig) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=config.bootstrap,
            enable_auto_commit=False,
            # A reset by the library would skip records in silence. As an error it is a reset of ours, which the history
            # has.
            auto_offset_reset="none",
            isolation_level=("read_uncommitted", "read_committed")[config.isolation],
            request_timeout_ms=max(config.request_timeout_ms, 1000),
        )
        await self._consumer.start()

    @override
    def bounds(self, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        wanted = [TopicPartition(*place) for place in places]
        try:
            low = self._io.run(self._consumer.beginning_offsets(wanted), ASK_S)
            high = self._io.run(self._consumer.end_offsets(wanted), ASK_S)
        except (KafkaError, TimeoutError):
            return {}
        return {(each.topic, each.partition): (low[each], high[each]) for each in wanted}

    @override
    def assign(self, positions: dict[Place, int]) -> None:

        async def all_of_them() -> None:
            self._consumer.assign([TopicPartition(*place) for place in positions])
            for place, position in positions.items():
                self._consumer.seek(TopicPartition(*place), position)

        self._io.run(all_of_them(), ASK_S)

    @override
    def seek(self, place: Place, position: int) -> None:

        async def one() -> None:
            self._consumer.seek(TopicPartition(*place), position)

        self._io.run(one(), ASK_S)

    @override
    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        try:
            fetched = self._io.run(
                self._consumer.getmany(timeout_ms=int(within_s * 1000), max_records=500), within_s + 60
            )
        except OffsetOutOfRangeError as gone:
            places = [(each.topic, each.partition) for each in self._consumer.assignment()]
            raise OffsetOutOfRange(places, f"OffsetOutOfRange: {gone}") from None
        return [
            ReadRecord.of((each.topic, each.partition), record)
            for each, records in fetched.items()
            for record in records
        ]

    @override
    def close(self) -> None:
        self._io.run(self._consumer.stop(), ASK_S)


producer, consumer = _AiokafkaProducer, _AiokafkaConsumer
