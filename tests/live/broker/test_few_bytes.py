"""Small requests that would make a broker open files, or keep memory, without limit: it refuses them and keeps serving.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.broker.protocol.errors import LONGEST_MESSAGE, ErrorCode
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from squall.broker.protocol.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from squall.broker.protocol.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from squall.broker.protocol.schema.describe_groups import DescribeGroupsRequest
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from squall.broker.protocol.schema.find_coordinator import FindCoordinatorRequest
from squall.broker.protocol.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.brokers.bombs import many_records
from tests.support.brokers.broker_process import BrokerProcess
from tests.support.brokers.joining import join

LIMITS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "squall.broker.max.replicas": "1500",
    "squall.small.segments.max": "50",
    "squall.groups.max.bytes": str(1 << 20),
    "squall.fetch.sessions.max.partitions": "20000",
}
MIB = 1 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path_factory.mktemp("few-bytes"), LIMITS)
    try:
        yield made
        assert made.process.poll() is None, f"the broker ended: {made.log.read_text()[-2000:]}"
    finally:
        made.stop()


def create(broker: BrokerProcess, name: str, partitions: int = 1, **settings: str) -> tuple[ErrorCode, str | None]:
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    with broker.connect() as client:
        answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
    return ErrorCode(answer.topics[0].error_code), answer.topics[0].error_message


def produce(broker: BrokerProcess, topic: str, batches: list[bytes]) -> list[ErrorCode]:
    """Produce each batch after the other over one connection, and return their error codes."""
    found = []
    with broker.connect() as client:
        for batch in batches:
            data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
            answer = client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)
            found.append(ErrorCode(answer.responses[0].partition_responses[0].error_code))
    return found


def logs_of(broker: BrokerProcess, topic: str) -> list[Path]:
    data = broker.trace.parent / "data"
    return [path for path in data.glob(f"{topic}-*") if path.name.rpartition("-")[0] == topic]


def test_more_replicas_than_a_broker_may_have_are_refused(broker: BrokerProcess) -> None:
    """Such a request once ended the broker, because it could open no more files."""
    error, told = create(broker, "wider", 1501)
    assert error is ErrorCode.POLICY_VIOLATION
    assert told is not None
    assert told.endswith("it would have more than squall.broker.max.replicas=1,500.")


def test_tiny_segments_are_made_for_a_while_only(broker: BrokerProcess) -> None:
    """Each segment has open files, and 7,000 records of one byte once ended the broker."""
    assert create(broker, "tiny", segment_bytes="100")[0] is ErrorCode.NONE
    batch = encode_batch([Record(0, int(time.time() * 1000), None, b"v")])
    broker.wait_for(lambda: produce(broker, "tiny", [batch]) == [ErrorCode.NONE])
    assert set(produce(broker, "tiny", [batch] * 400)) == {ErrorCode.NONE}
    (folder,) = logs_of(broker, "tiny")
    assert len(list(folder.glob("*.log"))) == 51
    assert len(os.listdir(f"/proc/{broker.process.pid}/fd")) < 300


@pytest.mark.gate
def test_small_batches_do_not_wait_for_large_ones(broker: BrokerProcess) -> None:
    """The broker reads every record of this topic: eight large batches once delayed those of all clients for 12 s."""
    assert create(broker, "checked", squall_record_validation_enable="true")[0] is ErrorCode.NONE
    now_ms = int(time.time() * 1000)
    small = encode_batch([Record(0, now_ms, b"k", b"v")], codec=1)
    large = many_records(1_000_000, now_ms)
    broker.wait_for(lambda: produce(broker, "checked", [small]) == [ErrorCode.NONE])
    found: list[ErrorCode] = []
    bombers = [threading.Thread(target=lambda: found.extend(produce(broker, "checked", [large]))) for _ in range(4)]
    for bomber in bombers:
        bomber.start()
    taken = 0
    while any(bomber.is_alive() for bomber in bombers):
        assert produce(broker, "checked", [small]) == [ErrorCode.NONE]
        taken += 1
    assert len(found) == 4
    assert taken > 2 * len(bombers), "one behind each large one, if they had one queue"


def test_members_that_say_much_of_themselves_are_refused(broker: BrokerProcess) -> None:
    """The broker keeps a member's metadata until its session ends, half an hour: 650 members once took two gigabytes.
    """
    before = broker.rss_mb()
    errors = [join(broker, f"g{n}", bytes(3 * MIB)) for n in range(60)]
    assert set(errors) == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    assert broker.rss_mb() < before + 40
    assert join(broker, "small", b"") is ErrorCode.MEMBER_ID_REQUIRED


def test_fetch_sessions_that_would_have_more_partitions_are_not_made(broker: BrokerProcess) -> None:
    """A thousand sessions, the permitted number, with 20,000 partitions each would take seven gigabytes."""
    parts = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=100) for n in range(9_000)]
    topics = [FetchTopic(topic="no", partitions=parts)]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=topics)
    sessions = []
    before = broker.rss_mb()
    for _ in range(30):
        with broker.connect() as client:
            answer = client.ask(request, 11)
        sessions.append(answer.session_id)
    assert [session > 0 for session in sessions] == [True, True] + [False] * 28
    assert broker.rss_mb() < before + 60


def test_an_answer_quotes_little_of_a_long_name(broker: BrokerProcess) -> None:
    """An error message with the whole name was too long for a string, and the connection ended without an answer."""
    name = "g" * 32_760
    resources = [DescribeConfigsResource(kind, name) for kind in (4, 8)]  # a broker and its loggers
    beat = ConsumerGroupHeartbeatRequest(group_id=name, member_id="m", member_epoch=3)
    wrong = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1000, topic_partitions=[], subscribed_topic_regex="(" + name
    )
    told: list[str] = []

    def is_served() -> bool:
        with broker.connect() as client:
            found = client.ask(FindCoordinatorRequest(coordinator_keys=[name, "g"]), 4)
            groups = client.ask(DescribeGroupsRequest(groups=[name]), 6)
            beaten = client.ask(beat, 1)
            refused = client.ask(wrong, 1)
            described = client.ask(DescribeConfigsRequest(resources), 4)
        told[:] = [
            each.error_message or ""
            for each in (*found.coordinators, *groups.groups, beaten, refused, *described.results)
        ][2:]
        return groups.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND and all(told)

    broker.wait_for(is_served)
    assert [len(each) for each in told] == [LONGEST_MESSAGE + 3] * 5


def test_a_list_that_grows_ends_no_broker_at_its_next_start_either(tmp_path: Path) -> None:
    """Two requests of 20 KB once wrote metadata that no broker could read."""
    for start in range(2):
        broker = BrokerProcess(tmp_path, LIMITS)
        try:
            if start == 0:
                assert create(broker, "throttled") == (ErrorCode.NONE, None)
                errors = [append(broker, ",".join(f"{n}:1" for n in range(part, part + 3000))) for part in (0, 3000)]
                assert errors == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
            broker.assert_serves()
        finally:
            broker.stop()
        broker.trace.unlink()


def append(broker: BrokerProcess, items: str) -> ErrorCode:
    """Return the error code of an APPEND to a list of the topic `throttled`."""
    config = AlterableConfig(name="leader.replication.throttled.replicas", config_operation=2, value=items)
    resource = AlterConfigsResource(resource_type=2, resource_name="throttled", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    with broker.connect() as client:
        answer = client.ask(request, 1)
    return ErrorCode(answer.responses[0].error_code)


def test_a_broker_opens_as_many_files_as_it_may(tmp_path: Path) -> None:
    """A shell's soft limit of open files is low, and a program may raise it: every log has three open files."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
    try:
        made = BrokerProcess(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    try:
        assert resource.prlimit(made.process.pid, resource.RLIMIT_NOFILE) == (most, most)
    finally:
        made.stop()
