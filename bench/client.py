"""What is measured, with confluent-kafka, the same for every cluster."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

PARTITIONS = 6
LINGER_MS = 5
RUN = 100
"""Records that are handed to the client in one call, all of one partition: a call for each takes more of the machine
than what is to be measured."""
QUICK_RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
"""A client that was there before the cluster would else wait out its own back-off, not the cluster's start."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """One timed load: MB/s, thousand records/s, broker and client CPU seconds per million records."""

    mb_s: float
    k_records_s: float
    broker_cpu_s_per_m: float
    client_cpu_s_per_m: float


@dataclass(frozen=True, slots=True)
class Latency:
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


def _producer(bootstrap: str, *, idempotent: bool, **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": idempotent,
            "linger.ms": LINGER_MS,
            "queue.buffering.max.kbytes": 32 << 10,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
            **more,
        }
    )


def first_ack(bootstrap: str, launched_at: float) -> float:
    """Seconds from launch to an RF 3 topic's first acks=all acknowledgement."""
    create_topic(bootstrap, "first", 1)
    acked: list[Any] = []
    quick = {"linger.ms": 0, "topic.metadata.refresh.fast.interval.ms": 20, **QUICK_RECONNECT}
    producer = _producer(bootstrap, idempotent=False, **quick)
    producer.produce("first", b"x", on_delivery=lambda error, _: acked.append(error))
    producer.flush(30)
    if not acked or acked[0] is not None:
        raise RuntimeError(f"the first record was not acknowledged: {acked}")
    return time.monotonic() - launched_at


def throughput(cluster: Any, size: int, *, idempotent: bool, seconds: float) -> Throughput:
    """Produce as fast as the client can for `seconds`, then wait for every acknowledgement.

    The first record of each partition comes before the clock starts: how long the client takes to get a producer id
    and to find the leaders is no throughput. That every record has arrived is asked of the cluster, not of the client.
    """
    topic = f"t{size}-{idempotent}-{time.monotonic_ns()}"
    create_topic(cluster.bootstrap, topic)
    failed: list[Any] = []
    more = {"delivery.report.only.error": True, "on_delivery": lambda error, _: failed.append(error)}
    producer = _producer(cluster.bootstrap, idempotent=idempotent, **more)
    payload = (bytes(range(256)) * (size // 256 + 1))[:size]
    for partition in range(PARTITIONS):
        producer.produce(topic, payload, partition=partition)
    if producer.flush(60):
        raise RuntimeError("the first records were left in the queue")
    gc.disable()
    cpu, own, begin = cluster.cpu_s(), time.process_time(), time.monotonic()
    sent = _produce_until(producer, topic, payload, begin + seconds)
    if producer.flush(120):
        raise RuntimeError("records were left in the queue")
    took = time.monotonic() - begin
    client, brokers = time.process_time() - own, cluster.cpu_s() - cpu
    gc.enable()
    if failed:
        raise RuntimeError(f"{len(failed)} records failed, the first: {failed[0]}")
    there = records_in(cluster.bootstrap, topic)
    if there < sent + PARTITIONS or (idempotent and there != sent + PARTITIONS):
        raise RuntimeError(f"{sent + PARTITIONS} records were acknowledged, {there} are there")
    millions = sent / 1e6
    return Throughput(sent * size / took / 1e6, sent / took / 1e3, brokers / millions, client / millions)


def _produce_until(producer: Producer, topic: str, payload: bytes, end: float) -> int:
    """Keep the client's queue full until `end`. Records handed over."""
    run = [{"value": payload}] * RUN
    sent = partition = 0
    while time.monotonic() < end:
        taken = producer.produce_batch(topic, run, partition=partition)
        sent += taken
        partition = (partition + 1) % PARTITIONS
        producer.poll(0.01 if taken < RUN else 0)
    return sent


def records_in(bootstrap: str, topic: str) -> int:
    """Committed records of a topic that nothing was deleted from: the sum of its high watermarks."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    ends = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
    found = admin.list_offsets(ends, request_timeout=30)
    return sum(future.result().offset for future in found.values())


def latency(cluster: Any, rate: int, seconds: float, size: int = 1024, linger_ms: int = LINGER_MS) -> Latency:
    """Open loop at `rate` records/s, idempotent; the first second is not counted."""
    topic = f"l{rate}-{time.monotonic_ns()}"
    create_topic(cluster.bootstrap, topic)
    producer = _producer(cluster.bootstrap, idempotent=True, **{"linger.ms": linger_ms})
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
    begin = time.monotonic()
    cpu = cluster.cpu_s()
    for n in range(int(rate * seconds)):
        due = begin + n / rate
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
        producer.produce(topic, payload, partition=n % PARTITIONS, on_delivery=report(due) if n >= rate else None)
    producer.flush(60)
    cores = (cluster.cpu_s() - cpu) / (time.monotonic() - begin)
    if failed:
        raise RuntimeError(f"{len(failed)} records failed, the first: {failed[0]}")
    cuts = statistics.quantiles(took, n=1000)
    return Latency(cuts[499] * 1e3, cuts[989] * 1e3, cuts[998] * 1e3, cores)


def failover(cluster: Any) -> tuple[float, int]:
    """`kill -9` of a leader under 500 records/s: (seconds to the next acknowledgement, records failed)."""
    topic = f"f{time.monotonic_ns()}"
    create_topic(cluster.bootstrap, topic, 1)
    acks: list[float] = []
    failed: list[Any] = []
    producer = _producer(cluster.bootstrap, idempotent=True)

    def done(error: Any, _: Any) -> None:
        failed.append(error) if error else acks.append(time.monotonic())

    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(topic, 10)
    leader = metadata.topics[topic].partitions[0].leader
    begin = time.monotonic()
    killed = 0.0
    for n in range(60 * 500):
        due = begin + n / 500
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
        producer.produce(topic, b"x" * 100, partition=0, on_delivery=done)
        if not killed and due > begin + 2:
            killed = time.monotonic()
            cluster.kill(leader)
        after = next((t for t in reversed(acks) if t > killed + 0.05), 0.0) if killed else 0.0
        if after:
            break
    producer.flush(60)
    cluster.launch(leader)
    later = [t for t in acks if t > killed + 0.02]
    gaps = [b - a for a, b in zip([killed, *later], later, strict=False)]
    return max(gaps), len(failed)
