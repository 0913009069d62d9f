"""Sends an administrator's requests that change topics: adding partitions, altering settings, deleting records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from squall.broker.protocol.errors import ErrorCode, name_of
from squall.broker.protocol.schema.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from squall.broker.protocol.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from squall.broker.protocol.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from squall.broker.protocol.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import RequestFailed

TOPIC = 2
"""Is the resource type of a topic."""
OF_THE_TOPIC = 1
"""Is the source of a setting that a topic has of its own (KIP-226: DYNAMIC_TOPIC_CONFIG)."""
SET, DELETE = 0, 1
NO_LEADER = "LEADER_NOT_AVAILABLE"


async def add_partitions(client: Client, topic: str, count: int, *, timeout_ms: int = 10_000) -> str:
    """Raise a topic's number of partitions to `count`. Return the error's name, or empty. Raises RequestFailed: then
    the outcome is unknown.
    """
    request = CreatePartitionsRequest([CreatePartitionsTopic(topic, count, None)], timeout_ms)
    answer = await client.ask_once(request, CreatePartitionsResponse)
    return next((_name(result.error_code) for result in answer.results), "")


async def alter_topics(client: Client, topics: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
    """Alter settings of topics; settings that are not named stay. None removes a topic's setting, so that the broker's
    applies.

    Return each topic's error name, or empty. Raises RequestFailed: then the outcome is unknown.
    """
    resources = [
        AlterConfigsResource(
            TOPIC,
            topic,
            [AlterableConfig(name, DELETE if value is None else SET, value) for name, value in settings.items()],
        )
        for topic, settings in topics.items()
    ]
    answer = await client.ask_once(IncrementalAlterConfigsRequest(resources), IncrementalAlterConfigsResponse)
    return {result.resource_name: _name(result.error_code) for result in answer.responses}


async def topic_settings(client: Client, topic: str) -> dict[str, str]:
    """Return the settings that a topic has of its own, as one broker reports them. Raises RequestFailed."""
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, None)])
    answer = await client.ask_once(request, DescribeConfigsResponse)
    (result,) = answer.results
    if result.error_code:
        raise RequestFailed(name_of(result.error_code), sent=True)
    return {each.name: each.value or "" for each in result.configs if each.config_source == OF_THE_TOPIC}


async def settings_in_force(client: Client, topics: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the values in force of these settings for each topic, as one broker reports them. Topics with an error,
    and settings without a value, are left out. Raises RequestFailed, UnsupportedApi.
    """
    asked = [DescribeConfigsResource(TOPIC, topic, list(names)) for topic in topics]
    answer = await client.ask_once(DescribeConfigsRequest(asked), DescribeConfigsResponse)
    return {
        result.resource_name: {each.name: each.value for each in result.configs if each.value is not None}
        for result in answer.results
        if not result.error_code
    }


async def topic_setting(client: Client, topic: str, name: str) -> str | None:
    """Return the value in force of a topic's setting, as one broker reports it; None if the broker reports an error for
    the topic, or no value. Raises RequestFailed and UnsupportedApi.
    """
    return (await settings_in_force(client, [topic], [name])).get(topic, {}).get(name)


async def delete_records(client: Client, place: Place, before: int, *, timeout_ms: int) -> tuple[str, int]:
    """Delete a partition's records before an offset. Return the error's name (or empty), and the smallest log start
    offset of all replicas (-1 if unknown). Raises RequestFailed: then the outcome is unknown.
    """
    topic, index = place
    leader = client.view.leader(topic, index)
    if leader is None:
        client.refresh_soon()
        raise RequestFailed(NO_LEADER, sent=False)
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, before)])], timeout_ms)
    try:
        answer = await client.ask_node(leader.node_id, request, DeleteRecordsResponse)
    except RequestFailed:
        client.refresh_soon()
        raise
    result = answer.topics[0].partitions[0]
    if result.error_code:
        client.refresh_soon()
    return _name(result.error_code), result.low_watermark


def _name(code: int) -> str:
    return "" if code == ErrorCode.NONE else name_of(code)
