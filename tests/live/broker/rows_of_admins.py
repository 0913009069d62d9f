"""The table's rows of admin requests: each names thousands of topics, settings or patterns, most of which do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from squall.broker.apis.topic_creation import MOST_WANTED
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.consumer_group_describe import ConsumerGroupDescribeRequest
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest
from squall.broker.protocol.schema.delete_groups import DeleteGroupsRequest
from squall.broker.protocol.schema.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from squall.broker.protocol.schema.describe_groups import DescribeGroupsRequest
from squall.broker.protocol.schema.describe_producers import DescribeProducersRequest, TopicRequest
from squall.broker.protocol.schema.describe_transactions import DescribeTransactionsRequest
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from squall.broker.protocol.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from squall.broker.protocol.schema.metadata import MetadataRequest, MetadataRequestTopic
from tests.live.broker.table import KIB, MIB, Row, make_coordinator, produced, topic
from tests.support.brokers.broker_process import BrokerProcess
from tests.support.brokers.raw_client import frame_of

NAMES = [f"{number}" for number in range(40_000)]


def ask(broker: BrokerProcess, request: Any, version: int) -> Any:
    with broker.connect() as client:
        return client.ask(request, version)


def row_of_names(name: str, request: Any, version: int, **limits: Any) -> Row:
    """Each of these requests once blocked the event loop for half a second, and one with ten times as many names for 5
    s.
    """

    def play(broker: BrokerProcess) -> Iterator[None]:
        make_coordinator(broker, "g", 0)
        make_coordinator(broker, "t", 1)
        yield
        answer = ask(broker, request, version)
        [listed] = [value for field in answer.__match_args__ if isinstance(value := getattr(answer, field), list)]
        assert len(listed[0].partitions if len(listed) == 1 else listed) == len(NAMES)

    return Row(name, play, 300 * KIB, **limits)


def settings_of_one_broker(broker: BrokerProcess) -> Iterator[None]:
    """A request names one broker thousands of times, in 12 bytes each, and each time 250 settings are due: answering it
    blocked the event loop for minutes, and took gigabytes.
    """
    resources = [DescribeConfigsResource(resource_type=4, resource_name="1") for _ in range(40_000)]
    yield
    answer = ask(broker, DescribeConfigsRequest(resources=resources), 4)
    described = [result for result in answer.results if not result.error_code]
    assert 50_000 <= sum(len(result.configs) for result in described) < 51_000
    assert {result.error_code for result in answer.results[len(described) :]} == {ErrorCode.INVALID_REQUEST}


def one_logger(broker: BrokerProcess) -> Iterator[None]:
    """A request changes the loggers of one broker 24,000 times: each change was compared with all others. A broker id
    of many digits ended the connection, or that between two nodes.
    """
    changes = [AlterableConfig(name="root", config_operation=0, value="INFO")]
    names = ["1"] * 24_000 + ["9" * 5_000]
    resources = [AlterConfigsResource(resource_type=8, resource_name=name, configs=changes) for name in names]
    resources.append(AlterConfigsResource(resource_type=4, resource_name="9" * 5_000))
    yield
    answer = ask(broker, IncrementalAlterConfigsRequest(resources=resources), 1)
    assert {each.error_code for each in answer.responses} == {ErrorCode.INVALID_REQUEST}


def row_of_subscriptions(name: str, pattern: str, subscriptions: int, error: ErrorCode, **limits: Any) -> Row:
    """Regular expressions of subscriptions: 120 long ones took 2 s to compile, and 480 short ones of a kind take four
    minutes.
    """

    def play(broker: BrokerProcess) -> Iterator[None]:
        configs = [AlterableConfig(name="match", value=f"client_id={pattern}")]
        named = [f"m{number}" for number in range(subscriptions)]
        resources = [AlterConfigsResource(resource_type=16, resource_name=each, configs=configs) for each in named]
        yield
        answer = ask(broker, IncrementalAlterConfigsRequest(resources=resources, validate_only=True), 1)
        assert {each.error_code for each in answer.responses} == {error}

    return Row(name, play, 4 * MIB, **limits)


def more_than_is_allowed(broker: BrokerProcess) -> Iterator[None]:
    """Requests above the permitted size: each ends its connection."""
    parts = [FetchPartition(partition=number) for number in range(40_000)]
    sent: list[tuple[Any, int]] = [
        (DescribeGroupsRequest(groups=[f"{number}" for number in range(50_001)]), 5),
        (DescribeGroupsRequest(groups=["a" * 30_000] * 150), 5),
        (produced(b"", "t", *range(20_001)), 9),
        (FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="t", partitions=parts)]), 12),
    ]
    yield
    for request, version in sent:
        with broker.connect() as client:
            client.send(frame_of(request, version))
            assert client.is_closed(), type(request)


def topics_of(broker: BrokerProcess, *named: str) -> dict[str, int]:
    """Return the error code of each topic in Metadata, for all topics or for the named ones, which Metadata creates."""
    topics = [MetadataRequestTopic(name=name) for name in named]
    answer = ask(broker, MetadataRequest(topics=topics or None, allow_auto_topic_creation=True), 12)
    return {each.name: each.error_code for each in answer.topics}


def unknown_topics(broker: BrokerProcess) -> Iterator[None]:
    """Metadata creates only some of thousands of unknown topics. A client that asks again gets the others."""
    names = [f"n{nth:05}" for nth in range(40_000)]
    yield
    assert set(topics_of(broker, *names).values()) == {3}
    broker.wait_for(lambda: len(topics_of(broker)) == MOST_WANTED, 100)
    assert list(topics_of(broker)) == names[:MOST_WANTED]
    topics_of(broker, names[-1])
    broker.wait_for(lambda: names[-1] in topics_of(broker), 100)
    assert len(topics_of(broker)) == MOST_WANTED + 1


def row_of_topics(name: str, topics: list[CreatableTopic], error: ErrorCode, **limits: Any) -> Row:
    """One such CreateTopics once kept the controller busy for 2 to 44 seconds."""

    def play(broker: BrokerProcess) -> Iterator[None]:
        yield
        answer = ask(broker, CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=True), 7)
        assert [each.name for each in answer.topics] == [each.name for each in topics]
        assert answer.topics[-1].error_code == error

    return Row(name, play, 2 * MIB, **limits)


MANY = range(10_000)
REFUSED = ErrorCode.POLICY_VIOLATION
UNPOPULATED = [TopicRequest(name="nowhere", partition_indexes=list(range(40_000)))]
CASES_OF_A_KIND = "(?i)" + "[\1-\uffff]" * 199
ROWS = (
    row_of_names("describe groups", DescribeGroupsRequest(groups=NAMES), 5, entries=50, in_gate=True),
    row_of_names("describe transactions", DescribeTransactionsRequest(transactional_ids=NAMES), 0, entries=500),
    row_of_names("describe consumer groups", ConsumerGroupDescribeRequest(group_ids=NAMES), 1, entries=50),
    row_of_names("delete groups", DeleteGroupsRequest(groups_names=NAMES), 2, entries=500),
    row_of_names("describe producers", DescribeProducersRequest(topics=UNPOPULATED), 0, entries=501),
    Row("settings of one broker", settings_of_one_broker, 500 * KIB, 200, entries=3_000, in_gate=True),
    Row("one logger", one_logger, MIB),
    row_of_subscriptions("long patterns", "a" * 32_000, 120, REFUSED),
    row_of_subscriptions("patterns that are costly to compile", CASES_OF_A_KIND, 480, ErrorCode.NONE),
    Row("more than is allowed", more_than_is_allowed, 6 * MIB, 200),
    Row("unknown topics", unknown_topics, 400 * KIB, 200, settings={}),
    row_of_topics("plain topics", [topic(f"t{nth}") for nth in MANY], REFUSED),
    row_of_topics("topics of default width", [topic(f"q_{nth}", -1) for nth in range(20_000)], REFUSED),
    row_of_topics("topics with settings", [topic(f"q_{nth}", retention_ms=str(nth)) for nth in MANY], REFUSED),
    row_of_topics(
        "topics with unknown settings",
        [topic(f"q_{nth}", **{f"retention.mss{nth}": "1"}) for nth in MANY],
        ErrorCode.INVALID_CONFIG,
    ),
)
