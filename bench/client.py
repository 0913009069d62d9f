"""Measures the first acknowledgement after a launch, throughput and latency with confluent-kafka's producers, in the
same way for every cluster.
"""

from __future__ import annotations

import gc
import statistics
import threading
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench.handover import BulkProducer, ConfluentProducer, LibrdkafkaProducer

PARTITIONS = 6
LINGER_MS = 5
QUICK_RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
"""Shortens librdkafka's reconnect back-off. A client may be created before the cluster is up, and a long back-off would
count as the cluster's start.
"""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Holds the figures of one timed load: MB/s, thousand records/s, and CPU seconds per million records. The brokers
    have two CPU figures, one of all their CPU time and one of their time in the kernel. The client has one.
    """

    mb_s: float
    k_records_s: float
    broker_cpu_s_per_m: float
    broker_system_s_per_m: float
    client_cpu_s_per_m: float


@dataclass(frozen=True, slots=True)
class AckLatency:
    """Holds acknowledgement latencies at a fixed rate, in ms from when each record was due, and the cores that the
    brokers used.
    """

    p50_ms: float
    p99_ms: float
    p999_ms: float
    broker_cores: float


def create_topic(bootstrap: str, name: str, partitions: int = PARTITIONS, *, patience_s: float = 60) -> None:
    """Create a topic with replication factor 3, and retry until the cluster can."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 3000, "log_level": 0, **QUICK_RECONNECT})
    deadline = time.monotonic() + patience_s
    while True:
        try:
            admin.create_topics([NewTopic(name, partitions, 3)], request_timeout=3, operation_timeout=3)[name].result()
            return
        except KafkaException as error:
            if error.args[0].name() == "TOPIC_ALREADY_EXISTS":
                return
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def settings(bootstrap: str, *, idempotent: bool) -> dict[str, Any]:
    """Return the librdkafka settings of every measured producer: acks=all, a queue of 32 MB."""
    return {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "enable.idempotence": idempotent,
        "linger.ms": LINGER_MS,
        "queue.buffering.max.kbytes": 32 << 10,
        "queue.buffering.max.messages": 1_000_000,
        "log_level": 0,
    }


def new_producer(bootstrap: str, *, idempotent: bool, **more: Any) -> Producer:
    """Return a producer with the settings of measurements; `more` are settings of librdkafka."""
    return Producer({**settings(bootstrap, idempotent=idempotent), **more})


def first_ack(bootstrap: str, launched_at: float) -> float:
    """Return the seconds from launch to the first acks=all acknowledgement of a topic with replication factor 3."""
    create_topic(bootstrap, "first", 1)
    acked: list[Any] = []
    quick = {"linger.ms": 0, "topic.metadata.refresh.fast.interval.ms": 20, **QUICK_RECONNECT}
    producer = new_producer(bootstrap, idempotent=False, **quick)
    producer.produce("first", b"x", on_delivery=lambda error, _: acked.append(error))
    producer.flush(30)
    if not acked or acked[0] is not None:
        raise RuntimeError(f"the first record was not acknowledged: {acked}")
    return time.monotonic() - launched_at


def throughput(cluster: Any, size: int, *, idempotent: bool, seconds: float, in_c: bool = False) -> Throughput:
    """Produce as fast as the client can for `seconds`, then wait for every acknowledgement.

    The first record of each partition is sent before the clock starts, because the time to get a producer id and to
    find the leaders must not count. The cluster, not the client, is asked if every record has arrived. `in_c`: whether
    records are handed over by calling librdkafka directly, instead of by confluent-kafka (see `bench.handover`).
    """
    topic = f"t{size}-{idempotent}-{time.monotonic_ns()}"
    create_topic(cluster.bootstrap, topic)
    payload = (bytes(range(256)) * (size // 256 + 1))[:size]
    make = LibrdkafkaProducer if in_c else ConfluentProducer
    producer: BulkProducer = make(settings(cluster.bootstrap, idempotent=idempotent), topic, payload)
    try:
        for partition in range(PARTITIONS):
            producer.hand(partition, once=True)
        if not producer.flush(60):
            raise RuntimeError("the first records were left in the queue")
        gc.disable()
        before = producer.taken
        cpu, system = cluster.cpu_s(), cluster.system_s()
        own, begin = time.process_time(), time.monotonic()
        _produce_until(producer, begin + seconds)
        if not producer.flush(120):
            raise RuntimeError("records were left in the queue")
        took = time.monotonic() - begin
        client, brokers, system = time.process_time() - own, cluster.cpu_s() - cpu, cluster.system_s() - system
    finally:
        gc.enable()
        producer.close()  # a failed producer would continue to send during the next load
    if producer.failed:
        raise RuntimeError(f"{len(producer.failed)} records failed, the first: {producer.failed[0]}")
    there = records_in(cluster.bootstrap, topic)
    if there < producer.taken or (idempotent and there != producer.taken):
        raise RuntimeError(f"{producer.taken} records were acknowledged, {there} are there")
    sent = producer.taken - before
    millions = sent / 1e6
    per_m = (brokers / millions, system / millions, client / millions)
    return Throughput(sent * size / took / 1e6, sent / took / 1e3, *per_m)


def _produce_until(producer: BulkProducer, end: float) -> None:
    """Keep the client's queue full until `end`."""
    partition = 0
    while time.monotonic() < end:
        all_taken = producer.hand(partition)
        partition = (partition + 1) % PARTITIONS
        producer.poll(0 if all_taken else 0.01)


def records_in(bootstrap: str, topic: str) -> int:
    """Return the number of committed records in a topic without deletions: the sum of its high watermarks."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    ends = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
    found = admin.list_offsets(ends, request_timeout=30)
    return sum(future.result().offset for future in found.values())


def _serve_reports(producer: Producer, over: threading.Event) -> None:
    while not over.is_set():
        producer.poll(0.1)


def latency(cluster: Any, rate: int, seconds: float, size: int = 1024, linger_ms: int = LINGER_MS) -> AckLatency:
    """Measure latencies at `rate` records/s, open loop, idempotent. The first second is not counted.

    A separate thread waits for delivery reports and sleeps until there is one; the sender sleeps until the next record
    is due. A single thread would have to poll for reports all the time, with twice the CPU.
    """
    topic = f"l{rate}-{time.monotonic_ns()}"
    create_topic(cluster.bootstrap, topic)
    producer = new_producer(cluster.bootstrap, idempotent=True, **{"linger.ms": linger_ms})
    payload = bytes(size)
    took: list[float] = []
    failed: list[Any] = []

    def report(due: float) -> Any:
        def done(error: Any, _: Any) -> None:
            failed.append(error) if error else took.append(time.monotonic() - due)

        return done

    for partition in range(PARTITIONS):
        producer.produce(topic, payload, partition=partition)
    producer.flush(30)
    over = threading.Event()
    reports = threading.Thread(target=_serve_reports, args=(producer, over))
    gc.disable()
    reports.start()
    try:
        begin = time.monotonic()
        cpu = cluster.cpu_s()
        for n in range(int(rate * seconds)):
            due = begin + n / rate
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
            producer.produce(topic, payload, partition=n % PARTITIONS, on_delivery=report(due) if n >= rate else None)
        left_over = producer.flush(60)
        cores = (cluster.cpu_s() - cpu) / (time.monotonic() - begin)
    finally:
        over.set()
        reports.join()
        gc.enable()
    if left_over:
        raise RuntimeError(f"{left_over} records were left in the queue")
    if failed:
        raise RuntimeError(f"{len(failed)} records failed, the first: {failed[0]}")
    cuts = statistics.quantiles(took, n=1000)
    return AckLatency(cuts[499] * 1e3, cuts[989] * 1e3, cuts[998] * 1e3, cores)
