"""Hands records to librdkafka in two ways: by confluent-kafka's `produce_batch`, and by the same call of the C library.

In both ways the librdkafka of confluent-kafka does all the measured work, with the same settings. But `produce_batch`
looks for six keys in a dictionary for each record. With 100-byte records this takes as much CPU as librdkafka itself,
and more than Squall's brokers. If ctypes calls the library with an array that is filled once, only the library shares
the machine with the cluster.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from ctypes.util import find_library
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import Producer

from squall.broker.overriding import override
from squall.chaos.errors import PreconditionError

RUN = 1000
"""Counts the records, all of one partition, that are handed to the client in one call: a call per record would take
more CPU than the measured work.
"""
_PRODUCER, _COPY = 0, 2
"""Are two constants of librdkafka: RD_KAFKA_PRODUCER creates a producer instead of a consumer, and RD_KAFKA_MSG_F_COPY
copies payloads into the queue.
"""


class BulkProducer(Protocol):
    """Produces equal records to one topic, many per call."""

    failed: list[Any]
    """Lists the errors of the records that were not delivered."""

    def hand(self, partition: int, *, once: bool = False) -> bool:
        """Put 1000 records (`RUN`) into librdkafka's queue, or one if `once`, all for this partition. Returns False if
        the queue did not take them all.
        """

    def poll(self, seconds: float) -> None:
        """Serve delivery reports, and wait up to `seconds` for one."""

    def flush(self, seconds: float) -> bool:
        """Wait until all records that were handed over are reported. Returns False if they are not after `seconds`."""

    def close(self) -> None:
        """Release the client, so that it does not send during a later measurement."""

    taken: int
    """Counts the records that librdkafka's queue has taken so far."""


class ConfluentProducer(BulkProducer):
    """Produces by confluent-kafka."""

    def __init__(self, settings: dict[str, Any], topic: str, payload: bytes) -> None:
        self.failed: list[Any] = []
        self.taken = 0
        on_delivery = {"on_delivery": lambda error, _: self.failed.append(error)}
        self._producer = Producer({**settings, "delivery.report.only.error": True, **on_delivery})
        self._topic = topic
        self._run = [{"value": payload}] * RUN
        room = settings["queue.buffering.max.kbytes"] * 1024 // len(payload)
        self._most = min(room, settings["queue.buffering.max.messages"]) - RUN

    @override
    def hand(self, partition: int, *, once: bool = False) -> bool:
        """Put the records into librdkafka's queue. The length of the queue is checked first, because each record that a
        full queue refuses would cost an exception.
        """
        if len(self._producer) > self._most:
            return False
        run = self._run[:1] if once else self._run
        taken = self._producer.produce_batch(self._topic, run, partition=partition)
        self.taken += taken
        return bool(taken == len(run))

    @override
    def poll(self, seconds: float) -> None:
        self._producer.poll(seconds)

    @override
    def flush(self, seconds: float) -> bool:
        return not self._producer.flush(seconds)

    @override
    def close(self) -> None:
        """Do nothing, because the producer ends with the object."""


class _RdKafkaMessage(ctypes.Structure):
    """Mirrors rd_kafka_message_t, the C struct in which librdkafka takes and reports a message: its error, topic,
    partition, payload, key and offset.
    """

    _fields_ = (
        ("err", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("length", c_size_t),
        ("key", c_void_p),
        ("key_length", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


_Report = ctypes.CFUNCTYPE(None, c_void_p, ctypes.POINTER(_RdKafkaMessage), c_void_p)


def _library() -> ctypes.CDLL:
    """Load confluent-kafka's own librdkafka, else the system's. Raises PreconditionError if there is none."""
    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = next((str(path) for path in sorted(beside.glob("librdkafka*.so*"))), None) or find_library("rdkafka")
    if found is None:
        raise PreconditionError(f"no librdkafka in {beside}, nor in the system: install confluent-kafka from a wheel")
    library = ctypes.CDLL(found)
    for name, result, arguments in (
        ("conf_new", c_void_p, ()),
        ("conf_set", c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
        ("conf_set_dr_msg_cb", None, (c_void_p, _Report)),
        ("new", c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
        ("topic_new", c_void_p, (c_void_p, c_char_p, c_void_p)),
        ("produce_batch", c_int, (c_void_p, c_int32, c_int, c_void_p, c_int)),
        ("poll", c_int, (c_void_p, c_int)),
        ("flush", c_int, (c_void_p, c_int)),
        ("topic_destroy", None, (c_void_p,)),
        ("destroy", None, (c_void_p,)),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class LibrdkafkaProducer(BulkProducer):
    """Produces by calling librdkafka itself with ctypes."""

    def __init__(self, settings: dict[str, Any], topic: str, payload: bytes) -> None:
        self.failed: list[Any] = []
        self.taken = 0
        lib = self._lib = _library()
        why = ctypes.create_string_buffer(512)
        conf = lib.rd_kafka_conf_new()
        for key, value in {**settings, "delivery.report.only.error": True}.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if lib.rd_kafka_conf_set(conf, key.encode(), text.encode(), why, len(why)):
                raise ValueError(why.value.decode())
        self._on_report = _Report(lambda _, message, __: self.failed.append(f"error {message.contents.err}"))
        lib.rd_kafka_conf_set_dr_msg_cb(conf, self._on_report)
        self._producer = lib.rd_kafka_new(_PRODUCER, conf, why, len(why))
        if not self._producer:
            raise ValueError(why.value.decode())
        self._topic = lib.rd_kafka_topic_new(self._producer, topic.encode(), None)
        self._payload = ctypes.create_string_buffer(payload, len(payload))
        self._run = (_RdKafkaMessage * RUN)()
        for message in self._run:
            message.payload, message.length = ctypes.addressof(self._payload), len(payload)

    @override
    def hand(self, partition: int, *, once: bool = False) -> bool:
        asked = 1 if once else RUN
        taken = self._lib.rd_kafka_produce_batch(self._topic, partition, _COPY, self._run, asked)
        self.taken += taken
        return bool(taken == asked)

    @override
    def poll(self, seconds: float) -> None:
        self._lib.rd_kafka_poll(self._producer, int(seconds * 1000))

    @override
    def flush(self, seconds: float) -> bool:
        return not self._lib.rd_kafka_flush(self._producer, int(seconds * 1000))

    @override
    def close(self) -> None:
        self._lib.rd_kafka_topic_destroy(self._topic)
        self._lib.rd_kafka_destroy(self._producer)
