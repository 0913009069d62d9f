"""Sends administrative requests: topics, metadata, groups, elections, reassignments, the quorum, offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import trio

from squall.broker.protocol.errors import ErrorCode, name_of
from squall.broker.protocol.schema import alter_partition_reassignments as moves_wire
from squall.broker.protocol.schema import describe_quorum as quorum_wire
from squall.broker.protocol.schema import elect_leaders as elections_wire
from squall.broker.protocol.schema import list_partition_reassignments as moving_wire
from squall.broker.protocol.schema import vote as vote_wire
from squall.broker.protocol.schema.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from squall.broker.protocol.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from squall.broker.protocol.schema.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from squall.broker.protocol.schema.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from squall.broker.protocol.schema.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from squall.broker.protocol.schema.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from squall.broker.protocol.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from squall.broker.protocol.schema.list_groups import ListGroupsRequest, ListGroupsResponse
from squall.broker.protocol.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from squall.broker.protocol.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from squall.broker.protocol.schema.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from squall.workloads.client.groups.coordination import GroupCoordinatorClient
from squall.workloads.client.groups.offsets import ELSEWHERE
from squall.workloads.client.new_topic import NewTopic
from squall.workloads.client.outcomes import TIMED_OUT
from squall.workloads.client.transactions import OF_TRANSACTIONAL_IDS

DELETE_BY_NAMES_UNTIL = 5
"""Is the last version of DeleteTopics that names topics only. Later versions take a name or an id."""
DESCRIBED = 5
"""Is the version of DescribeGroups that is used: it answers state Dead for an unknown group, and no error."""
NODE_LIMIT_S = 1.0
"""Gives the time-out, in seconds, of a request that only one broker can answer."""
NO_LEADER = "LEADER_NOT_AVAILABLE"
PREFERRED_ELECTION, UNCLEAN_ELECTION = 0, 1
UPGRADE, SAFE_DOWNGRADE = 1, 2
NO_OTHER_VOTER = "NO_OTHER_VOTER"
CLUSTER_METADATA = "__cluster_metadata"


class ListedOffset(NamedTuple):
    """Holds a partition's answer to ListOffsets."""

    offset: int
    timestamp_ms: int
    leader_epoch: int
    error: str
    """Names the error; empty if there is none."""
    led_epoch: int = -1
    """Holds the leader epoch in which the broker led the partition when it answered: the request names an epoch, and a
    broker refuses any other epoch than its own (KIP-320). -1 if unknown. `leader_epoch` differs: it is the epoch of the
    record at `offset`.
    """


async def create_topics(client: Client, topics: Sequence[NewTopic], timeout_ms: int = 10_000) -> dict[str, str]:
    """Create topics. Return each topic's error name, or empty. Raises RequestFailed: then the outcome is unknown."""
    return {result.name: _name(result.error_code) for result in await creations(client, topics, timeout_ms)}


async def creations(
    client: Client, topics: Sequence[NewTopic], timeout_ms: int = 10_000
) -> Sequence[CreatableTopicResult]:
    """Create topics. Return the broker's result for each topic, with its message. Raises RequestFailed: then the
    outcome is unknown.
    """
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
    return (await client.ask_once(request, CreateTopicsResponse)).topics


async def delete_topics(client: Client, names: Sequence[str], timeout_ms: int = 10_000) -> dict[str, str]:
    """Delete topics by name. Return each topic's error name, or empty. Raises RequestFailed: then the outcome is
    unknown.
    """
    version = await client.version(DeleteTopicsRequest)
    if version <= DELETE_BY_NAMES_UNTIL:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    else:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name) for name in names], timeout_ms=timeout_ms)
    answer = await client.ask_once(request, DeleteTopicsResponse, version=version)
    return {result.name or "": _name(result.error_code) for result in answer.responses}


async def delete_topic(client: Client, topic_id: bytes, timeout_ms: int = 10_000) -> str:
    """Delete one topic by its id (KIP-516), never a later topic of the same name. Return the error's name, or empty.

    Raises RequestFailed: then the outcome is unknown. Raises UnsupportedApi if the cluster's topics have no ids.
    """
    request = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic_id)], timeout_ms=timeout_ms)
    version = await client.version(DeleteTopicsRequest)
    if version <= DELETE_BY_NAMES_UNTIL:
        raise UnsupportedApi("the cluster deletes topics by name only")
    answer = await client.ask_once(request, DeleteTopicsResponse, version=version)
    return _name(answer.responses[0].error_code)


async def describe_cluster(client: Client) -> DescribeClusterResponse:
    """Return the cluster's id, controller and brokers, as one broker sees them. Raises RequestFailed, UnsupportedApi.
    """
    return await client.ask_once(DescribeClusterRequest(), DescribeClusterResponse)


async def metadata(client: Client, topics: Iterable[str] | None = None, *, node: int = -1) -> MetadataResponse:
    """Return metadata of these topics (None: of all topics), as the broker `node` sees it (-1: any broker). Raises
    RequestFailed.
    """
    wanted = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    request = MetadataRequest(wanted, allow_auto_topic_creation=False)
    if node >= 0:
        return await client.ask_node(node, request, MetadataResponse, limit_s=NODE_LIMIT_S)
    return await client.ask_once(request, MetadataResponse)


class OngoingReassignment(NamedTuple):
    """Describes a partition that is being reassigned to other brokers."""

    replicas: tuple[int, ...]
    """Holds all replicas, including those being added and those being removed."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class QuorumDescription(NamedTuple):
    """Describes the metadata quorum as its leader reports it."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: dict[int, int]
    """Maps a voter to its log end offset as the leader knows it; -1 if the voter has not fetched in this epoch."""
    observers: dict[int, int]


async def coordinators(client: Client, ids: Sequence[str], of: int = OF_TRANSACTIONAL_IDS) -> dict[str, int]:
    """Return the coordinator's broker id for each transactional id, or for each group if `of` is OF_GROUPS, as one
    broker reports it; -1 if unknown.

    Raises RequestFailed, UnsupportedApi.
    """
    if not ids:
        return {}
    request = FindCoordinatorRequest(key_type=of, coordinator_keys=list(ids))
    answer = await client.ask_once(request, FindCoordinatorResponse)
    found = {each.key: each.node_id for each in answer.coordinators if each.error_code == ErrorCode.NONE}
    return {each: found.get(each, -1) for each in ids}


async def transaction_states(client: Client, ids: Sequence[str]) -> dict[str, str]:
    """Return the transaction state of each given transactional id whose coordinator is the broker of the client's
    control connection. Other ids are left out.

    Raises RequestFailed, UnsupportedApi.
    """
    if not ids:
        return {}
    answer = await client.ask_once(DescribeTransactionsRequest(list(ids)), DescribeTransactionsResponse)
    known = (each for each in answer.transaction_states if each.error_code == ErrorCode.NONE)
    return {each.transactional_id: each.transaction_state for each in known}


async def group_states(client: Client, groups: Sequence[str]) -> dict[str, str]:
    """Return the state of each given group whose coordinator is the broker of the client's control connection. The
    group may use either protocol. Other groups are left out.

    The result is empty while that broker loads any group. Raises RequestFailed, UnsupportedApi.
    """
    if not groups:
        return {}
    # DescribeGroups describes classic groups only, ConsumerGroupDescribe consumer groups only; a group may change.
    answer = await client.ask_once(ListGroupsRequest(), ListGroupsResponse)
    return {each.group_id: each.group_state for each in answer.groups if each.group_id in groups and each.group_state}


async def group_members(client: Client, group: str) -> frozenset[str] | None:
    """Return the member ids that the group's coordinator knows, of either protocol; None if the coordinator is loading
    or has moved. Waits until there is a coordinator. Raises RequestFailed, UnsupportedApi.
    """
    ask, found = GroupCoordinatorClient(client, group).ask, set[str]()
    classic = (await ask(DescribeGroupsRequest([group]), DescribeGroupsResponse, DESCRIBED)).groups[0]
    if classic.error_code in ELSEWHERE:
        return None
    found |= {each.member_id for each in classic.members}
    if not found:
        # For a consumer group, DescribeGroups returns no members, with errors that depend on the release.
        with suppress(UnsupportedApi):
            request = ConsumerGroupDescribeRequest([group])
            (other,) = (await ask(request, ConsumerGroupDescribeResponse, request.MAX_VERSION)).groups
            if other.error_code in ELSEWHERE:
                return None
            found |= {each.member_id for each in other.members}
    return frozenset(found)


async def elect_leaders(
    client: Client, places: Sequence[Place] | None, *, unclean: bool = False, timeout_ms: int = 10_000
) -> dict[Place, str]:
    """Elect preferred leaders; with `unclean`, elect any live replica if there is no leader. None means all partitions.

    Return each partition's error name, or empty (ELECTION_NOT_NEEDED if nothing had to change). For None, only
    partitions with an election or an error are returned. Raises RequestFailed: then the outcome is unknown.
    """
    asked = None
    if places is not None:
        asked = [elections_wire.TopicPartitions(topic, parts) for topic, parts in _by_topic(places).items()]
    kind = UNCLEAN_ELECTION if unclean else PREFERRED_ELECTION
    request = elections_wire.ElectLeadersRequest(kind, asked, timeout_ms)
    answer = await client.ask_once(request, elections_wire.ElectLeadersResponse)
    found = {
        (topic.topic, part.partition_id): _name(part.error_code)
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }
    # If partitions were named, each of them gets the error of the whole response.
    _refuse(answer.error_code, found or places is not None)
    return {**dict.fromkeys(places or (), _name(answer.error_code)), **found}


async def alter_partition_reassignments(
    client: Client, moves: Mapping[Place, Sequence[int] | None], *, timeout_ms: int = 10_000
) -> dict[Place, str]:
    """Start to reassign partitions to other brokers, the preferred leader first; None cancels a reassignment.

    Return each partition's error name, or empty. A reassignment ends when the new replicas have caught up: see
    `list_partition_reassignments`. Raises RequestFailed: then the outcome is unknown.
    """
    topics: dict[str, list[moves_wire.ReassignablePartition]] = {}
    for (topic, index), replicas in moves.items():
        target = None if replicas is None else list(replicas)
        topics.setdefault(topic, []).append(moves_wire.ReassignablePartition(index, target))
    request = moves_wire.AlterPartitionReassignmentsRequest(
        timeout_ms, topics=[moves_wire.ReassignableTopic(topic, parts) for topic, parts in topics.items()]
    )
    answer = await client.ask_once(request, moves_wire.AlterPartitionReassignmentsResponse)
    found = {
        (topic.name, part.partition_index): _name(part.error_code)
        for topic in answer.responses
        for part in topic.partitions
    }
    return {**dict.fromkeys(moves, _name(answer.error_code)), **found}


async def list_partition_reassignments(
    client: Client, places: Sequence[Place] | None = None, *, timeout_ms: int = 10_000
) -> dict[Place, OngoingReassignment]:
    """Return which of these partitions (None: of all partitions) are being reassigned. Raises RequestFailed."""
    asked = None
    if places is not None:
        kind = moving_wire.ListPartitionReassignmentsTopics
        asked = [kind(topic, parts) for topic, parts in _by_topic(places).items()]
    request = moving_wire.ListPartitionReassignmentsRequest(timeout_ms, asked)
    answer = await client.ask_once(request, moving_wire.ListPartitionReassignmentsResponse)
    _refuse(answer.error_code)
    return {
        (topic.name, part.partition_index): OngoingReassignment(
            tuple(part.replicas), tuple(part.adding_replicas), tuple(part.removing_replicas)
        )
        for topic in answer.topics
        for part in topic.partitions
    }


async def describe_quorum(client: Client) -> QuorumDescription:
    """Return the metadata quorum as its leader, the active controller, sees it. Raises RequestFailed."""
    part = quorum_wire.DescribeQuorumRequestPartitionData(0)
    request = quorum_wire.DescribeQuorumRequest([quorum_wire.DescribeQuorumRequestTopicData(CLUSTER_METADATA, [part])])
    answer = await client.ask_once(request, quorum_wire.DescribeQuorumResponse)
    _refuse(answer.error_code)
    partition = answer.topics[0].partitions[0]
    _refuse(partition.error_code)
    return QuorumDescription(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        {replica.replica_id: replica.log_end_offset for replica in partition.current_voters},
        {replica.replica_id: replica.log_end_offset for replica in partition.observers},
    )


async def unseat_controller(client: Client) -> QuorumDescription:
    """Make the active controller resign as leader of the metadata quorum, without a restart. Return the quorum as it
    was before.

    A vote request for the next epoch is sent to the controller, in the name of another voter that pretends to have lost
    contact. By the rules of Raft the controller moves to that epoch and no longer leads; the next leader has all
    committed records. `client` must use the listener between brokers. Nothing happens if another epoch has begun
    meanwhile. Raises RequestFailed.
    """
    quorum = await describe_quorum(client)
    if quorum.leader_id not in client.view.nodes:
        await client.refreshed()
    stranger = next((voter for voter in sorted(quorum.voters) if voter != quorum.leader_id), None)
    if stranger is None:
        raise RequestFailed(NO_OTHER_VOTER, sent=False, detail=f"{quorum.leader_id} is alone")
    ballot = vote_wire.VoteRequestPartitionData(0, quorum.epoch + 1, stranger)
    asked = vote_wire.VoteRequestTopicData(CLUSTER_METADATA, [ballot])
    request = vote_wire.VoteRequest(client.view.cluster_id, quorum.leader_id, [asked])
    # With a version: brokers list Vote to no client, so none can be negotiated.
    await client.ask_node(quorum.leader_id, request, vote_wire.VoteResponse, version=vote_wire.VoteRequest.MAX_VERSION)
    return quorum


async def update_features(client: Client, levels: Mapping[str, int], *, timeout_ms: int = 10_000) -> str:
    """Set feature levels, all or none; level 0 disables a feature. Return the error's name, or empty.

    Raises RequestFailed: then the outcome is unknown.
    """
    updates = [
        FeatureUpdateKey(name, level, upgrade_type=UPGRADE if level > 0 else SAFE_DOWNGRADE)
        for name, level in levels.items()
    ]
    answer = await client.ask_once(UpdateFeaturesRequest(timeout_ms, updates), UpdateFeaturesResponse)
    return next(filter(None, map(_name, (answer.error_code, *(result.error_code for result in answer.results)))), "")


def _by_topic(places: Sequence[Place]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return topics


def _refuse(code: int, tolerated: object = False) -> None:
    """Raise RequestFailed if `code` is an error and `tolerated` is false. `tolerated` is true if the caller returns the
    error for each partition instead.
    """
    if code and not tolerated:
        raise RequestFailed(name_of(code), sent=True, detail="refused as a whole")


async def list_offsets(
    client: Client, places: Sequence[Place], timestamp: int, *, isolation: int = 0, timeout_s: float = 10.0
) -> dict[Place, ListedOffset]:
    """Return an offset of each partition from its leader: LATEST, EARLIEST, or the first offset at or after a
    timestamp.

    Retries until all partitions have answered or the time-out passes; partitions without an answer then have an error.
    """
    client.track(topic for topic, _ in places)
    found = {place: ListedOffset(-1, -1, -1, TIMED_OUT) for place in places}
    failures = 0
    with client.env.timeout(timeout_s):
        while left := [place for place in places if found[place].error]:
            if failures:
                await client.env.sleep(client.backoff(failures))
            failures += 1
            await _list_once(client, left, timestamp, isolation, found)
    return found


async def _list_once(
    client: Client, places: Sequence[Place], timestamp: int, isolation: int, found: dict[Place, ListedOffset]
) -> None:
    by_node: dict[int, list[tuple[Place, int]]] = {}
    for place in places:
        leader = client.view.leader(*place)
        if leader is None:
            found[place] = ListedOffset(-1, -1, -1, NO_LEADER)
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
    found: dict[Place, ListedOffset],
) -> None:
    topics: dict[str, ListOffsetsTopic] = {}
    epochs = dict(asked)
    for (topic, index), epoch in asked:
        wanted = topics.setdefault(topic, ListOffsetsTopic(topic))
        wanted.partitions.append(ListOffsetsPartition(index, epoch, timestamp))
    request = ListOffsetsRequest(-1, isolation, list(topics.values()), client.settings.request_timeout_ms)
    try:
        answer = await client.ask_node(node_id, request, ListOffsetsResponse)
    except (RequestFailed, UnsupportedApi) as failure:
        why = failure.why if isinstance(failure, RequestFailed) else str(failure)
        found.update({place: ListedOffset(-1, -1, -1, why) for place, _ in asked})
        client.refresh_soon()
        return
    for listed in answer.topics:
        for part in listed.partitions:
            found[listed.name, part.partition_index] = ListedOffset(
                part.offset,
                part.timestamp,
                part.leader_epoch,
                _name(part.error_code),
                epochs.get((listed.name, part.partition_index), -1),
            )
            if part.error_code != ErrorCode.NONE:
                client.refresh_soon()  # As Kafka's consumer: also for UNKNOWN_LEADER_EPOCH, as after recreating a topic


def _name(code: int) -> str:
    return "" if code == ErrorCode.NONE else name_of(code)
