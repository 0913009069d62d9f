"""Measures a cluster with confluent-kafka, the same for every cluster."""

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
"""A client that was there before the cluster would else wait out its own back-off, not the cluster's start."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Holds the figures of one timed load: MB/s, thousand records/s, CPU seconds per million records of the brokers, of
    them what the kernel worked for them, and of the client.
    """

    mb_s: float
    k_records_s: float
    broker_cpu_s_per_m: float
    broker_system_s_per_m: float
    client_cpu_s_per_m: float


@dataclass(frozen=True, slots=True)
class AckLatency:
    """Acknowledgement latency at a fixed rate, open loop (from when a record was due), ms; cores the brokers used."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    broker_cores: float


def create_topic(bootstrap: str, name: str, partitions: int = PARTITIONS, *, patience_s: float = 60) -> None:
    """Create an RF 3 topic, asking until the cluster can."""
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
    """librdkafka's settings of every producer that is measured: acks=all, a queue of 32 MB."""
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
    """A producer as it is measured; `more` are settings of librdkafka."""
    return Producer({**settings(bootstrap, idempotent=idempotent), **more})


def first_ack(bootstrap: str, launched_at: float) -> float:
    """Seconds from launch to an RF 3 topic's first acks=all acknowledgement."""
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

    The first record of each partition comes before the clock starts: how long the client takes to get a producer id
    and to find the leaders is no throughput. That every record has arrived is asked of the cluster, not of the client.
    `in_c`: hand over the records by the C library itself.
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
        producer.close()  # one that failed would go on sending, beside the next load
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
    """Committed records of a topic that nothing was deleted from: the sum of its high watermarks."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    ends = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
    found = admin.list_offsets(ends, request_timeout=30)
    return sum(future.result().offset for future in found.values())


def _serve_reports(producer: Producer, over: threading.Event) -> None:
    while not over.is_set():
        producer.poll(0.1)


def latency(cluster: Any, rate: int, seconds: float, size: int = 1024, linger_ms: int = LINGER_MS) -> AckLatency:
    """Open loop at `rate` records/s, idempotent; the first second is not counted.

    Delivery reports are waited for by a thread of their own: it sleeps until there is one, and the sender until the
    next record is due. Both in one thread means to look for reports again and again, with twice the CPU.
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
