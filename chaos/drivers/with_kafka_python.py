"""Drives the producer and the consumer of kafka-python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, OffsetOutOfRangeError

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

version = str(kafka.__version__)

ROOM_MS = 5000
"""Limits how long a record waits for metadata and for space in the buffer before it is refused, in ms."""


def settings(config: DriverConfig) -> dict[str, Any]:
    """Return the arguments for KafkaProducer that plain and transactional producers share."""
    return {
        "bootstrap_servers": config.bootstrap.split(","),
        "client_id": config.client_id,
        "acks": "all" if config.acks == -1 else config.acks,
        "enable_idempotence": config.idempotence,
        "max_in_flight_requests_per_connection": config.max_in_flight,
        "linger_ms": config.linger_ms,
        "batch_size": config.batch_size,
        "compression_type": None if config.codec == "none" else config.codec,
        "request_timeout_ms": config.request_timeout_ms,
        # kafka-python refuses a delivery time-out that is shorter than request time-out and linger together.
        "delivery_timeout_ms": max(config.delivery_timeout_ms, config.request_timeout_ms + config.linger_ms),
        "max_block_ms": ROOM_MS,
        "max_request_size": max(config.max_record_bytes + 1024, 1_048_576),
        "reconnect_backoff_max_ms": 1000,
        "allow_auto_create_topics": False,
    }


class KafkaPythonSender(RecordSender):
    """Hands records over to kafka-python's producer, which gets the settings `configuration`."""

    REFUSALS: tuple[type[Exception], ...] = (KafkaTimeoutError, MessageSizeTooLargeError)
    """Lists the exceptions that kafka-python raises for a record that it does not take."""

    def __init__(self, configuration: dict[str, Any], answer: OutcomeCallback) -> None:
        self._answer = answer
        self._producer = KafkaProducer(**configuration)

    @override
    def send(self, op: int, topic: str, partition: int, key: bytes | None, value: bytes, timestamp_ms: int) -> None:
        try:
            future = self._producer.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms)
        except self.REFUSALS as refused:
            self._refused(op, refused)
            return
        future.add_callback(partial(self._sent, op)).add_errback(partial(self._failed, op))

    def _sent(self, op: int, metadata: Any) -> None:
        self._answer(op, OK, max(-1, metadata.offset), max(-1, metadata.timestamp), "")

    def _refused(self, op: int, error: BaseException) -> None:
        self._answer(op, FAIL, -1, -1, type(error).__name__)

    def _failed(self, op: int, error: BaseException) -> None:
        # kafka-python does not report whether it ever sent the record, so the record is in doubt.
        self._answer(op, INFO, -1, -1, type(error).__name__)

    @override
    def pump(self) -> None:
        """Do nothing: a thread of the library calls back by itself."""


class _KafkaPythonProducer(KafkaPythonSender, ProducerAdapter):
    def __init__(self, config: DriverConfig, answer: OutcomeCallback) -> None:
        super().__init__(settings(config), answer)

    @override
    def finish(self, within_s: float) -> None:
        try:
            self._producer.flush(within_s)
        except KafkaError:
            pass  # the harness counts records without an outcome as in doubt


class _KafkaPythonConsumer(ConsumerAdapter):
    def __init__(self, config: DriverConfig) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=config.bootstrap.split(","),
            group_id=None,
            enable_auto_commit=False,
            # A reset by the library would skip records in silence. As an error it is a reset of ours, which the history
            # has.
            auto_offset_reset="none",
            isolation_level=("read_uncommitted", "read_committed")[config.isolation],
            max_poll_records=500,
            reconnect_backoff_max_ms=1000,
            request_timeout_ms=max(config.request_timeout_ms, 1000),
        )

    @override
    def bounds(self, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        wanted = [TopicPartition(*place) for place in places]
        try:
            low, high = self._consumer.beginning_offsets(wanted), self._consumer.end_offsets(wanted)
        except KafkaError:
            return {}
        return {(each.topic, each.partition): (low[each], high[each]) for each in wanted}

    @override
    def assign(self, positions: dict[Place, int]) -> None:
        self._consumer.assign([TopicPartition(*place) for place in positions])
        for place, position in positions.items():
            self.seek(place, position)

    @override
    def seek(self, place: Place, position: int) -> None:
        self._consumer.seek(TopicPartition(*place), position)

    @override
    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        try:
            fetched = self._consumer.poll(timeout_ms=int(within_s * 1000))
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
        self._consumer.close()


producer, consumer = _KafkaPythonProducer, _KafkaPythonConsumer
