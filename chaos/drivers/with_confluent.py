"""Drives the producer and the consumer of confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, KafkaError, KafkaException, Producer, TopicPartition

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
from squall.workloads.payload import NOT_KNOWN

version = f"{confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"

NEVER_LEFT = frozenset(
    {
        *(KafkaError._PURGE_QUEUE, KafkaError._INVALID_ARG, KafkaError._UNKNOWN_PARTITION, KafkaError._QUEUE_FULL),
        *(KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._UNKNOWN_TOPIC),
    }
)
"""Lists errors of records that librdkafka never handed to a connection. With any other error an earlier attempt may
have arrived: the Python binding does not report a message's persistence (rd_kafka_message_status).
"""
GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
BOUNDS_S = 5.0
BATCH = 500
RECONNECT = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 1000, "broker.address.family": "v4"}


def read_record(place: Place, message: Any) -> ReadRecord:
    """Convert a message of librdkafka that holds a record, and not an error."""
    kind, ms = message.timestamp()
    sent_ms = ms if kind == TIMESTAMP_CREATE_TIME else NOT_KNOWN
    return ReadRecord(place, message.offset(), message.key(), message.value(), message.headers() or (), sent_ms)


def settings(config: DriverConfig) -> dict[str, Any]:
    """Return the settings for librdkafka's producer that plain and transactional producers share."""
    return {
        "bootstrap.servers": config.bootstrap,
        "client.id": config.client_id,
        "acks": config.acks,
        "enable.idempotence": config.idempotence,
        "max.in.flight.requests.per.connection": config.max_in_flight,
        "linger.ms": config.linger_ms,
        "batch.size": config.batch_size,
        "compression.type": config.codec,
        "request.timeout.ms": config.request_timeout_ms,
        "socket.timeout.ms": max(config.request_timeout_ms, 1000),
        "message.timeout.ms": config.delivery_timeout_ms,
        "message.max.bytes": max(config.max_record_bytes + 1024, 1_000_000),
        **RECONNECT,
    }


class LibrdkafkaSender(RecordSender):
    """Hands records over to librdkafka's producer, which gets the settings `configuration`."""

    def __init__(self, configuration: dict[str, Any], answer: OutcomeCallback) -> None:
        self._answer = answer
        self._producer = Producer(configuration)

    @override
    def send(self, op: int, topic: str, partition: int, key: bytes | None, value: bytes, timestamp_ms: int) -> None:
        done = partial(self._done, op)
        while True:
            try:
                self._producer.produce(topic, value, key, partition, done, timestamp=timestamp_ms)
                return
            except BufferError:
                self._poll(0.05)
            except KafkaException as refused:
                self._refused(op, refused.args[0])
                return

    def _refused(self, op: int, error: Any) -> None:
        self._answer(op, FAIL, -1, -1, str(error.name()))

    def _done(self, op: int, error: Any, message: Any) -> None:
        if error is None:
            _, timestamp_ms = message.timestamp()
            offset = message.offset()
            # None if the broker had the record already (DUPLICATE_SEQUENCE_NUMBER): stored, at an unknown offset.
            self._answer(op, OK, -1 if offset is None else offset, timestamp_ms, "")
        else:
            self._failed(op, error)

    def _failed(self, op: int, error: Any) -> None:
        self._answer(op, FAIL if error.code() in NEVER_LEFT else INFO, -1, -1, error.name())

    @override
    def pump(self) -> None:
        self._poll(0)

    def _poll(self, within_s: float) -> None:
        """Let librdkafka call back. Ignore a fatal error that it raises: the records' delivery reports and the next
        call have the same error.
        """
        try:
            self._producer.poll(within_s)
        except KafkaException as raised:
            if not raised.args[0].fatal():
                raise


class _LibrdkafkaProducer(LibrdkafkaSender, ProducerAdapter):
    def __init__(self, config: DriverConfig, answer: OutcomeCallback) -> None:
        super().__init__(settings(config), answer)

    @override
    def finish(self, within_s: float) -> None:
        self._producer.flush(within_s)


class _LibrdkafkaConsumer(ConsumerAdapter):
    def __init__(self, config: DriverConfig) -> None:
        self._errors: deque[tuple[Place, Any]] = deque()
        self._consumer = Consumer(
            {
                "bootstrap.servers": config.bootstrap,
                "group.id": "squall",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": ("read_uncommitted", "read_committed")[config.isolation],
                "fetch.wait.max.ms": 500,
                **RECONNECT,
            }
        )

    @override
    def bounds(self, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        found = {}
        for place in places:
            try:
                low, high = self._consumer.get_watermark_offsets(TopicPartition(*place), BOUNDS_S)
            except KafkaException:
                continue
            found[place] = (low, high)
        return found

    @override
    def assign(self, positions: dict[Place, int]) -> None:
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in positions.items()])

    @override
    def seek(self, place: Place, position: int) -> None:
        self._consumer.seek(TopicPartition(*place, position))

    @override
    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        """Return the records that have arrived. Errors that came with them are raised by later polls, one at a time."""
        if self._errors:
            place, error = self._errors.popleft()
            raise OffsetOutOfRange([place], error.str()) if error.code() in GONE else KafkaException(error)
        found = []
        for message in self._consumer.consume(BATCH, within_s):
            place, error = (message.topic(), message.partition()), message.error()
            if error is None:
                found.append(read_record(place, message))
            else:
                self._errors.append((place, error))
        return found

    @override
    def close(self) -> None:
        self._consumer.close()


producer, consumer = _LibrdkafkaProducer, _LibrdkafkaConsumer
