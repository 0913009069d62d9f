"""What is measured, with confluent-kafka, the same for every cluster."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 6
LINGER_MS = 5
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
    """Produce as fast as the client can for `seconds`, then wait for every acknowledgement."""
    topic = f"t{size}-{idempotent}-{time.monotonic_ns()}"
    create_topic(cluster.bootstrap, topic)
    failed: list[Any] = []
    more = {"delivery.report.only.error": True, "on_delivery": lambda error, _: failed.append(error)}
    producer = _producer(cluster.bootstrap, idempotent=idempotent, **more)
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    gc.disable()
    cpu, own, begin = cluster.cpu_s(), time.process_time(), time.monotonic()
    end, sent = begin + seconds, 0
    produce = producer.produce
    while time.monotonic() < end:
        for _ in range(500):
            try:
                produce(topic, payload, partition=sent % PARTITIONS)
                sent += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("records were left in the queue")
    took = time.monotonic() - begin
    gc.enable()
    if failed:
        raise RuntimeError(f"{len(failed)} records failed, the first: {failed[0]}")
    millions = sent / 1e6
    return Throughput(
        sent * size / took / 1e6,
        sent / took / 1e3,
        (cluster.cpu_s() - cpu) / millions,
        (time.process_time() - own) / millions,
    )


def latency(cluster: Any, rate: int, seconds: float, size: int = 1024) -> Latency:
    """Open loop at `rate` records/s, idempotent; the first second is not counted."""
    topic = f"l{rate}-{time.monotonic_ns()}"
    create_topic(cluster.bootstrap, topic)
    producer = _producer(cluster.bootstrap, idempotent=True)
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
