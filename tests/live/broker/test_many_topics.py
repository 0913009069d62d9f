"""Requests that name very many topics: nobody else waits for them, and they fill no broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.apis.topic_creation import MOST_WANTED
from broker.protocol.errors import ErrorCode
from broker.protocol.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.protocol.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.brokers.broker_process import BrokerProcess, ask
from tests.support.brokers.bystander import Bystander

PATIENCE_S = 1.5
"""What a bystander may wait on a busy machine. Each of these once took the broker for 2 to 44 seconds."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path_factory.mktemp("many-topics"))
    try:
        yield made
        assert made.process.poll() is None, f"the broker ended: {made.log.read_text()[-2000:]}"
    finally:
        made.stop()


def topics_of(broker: BrokerProcess, *named: str) -> dict[str, int]:
    """The error code of each topic by its name: of all topics, or of the named ones, which this asks to create."""
    topics = [MetadataRequestTopic(name=name) for name in named]
    request = MetadataRequest(topics=topics or None, allow_auto_topic_creation=True)
    with broker.connect() as client:
        client.settimeout(60)
        answer: Any = ask(client, request, MetadataResponse, 12)
    return {topic.name: topic.error_code for topic in answer.topics}


def test_one_metadata_that_names_40000_unknown_topics_stops_nobody_and_makes_only_some(broker: BrokerProcess) -> None:
    names = [f"n{nth:05}" for nth in range(40_000)]
    with Bystander(broker) as bystander:
        assert set(topics_of(broker, *names).values()) == {3}
        broker.wait_for(lambda: len(topics_of(broker)) == MOST_WANTED)
        assert list(topics_of(broker)) == names[:MOST_WANTED]
        # Who asks again for what was not begun gets it.
        topics_of(broker, names[-1])
        broker.wait_for(lambda: names[-1] in topics_of(broker))
    assert bystander.slowest_s < PATIENCE_S
    assert len(topics_of(broker)) == MOST_WANTED + 1


def topic(name: str, partitions: int = 1, **settings: str) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)


@pytest.mark.parametrize(
    ("topics", "error"),
    [
        ([topic(f"t{nth}") for nth in range(10_000)], ErrorCode.POLICY_VIOLATION),
        ([topic(f"q_{nth}", -1) for nth in range(20_000)], ErrorCode.POLICY_VIOLATION),
        ([topic(f"q_{nth}", retention_ms=str(nth)) for nth in range(10_000)], ErrorCode.POLICY_VIOLATION),
        ([topic(f"q_{nth}", **{f"retention.mss{nth}": "1"}) for nth in range(10_000)], ErrorCode.INVALID_CONFIG),
    ],
    ids=["plain", "default-partitions", "own-settings", "unknown-settings"],
)
def test_a_create_topics_with_thousands_of_names_stops_nobody(
    broker: BrokerProcess, topics: list[CreatableTopic], error: ErrorCode
) -> None:
    request = CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=True)
    with Bystander(broker) as bystander, broker.connect() as client:
        client.settimeout(60)
        answer: Any = ask(client, request, CreateTopicsResponse, 7)
    assert [each.name for each in answer.topics] == [each.name for each in topics]
    assert answer.topics[-1].error_code == error
    assert bystander.slowest_s < PATIENCE_S
