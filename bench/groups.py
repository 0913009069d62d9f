"""Measures rebalances, commits and reads of consumer groups with confluent-kafka, in the same way for every cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.client import PARTITIONS, create_topic, new_producer, records_in, settings
from bench.handover import RUN, LibrdkafkaProducer
from bench.rates import OperationRate, WorkerThreads, rate_of

PATIENCE_S = 120.0
POLL_S = 0.002
"""Gives the pause after a round of polls that returned nothing."""
RECORD_BYTES, READ_MB = 1024, 300


@dataclass(frozen=True, slots=True)
class RebalanceDurations:
    """Holds the seconds from the first `subscribe` of a new group until each member has a record, and from the
    `subscribe` of an additional member until that member has one.
    """

    all_s: float
    more_s: float


@dataclass(frozen=True, slots=True)
class ReadRate:
    """Holds the MB/s that a group's members read together, and the brokers' and the client's CPU seconds per million
    records.
    """

    mb_s: float
    broker_cpu_s_per_m: float
    client_cpu_s_per_m: float


def rebalance(cluster: Any, members: int, protocol: str) -> RebalanceDurations:
    """Measure two rebalances of a new group: `members` consumers join at once, and then one more joins. `protocol`:
    classic or consumer (KIP-848).

    No member commits and each partition has a record, so each assigned member has something to read. One thread polls
    all members. At the end each partition must have exactly one owner. Raises RuntimeError if a step takes longer than
    `PATIENCE_S`.
    """
    topic = f"g{members}-{protocol}-{time.monotonic_ns()}"
    partitions = members + 1
    create_topic(cluster.bootstrap, topic, partitions)
    producer = new_producer(cluster.bootstrap, idempotent=False)
    for partition in range(partitions):
        producer.produce(topic, b"x", partition=partition)
    if producer.flush(60):
        raise RuntimeError("the first records were left in the queue")
    with _members(cluster.bootstrap, topic, members + 1, protocol) as consumers:
        began = time.monotonic()
        for consumer in consumers[:members]:
            consumer.subscribe([topic])
        _until_each_has_read(consumers[:members], consumers[:members])
        all_s = time.monotonic() - began
        began = time.monotonic()
        consumers[-1].subscribe([topic])
        _until_each_has_read(consumers[-1:], consumers)
        more_s = time.monotonic() - began
        _until_each_has_one(consumers, partitions)
    return RebalanceDurations(all_s, more_s)


@contextmanager
def _members(bootstrap: str, group: str, count: int, protocol: str) -> Iterator[list[Consumer]]:
    """Yield consumers of one group that have not subscribed yet, and close them at the end."""
    consumers = [
        Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        for _ in range(count)
    ]
    try:
        yield consumers
    finally:
        # In parallel, because each close waits for the coordinator's answer to LeaveGroup.
        closing = [threading.Thread(target=consumer.close) for consumer in consumers]
        for each in closing:
            each.start()
        for each in closing:
            each.join()


def _until_each_has_read(waited_for: Sequence[Consumer], polled: Sequence[Consumer]) -> None:
    """Poll `polled` until each of `waited_for` has got a record."""
    waiting, deadline = set(map(id, waited_for)), time.monotonic() + PATIENCE_S
    while waiting:
        got = [consumer for consumer in polled if _record(consumer)]
        waiting.difference_update(map(id, got))
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(waiting)} of {len(waited_for)} members got no record in {PATIENCE_S:g} s")
        if not got:
            time.sleep(POLL_S)


def _record(consumer: Consumer) -> bool:
    """Poll once, and return whether that returned a record. Raises RuntimeError for a fatal error; other errors are
    ignored.
    """
    message = consumer.poll(0)
    if message is None:
        return False
    error = message.error()
    if error is not None and not error.retriable() and error.fatal():
        raise RuntimeError(str(error))
    return error is None


def _until_each_has_one(consumers: Sequence[Consumer], partitions: int) -> None:
    """Poll all consumers until each partition is assigned to exactly one of them, in the consumers' own view. Raises
    RuntimeError after `PATIENCE_S`.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        owned = sorted(place.partition for consumer in consumers for place in consumer.assignment())
        if owned == list(range(partitions)):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the members own {owned}: not each of {partitions} partitions once")
        for consumer in consumers:
            consumer.poll(0)
        time.sleep(POLL_S)


def commits(cluster: Any, committers: int, seconds: float) -> OperationRate:
    """Measure how many offsets per second `committers` consumers commit, each in a group of its own and one offset
    after another, for `seconds`.

    Each commits once before the clock starts. At the end, each group's coordinator must return the offset of the final
    commit. Raises RuntimeError if it does not, or if a commit fails.
    """
    topic = f"c{committers}-{time.monotonic_ns()}"
    create_topic(cluster.bootstrap, topic)
    return rate_of(cluster, committers, seconds, partial(_commit, cluster.bootstrap, topic), "committers")


def _commit(bootstrap: str, topic: str, number: int, crew: WorkerThreads) -> None:
    """Commit one offset after another in the thread of committer `number`, until the time is over. Then fetch the
    committed offset, which must be that of the final commit. Failures are appended to `crew.failed`.
    """
    with _members(bootstrap, f"{topic}-{number}", 1, "classic") as (consumer,):
        place, offset = TopicPartition(topic, number % PARTITIONS), 0
        try:
            consumer.commit(offsets=[_at(place, offset)], asynchronous=False)
        except KafkaException as error:
            crew.failed.append(str(error))
        crew.begin()
        try:
            while crew.has_time_left:
                offset += 1
                with crew.turn():
                    consumer.commit(offsets=[_at(place, offset)], asynchronous=False)
            told = consumer.committed([place], 30)[0].offset
        except KafkaException as error:
            crew.failed.append(str(error))
        else:
            if told != offset:
                crew.failed.append(f"{offset} was committed last, and the coordinator tells {told}")


def _at(place: TopicPartition, offset: int) -> TopicPartition:
    return TopicPartition(place.topic, place.partition, offset)


def reading(cluster: Any, members: int) -> ReadRate:
    """Measure how fast `members` of one group, each in a thread, read a topic that was filled before. The clock starts
    once every member has got records.

    Raises RuntimeError if a read fails, or if the members get more or fewer records than the topic has: membership does
    not change, so no record is read twice.
    """
    topic = f"r{members}-{time.monotonic_ns()}"
    create_topic(cluster.bootstrap, topic)
    there = _fill(cluster.bootstrap, topic)
    got, begun, lock = [0] * members, threading.Barrier(members + 1), threading.Lock()
    failed: list[str] = []

    def read(number: int, consumer: Consumer) -> None:
        def take() -> int:
            messages = consumer.consume(RUN, 0.1)
            with lock:
                failed.extend(str(each.error()) for each in messages if each.error() is not None)
                got[number] += len(messages)
                return sum(got)

        deadline = time.monotonic() + PATIENCE_S
        while not got[number] and time.monotonic() < deadline:
            take()
        begun.wait()
        begun.wait()
        while not failed and time.monotonic() < deadline and take() < there:
            pass

    with _members(cluster.bootstrap, topic, members, "classic") as consumers:
        for consumer in consumers:
            consumer.subscribe([topic])
        threads = [threading.Thread(target=read, args=each) for each in enumerate(consumers)]
        for thread in threads:
            thread.start()
        begun.wait()
        before, cpu, own, begin = sum(got), cluster.cpu_s(), time.process_time(), time.monotonic()
        begun.wait()
        for thread in threads:
            thread.join()
        took = time.monotonic() - begin
        client, brokers = time.process_time() - own, cluster.cpu_s() - cpu
    if failed or sum(got) != there:
        raise RuntimeError(failed[0] if failed else f"{there} records are there, the members got {sum(got)}")
    millions = (there - before) / 1e6
    return ReadRate(millions * RECORD_BYTES / took, brokers / millions, client / millions)


def _fill(bootstrap: str, topic: str) -> int:
    """Produce `READ_MB` of records, evenly to all partitions, and return their number."""
    producer = LibrdkafkaProducer(
        settings(bootstrap, idempotent=True), topic, bytes(range(256)) * (RECORD_BYTES // 256)
    )
    try:
        partition, deadline = 0, time.monotonic() + PATIENCE_S
        while producer.taken * RECORD_BYTES < READ_MB * 1e6 and time.monotonic() < deadline:
            all_taken = producer.hand(partition)
            partition = (partition + 1) % PARTITIONS
            producer.poll(0 if all_taken else 0.01)
        if not producer.flush(PATIENCE_S) or producer.failed:
            raise RuntimeError(f"the topic to read could not be filled: {producer.failed[:1]}")
    finally:
        producer.close()
    there = records_in(bootstrap, topic)
    if there != producer.taken:
        raise RuntimeError(f"{producer.taken} records were acknowledged, {there} are there")
    return there
