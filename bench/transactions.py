"""Measures transactions per second with confluent-kafka, in the same way for every cluster."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.client import PARTITIONS, create_topic
from bench.rates import OperationRate, WorkerThreads, rate_of

RECORDS, PARTITIONS_PER_TXN, SIZE = 10, 2, 100
"""Give the records of each transaction, the partitions that they go to in turn, and the bytes of each record."""
PATIENCE_S = 30.0


def transactions(cluster: Any, producers: int, seconds: float) -> OperationRate:
    """Measure how many transactions per second `producers` commit, each in a thread of its own and one after the other,
    for `seconds`. Each producer commits one transaction before the clock starts.

    At the end the sum of the partitions' last stable offsets must be the number of all records and markers. Raises
    RuntimeError if it is not, or if a transaction fails.
    """
    topic = f"x{producers}-{time.monotonic_ns()}"
    create_topic(cluster.bootstrap, topic)
    committed = [0] * producers
    work = partial(_produce, cluster.bootstrap, topic, committed)
    found = rate_of(cluster, producers, seconds, work, "producers")
    _see_all(cluster.bootstrap, topic, sum(committed) * (RECORDS + PARTITIONS_PER_TXN))
    return found


def _produce(bootstrap: str, topic: str, committed: list[int], number: int, crew: WorkerThreads) -> None:
    """Commit transactions in one producer's thread. `committed` counts the transactions of each producer, including
    those before the clock started.
    """
    try:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{number}", "linger.ms": 0, "log_level": 0}
        )
        producer.init_transactions(PATIENCE_S)
        _transact(producer, topic, number)
        committed[number] += 1
    except KafkaException as error:
        crew.failed.append(str(error))
    crew.begin()
    try:
        while crew.has_time_left:
            with crew.turn():
                _transact(producer, topic, number)
            committed[number] += 1
    except KafkaException as error:
        crew.failed.append(str(error))


def _transact(producer: Producer, topic: str, number: int) -> None:
    """Begin a transaction, produce its records and commit it."""
    producer.begin_transaction()
    for record in range(RECORDS):
        producer.produce(topic, bytes(SIZE), partition=(number + record % PARTITIONS_PER_TXN) % PARTITIONS)
    producer.commit_transaction(PATIENCE_S)


def _see_all(bootstrap: str, topic: str, wanted: int) -> None:
    """Wait until the partitions' last stable offsets add up to `wanted`. The last markers may be written a little after
    a commit's acknowledgement. Raises RuntimeError after `PATIENCE_S`.
    """
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
