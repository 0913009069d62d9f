"""Consumers of confluent-kafka, kafka-python and aiokafka on our brokers, as members of the same group."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.patience import scaled, scaled_ms

PARTITIONS, RECORDS = 6, 300
DEADLINE_S = scaled(90.0)
SESSION_MS = scaled_ms(6000)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients themselves


class Reading:
    """Collects what the members of a group read. Each member runs in a thread of its own until `enough` is set."""

    def __init__(self) -> None:
        self.found: dict[str, list[bytes]] = {}
        self.enough = threading.Event()
        self.failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, name: str, member: Callable[[list[bytes], threading.Event], None]) -> None:
        self.found[name] = []

        def run() -> None:
            try:
                member(self.found[name], self.enough)
            except BaseException as failure:
                self.failures.append(failure)

        self._threads.append(threading.Thread(target=run, name=name))
        self._threads[-1].start()

    def values(self) -> set[bytes]:
        return {value for found in self.found.values() for value in list(found)}

    def wait_for(self, wanted: set[bytes]) -> None:
        """Wait until each of these records was read by some member."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.values() >= wanted:
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, {name: len(found) for name, found in self.found.items()}
            time.sleep(0.05)

    def stop(self) -> None:
        self.enough.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), thread.name


@pytest.fixture
def reading() -> Iterator[Reading]:
    made = Reading()
    yield made
    made.stop()


def make_topic(cluster: Any, topic: str, partitions: int = PARTITIONS) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(20)


def produce(cluster: Any, topic: str, first: int, count: int, partitions: int = PARTITIONS) -> set[bytes]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    values = {b"v%d" % n for n in range(first, first + count)}
    for n in range(first, first + count):
        producer.produce(topic, b"v%d" % n, partition=n % partitions)
    assert producer.flush(DEADLINE_S) == 0
    return values


def confluent(cluster: Any, topic: str, group: str, **more: Any) -> Callable[[list[bytes], threading.Event], None]:
    def member(found: list[bytes], enough: threading.Event) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
             "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500, "enable.auto.commit": False,
             "partition.assignment.strategy": "range", **more}
        )  # fmt: skip
        consumer.subscribe([topic])
        while not enough.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())
                consumer.commit(message, asynchronous=True)
        consumer.close()

    return member


def kafka_python(cluster: Any, topic: str, group: str, **more: Any) -> Callable[[list[bytes], threading.Event], None]:
    def member(found: list[bytes], enough: threading.Event) -> None:
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        consumer = KafkaConsumer(
            topic, bootstrap_servers=cluster.bootstrap, group_id=group, auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=500, auto_commit_interval_ms=300,
            partition_assignment_strategy=[RangePartitionAssignor], **more,
        )  # fmt: skip
        while not enough.is_set():
            for records in consumer.poll(200).values():
                found += [record.value for record in records]
        consumer.close()

    return member


def aiokafka(cluster: Any, topic: str, group: str, **more: Any) -> Callable[[list[bytes], threading.Event], None]:
    def member(found: list[bytes], enough: threading.Event) -> None:
        async def read() -> None:
            from aiokafka import AIOKafkaConsumer
            from aiokafka.coordinator.assignors.range import RangePartitionAssignor

            consumer = AIOKafkaConsumer(
                topic, bootstrap_servers=cluster.bootstrap, group_id=group, auto_offset_reset="earliest",
                session_timeout_ms=SESSION_MS, heartbeat_interval_ms=500, auto_commit_interval_ms=300,
                partition_assignment_strategy=[RangePartitionAssignor], **more,
            )  # fmt: skip
            await consumer.start()
            try:
                while not enough.is_set():
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        found.extend(record.value for record in records)
            finally:
                await consumer.stop()

        asyncio.run(read())

    return member


def coordinator_of(cluster: Any, group: str) -> int:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(20)
    return int(described.coordinator.id)


def test_members_of_three_libraries_read_everything_while_their_coordinator_is_killed(
    cluster: Any, reading: Reading
) -> None:
    topic, group = "shared", "three-libraries"
    make_topic(cluster, topic)
    wanted = produce(cluster, topic, 0, RECORDS)
    for name, member in (("confluent", confluent), ("kafka-python", kafka_python), ("aiokafka", aiokafka)):
        reading.start(name, member(cluster, topic, group))
    reading.wait_for(wanted)
    # All three share the partitions, for they are in one generation.
    more = RECORDS
    while not all(reading.found.values()):
        wanted |= produce(cluster, topic, more, PARTITIONS)
        more += PARTITIONS
        reading.wait_for(wanted)
    coordinator = coordinator_of(cluster, group)
    cluster.kill(coordinator)
    wanted |= produce(cluster, topic, more, RECORDS)
    reading.wait_for(wanted)
    cluster.restart(coordinator)
    wanted |= produce(cluster, topic, more + RECORDS, RECORDS)
    reading.wait_for(wanted)


def consumer_protocol(
    cluster: Any, topic: str, group: str, **more: Any
) -> Callable[[list[bytes], threading.Event], None]:
    """Return a function that runs a member of a consumer group (KIP-848): the broker decides on session timeout and
    assignment.
    """

    def member(found: list[bytes], enough: threading.Event) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
             "group.protocol": "consumer", "enable.auto.commit": False, **more}
        )  # fmt: skip
        consumer.subscribe([topic])
        while not enough.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())
                consumer.commit(message, asynchronous=True)
        consumer.close()

    return member


def test_members_of_a_consumer_group_read_everything_while_their_coordinator_is_killed(
    cluster: Any, reading: Reading
) -> None:
    from confluent_kafka import ConsumerGroupType
    from confluent_kafka.admin import AdminClient

    topic, group = "next-generation", "next-generation"
    make_topic(cluster, topic)
    wanted = produce(cluster, topic, 0, RECORDS)
    reading.start("one", consumer_protocol(cluster, topic, group))
    reading.start("static", consumer_protocol(cluster, topic, group, **{"group.instance.id": "static"}))
    reading.start("pattern", consumer_protocol(cluster, "^next-gen.*", group, **{"group.remote.assignor": "range"}))
    more = RECORDS
    reading.wait_for(wanted)
    while not all(reading.found.values()):
        wanted |= produce(cluster, topic, more, PARTITIONS)
        more += PARTITIONS
        reading.wait_for(wanted)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(20)
    assert (described.type, len(described.members)) == (ConsumerGroupType.CONSUMER, 3)
    coordinator = int(described.coordinator.id)
    cluster.kill(coordinator)
    wanted |= produce(cluster, topic, more, RECORDS)
    reading.wait_for(wanted)
    cluster.restart(coordinator)
    wanted |= produce(cluster, topic, more + RECORDS, RECORDS)
    reading.wait_for(wanted)


def test_cooperative_members_share_the_partitions(cluster: Any, reading: Reading) -> None:
    topic, group = "shared-cooperatively", "cooperative"
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    make_topic(cluster, topic)
    wanted = produce(cluster, topic, 0, 60)
    reading.start("one", confluent(cluster, topic, group, **cooperative))
    reading.wait_for(wanted)
    reading.start("two", confluent(cluster, topic, group, **cooperative))
    more = 60
    while not reading.found["two"]:
        wanted |= produce(cluster, topic, more, PARTITIONS)
        more += PARTITIONS
        reading.wait_for(wanted)


def test_a_static_member_that_is_back_causes_no_rebalance_and_goes_on_where_it_was(cluster: Any) -> None:
    from confluent_kafka import Consumer

    topic, group = "static", "static-members"
    make_topic(cluster, topic)
    wanted = produce(cluster, topic, 0, 60)
    moves = {"stays": 0, "back": 0}

    def made(name: str) -> Consumer:
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
             "group.instance.id": name, "session.timeout.ms": 30_000, "heartbeat.interval.ms": 300}
        )  # fmt: skip

        def assigned(consumer: Any, partitions: Any) -> None:
            moves[name] += 1

        consumer.subscribe([topic], on_assign=assigned)
        return consumer

    found: list[bytes] = []

    def read(*consumers: Consumer, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not until():
            assert time.monotonic() < deadline, (moves, len(found))
            for consumer in consumers:
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    found.append(message.value())

    stays, back = made("stays"), made("back")
    read(stays, back, until=lambda: set(found) == wanted and len(stays.assignment()) == len(back.assignment()) == 3)
    back.close()  # a static member does not leave
    before = dict(moves)
    owned = stays.assignment()
    again = made("back")
    more = produce(cluster, topic, 60, 60)
    read(stays, again, until=lambda: set(found) >= wanted | more)
    assert moves == {"stays": before["stays"], "back": before["back"] + 1}
    assert stays.assignment() == owned
    assert len(found) == 120, "and nothing is read twice"
    stays.close()
    again.close()


def committed_later(cluster: Any, group: str, where: Any) -> Any:
    """Return a group's committed offset as a new client gets it. kafka-python gives up if it first asks a dead broker.
    """
    from kafka import KafkaConsumer
    from kafka.errors import KafkaConnectionError

    deadline = time.monotonic() + DEADLINE_S
    while True:
        later = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=group, enable_auto_commit=False)
        try:
            return later.committed(where, metadata=True)
        except KafkaConnectionError:
            assert time.monotonic() < deadline, "no broker reported it"
        finally:
            later.close()


def test_offsets_that_nobodys_member_commits_are_kept_and_deleted(cluster: Any) -> None:
    from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    topic, group = "simple", "no-members"
    make_topic(cluster, topic)
    where = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign([where])
    consumer.commit({where: OffsetAndMetadata(17, "here", -1)})
    consumer.close()
    cluster.kill(coordinator := coordinator_of(cluster, group))
    try:
        found = committed_later(cluster, group, where)
    finally:
        cluster.restart(coordinator)
    assert (found.offset, found.metadata) == (17, "here")
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    assert group in [listed["group_id"] for listed in admin.list_groups()]
    admin.delete_groups([group])
    assert group not in [listed["group_id"] for listed in admin.list_groups()]
    admin.close()


@pytest.mark.parametrize("library", ["confluent", "kafka-python"])
def test_offsets_count_with_their_transaction_and_not_without(cluster: Any, library: str) -> None:
    """Consume-transform-produce: inputs of an aborted transaction are consumed again."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

    source, sink, group = f"source-{library}", f"sink-{library}", f"eos-{library}"
    make_topic(cluster, source)
    make_topic(cluster, sink)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "isolation.level": "read_committed"}
    )  # fmt: skip
    where = TopicPartition(source, 0)

    def committed() -> int:
        """Return the committed offset. When the coordinator has moved, librdkafka finds the new one, but the caller
        must retry.
        """
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                [found] = consumer.committed([where], DEADLINE_S)
                return int(found.offset)
            except KafkaException as failure:
                moved = failure.args[0].code() in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
                if not moved or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    for commits, offset in ((True, 5), (False, 9), (True, 12)):
        before = committed()
        if library == "confluent":
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": group})
            producer.init_transactions(DEADLINE_S)
            producer.begin_transaction()
            producer.produce(sink, b"out", partition=0)
            at = [TopicPartition(source, 0, offset)]
            producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), DEADLINE_S)
            (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_S)
        else:
            in_a_transaction_of_kafka_python(cluster, source, sink, group, offset, commits)
        assert committed() == (offset if commits else before)
    consumer.close()


def in_a_transaction_of_kafka_python(
    cluster: Any, source: str, sink: str, group: str, offset: int, commits: bool
) -> None:
    from kafka import KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=group)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(sink, b"out", partition=0).get(DEADLINE_S)
    producer.send_offsets_to_transaction({TopicPartition(source, 0): OffsetAndMetadata(offset, "", -1)}, group)
    if commits:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    producer.close()
