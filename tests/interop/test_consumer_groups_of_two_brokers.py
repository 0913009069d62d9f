"""Apache Kafka continues our consumer groups on our data directory, and our broker Kafka's. Kafka's tools describe
ours.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.clusters import Kafka, Squall
from squall.broker.coordinators.partitions import partition_of
from squall.chaos.toolchain.kafka import kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.interop.test_one_directory_two_brokers import ALONE, TOPIC, WITHIN_S, Swapped, kafka_tool
from tests.support.lacks import without

pytestmark = pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH))

LOGS, GROUP = 3, "moves"
SETTINGS = {**ALONE, "offsets.topic.num.partitions": str(LOGS), "group.initial.rebalance.delay.ms": "0"}
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class SwappedGroups(Swapped):
    """A data directory, the broker that uses it now, and a member that keeps running while brokers are exchanged."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.kafka = Squall(folder, SETTINGS, (1,)), Kafka(folder, SETTINGS, (1,))
        self.kafka.ports, self.kafka.internal = self.ours.ports, self.ours.internal
        self.now = self.ours
        self.ours.start()

    def member(self, **more: str) -> Any:
        from confluent_kafka import Consumer

        made = Consumer(
            {"bootstrap.servers": self.now.bootstrap, "group.id": GROUP, "group.protocol": "consumer",
             "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0, **more}
        )  # fmt: skip
        made.subscribe([TOPIC])
        return made

    def write(self, first: int, count: int) -> list[bytes]:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.now.bootstrap, "log_level": 0})
        values = [b"%d" % n for n in range(first, first + count)]
        for value in values:
            producer.produce(TOPIC, value, partition=0)
        assert producer.flush(WITHIN_S) == 0
        return values

    def goes_on(self, consumer: Any, wanted: list[bytes]) -> None:
        """Assert that the member reads exactly these records, and let it commit each."""
        found: list[bytes] = []
        deadline = time.monotonic() + WITHIN_S
        while found != wanted:
            assert time.monotonic() < deadline, found
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())
                commit(consumer, message)


def commit(consumer: Any, message: Any) -> None:
    """Commit, and retry while the coordinator is loading after an exchange of brokers."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            consumer.commit(message, asynchronous=False)
            return
        except KafkaException:
            assert time.monotonic() < deadline
            consumer.poll(0.2)


@pytest.fixture
def swapped(tmp_path: Path) -> Iterator[SwappedGroups]:
    made = SwappedGroups(tmp_path)
    try:
        yield made
    finally:
        made.now.kill(1)


def test_a_member_goes_on_while_kafka_takes_our_group_over_and_ours_kafkas(
    swapped: SwappedGroups, tmp_path: Path
) -> None:
    swapped.make_topic()
    member = swapped.member()
    swapped.goes_on(member, swapped.write(0, 3))
    swapped.kill_and_start(swapped.kafka)
    swapped.goes_on(member, swapped.write(3, 3))
    swapped.kill_and_start(swapped.ours)
    swapped.goes_on(member, swapped.write(6, 3))
    member.close()
    newcomer = swapped.member()
    swapped.goes_on(newcomer, swapped.write(9, 3))
    newcomer.close()
    name = f"__consumer_offsets-{partition_of(GROUP, LOGS)}"
    said = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--offsets-decoder", "--files", str(tmp_path / "n1" / name / f"{0:020}.log")),
    )
    rows = [line for line in said.splitlines() if "key: {" in line]
    keys = [json.loads(line.partition("key: ")[2].partition(" payload: ")[0]) for line in rows]
    assert sorted({int(key["type"]) for key in keys}) == [1, 3, 5, 6, 7, 8]
    assert "isvalid: false" not in said
    assert "Failed to decode" not in said


def test_kafkas_own_consumer_and_tool_see_our_consumer_groups(swapped: SwappedGroups) -> None:
    swapped.make_topic()
    swapped.write(0, 5)
    at = ("--bootstrap-server", swapped.now.bootstrap)
    said = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(*at, "--topic", TOPIC, "--from-beginning", "--max-messages", "5", "--timeout-ms", "60000"),
        *("--group", GROUP, "--command-property", "group.protocol=consumer"),
    )
    assert said.split() == ["0", "1", "2", "3", "4"]
    member = swapped.member(**{"client.id": "the member"})
    swapped.goes_on(member, swapped.write(5, 1))
    listed = kafka_tool(TOOL, *at, "--list", "--state", "--type")
    assert re.search(rf"{GROUP} +Consumer +Stable", listed), listed
    told = kafka_tool(TOOL, *at, "--describe", "--group", GROUP, "--members", "--verbose")
    assert re.search(rf"{GROUP} .*the member .*{TOPIC}", told, re.DOTALL), told
    member.close()
    kafka_tool(TOOL, *at, "--group", GROUP, "--reset-offsets", "--to-offset", "2", "--topic", TOPIC, "--execute")
    again = swapped.member()
    swapped.goes_on(again, [b"2", b"3", b"4", b"5"])
    again.close()
    kafka_tool(TOOL, *at, "--delete", "--group", GROUP)
    assert GROUP not in kafka_tool(TOOL, *at, "--list")
