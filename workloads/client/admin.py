"""Questions and commands that are neither records sent nor records read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from broker.protocol.errors import ErrorCode, name_of
from broker.protocol.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.protocol.schema.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from broker.protocol.schema.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from broker.protocol.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.protocol.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from workloads.client.client import Client
from workloads.client.cluster import Place
from workloads.client.connection import RequestFailed, UnsupportedApi
from workloads.client.outcomes import STALE_METADATA, TIMED_OUT

LATEST = -1
"""ListOffsets: the high watermark, or for a reader of committed records the last stable offset."""
EARLIEST = -2

DELETE_BY_NAMES_UNTIL = 5
"""From the next version on a topic to delete is a name or an id."""
NO_LEADER = "LEADER_NOT_AVAILABLE"


class Listed(NamedTuple):
    """A partition's answer to ListOffsets."""

    offset: int
    timestamp_ms: int
    leader_epoch: int
    error: str
    """Empty, or why there is no answer."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


async def create_topics(client: Client, topics: Sequence[NewTopic], timeout_ms: int = 10_000) -> dict[str, str]:
    """Create topics. Topic -> empty, or the error's name. Raises RequestFailed: then nothing is known."""
    wanted = [
        CreatableTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            configs=[CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
        )
        for topic in topics
    ]
    request = CreateTopicsRequest(wanted, timeout_ms)
    answer = await client.ask_once(request, CreateTopicsResponse)
    return {result.name: _name(result.error_code) for result in answer.topics}


async def delete_topics(client: Client, names: Sequence[str], timeout_ms: int = 10_000) -> dict[str, str]:
    """Delete topics by name. Topic -> empty, or the error's name. Raises RequestFailed: then nothing is known."""
    version = await client.version(DeleteTopicsRequest)
    if version <= DELETE_BY_NAMES_UNTIL:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    else:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name) for name in names], timeout_ms=timeout_ms)
    answer = await client.ask_once(request, DeleteTopicsResponse, version=version)
    return {result.name or "": _name(result.error_code) for result in answer.responses}


async def describe_cluster(client: Client) -> DescribeClusterResponse:
    """The cluster's id, controller and brokers, as one broker sees them. Raises RequestFailed, UnsupportedApi."""
    return await client.ask_once(DescribeClusterRequest(), DescribeClusterResponse)


async def metadata(client: Client, topics: Iterable[str] | None = None) -> MetadataResponse:
    """Metadata of these topics (None: of all), as one broker sees it. Raises RequestFailed."""
    wanted = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    return await client.ask_once(MetadataRequest(wanted, allow_auto_topic_creation=False), MetadataResponse)


async def list_offsets(
    client: Client, places: Sequence[Place], timestamp: int, *, isolation: int = 0, timeout_s: float = 10.0
) -> dict[Place, Listed]:
    """An offset of each partition, from its leader: LATEST, EARLIEST or the first at or after a timestamp.

    Tries again until all have answered or the time is up; partitions without an answer then say why.
    """
    client.track(topic for topic, _ in places)
    found = {place: Listed(-1, -1, -1, TIMED_OUT) for place in places}
    failures = 0
    with client.env.timeout(timeout_s):
        while left := [place for place in places if found[place].error]:
            if failures:
                await client.env.sleep(client.backoff(failures))
            failures += 1
            await _list_once(client, left, timestamp, isolation, found)
    return found


async def _list_once(
    client: Client, places: Sequence[Place], timestamp: int, isolation: int, found: dict[Place, Listed]
) -> None:
    by_node: dict[int, list[tuple[Place, int]]] = {}
    for place in places:
        leader = client.view.leader(*place)
        if leader is None:
            found[place] = Listed(-1, -1, -1, NO_LEADER)
            client.refresh_soon()
        else:
            by_node.setdefault(leader.node_id, []).append((place, leader.epoch))
    async with trio.open_nursery() as nursery:
        for node_id, asked in by_node.items():
            nursery.start_soon(_list_node, client, node_id, asked, timestamp, isolation, found)


async def _list_node(
    client: Client,
    node_id: int,
    asked: list[tuple[Place, int]],
    timestamp: int,
    isolation: int,
    found: dict[Place, Listed],
) -> None:
    topics: dict[str, ListOffsetsTopic] = {}
    for (topic, index), epoch in asked:
        wanted = topics.setdefault(topic, ListOffsetsTopic(topic))
        wanted.partitions.append(ListOffsetsPartition(index, epoch, timestamp))
    request = ListOffsetsRequest(-1, isolation, list(topics.values()), client.settings.request_timeout_ms)
    try:
        answer = await client.ask_node(node_id, request, ListOffsetsResponse)
    except (RequestFailed, UnsupportedApi) as failure:
        why = failure.why if isinstance(failure, RequestFailed) else str(failure)
        found.update({place: Listed(-1, -1, -1, why) for place, _ in asked})
        client.refresh_soon()
        return
    for told in answer.topics:
        for part in told.partitions:
            found[told.name, part.partition_index] = Listed(
                part.offset, part.timestamp, part.leader_epoch, _name(part.error_code)
            )
            if part.error_code in STALE_METADATA:
                client.refresh_soon()


def _name(code: int) -> str:
    return "" if code == ErrorCode.NONE else name_of(code)
