"""Transactions a second, with confluent-kafka, the same for every cluster."""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.client import PARTITIONS, create_topic

RECORDS, INTO, SIZE = 10, 2, 100
"""Records of each transaction, the partitions that they go to by turns, and the bytes of each."""
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class TransactionRate:
    """One load: transactions a second of all producers together; from begin to committed, ms; the brokers' CPU, ms."""

    per_s: float
    p50_ms: float
    p99_ms: float
    broker_cpu_ms: float


@dataclass(slots=True)
class _Tally:
    """What the producers' threads did."""

    took: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    begun: int = 0
    """Transactions committed, those before the clock started among them."""


def transactions(cluster: Any, producers: int, seconds: float) -> TransactionRate:
    """Each producer commits one transaction after the other for `seconds`. Its first one comes before the clock starts.

    That all are there is asked of the cluster: its last stable offsets must count every record and every marker.
    Raises RuntimeError where a transaction fails or they do not.
    """
    topic = f"x{producers}-{time.monotonic_ns()}"
    create_topic(cluster.bootstrap, topic)
    tally, start = _Tally(), threading.Barrier(producers + 1)
    ends = [0.0]
    threads = [
        threading.Thread(target=_produce, args=(cluster.bootstrap, topic, number, tally, start, ends))
        for number in range(producers)
    ]
    for thread in threads:
        thread.start()
    start.wait()
    cpu, begin = cluster.cpu_s(), time.monotonic()
    ends[0] = begin + seconds
    start.wait()
    for thread in threads:
        thread.join()
    took, cpu = time.monotonic() - begin, cluster.cpu_s() - cpu
    if tally.failed:
        raise RuntimeError(f"{len(tally.failed)} producers failed, the first: {tally.failed[0]}")
    _see_all(cluster.bootstrap, topic, tally.begun * (RECORDS + INTO))
    cuts = statistics.quantiles(tally.took, n=100)
    done = len(tally.took)
    return TransactionRate(done / took, cuts[49] * 1e3, cuts[98] * 1e3, cpu / done * 1e3)


def _produce(
    bootstrap: str, topic: str, number: int, tally: _Tally, start: threading.Barrier, ends: list[float]
) -> None:
    """One producer's thread. What fails in it is kept in the tally: the others go on."""
    try:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{number}", "linger.ms": 0, "log_level": 0}
        )
        producer.init_transactions(PATIENCE_S)
        _transact(producer, topic, number)
        tally.begun += 1
    except KafkaException as error:
        tally.failed.append(str(error))
    start.wait()
    start.wait()
    while not tally.failed and (began := time.monotonic()) < ends[0]:
        try:
            _transact(producer, topic, number)
        except KafkaException as error:
            tally.failed.append(str(error))
            return
        tally.took.append(time.monotonic() - began)
        tally.begun += 1


def _transact(producer: Producer, topic: str, number: int) -> None:
    """Begin, send, commit."""
    producer.begin_transaction()
    for record in range(RECORDS):
        producer.produce(topic, bytes(SIZE), partition=(number + record % INTO) % PARTITIONS)
    producer.commit_transaction(PATIENCE_S)


def _see_all(bootstrap: str, topic: str, wanted: int) -> None:
    """Until the last stable offsets add up to this. RuntimeError where they do not: markers may come a little later."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(PARTITIONS)}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=PATIENCE_S)
        found = sum(answer.result().offset for answer in answers.values())
        if found == wanted:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"records and markers of all transactions are {wanted}, and {found} are committed")
        time.sleep(0.1)
