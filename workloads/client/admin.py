"""Questions and commands that are neither records sent nor records read."""

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
"""From the next version on a topic to delete is a name or an id."""
DESCRIBED = 5
"""The version of DescribeGroups that is asked: a group that it does not know is dead, and no error."""
NODE_LIMIT_S = 1.0
"""One broker has so long to answer where no other one can."""
NO_LEADER = "LEADER_NOT_AVAILABLE"
PREFERRED_ELECTION, UNCLEAN_ELECTION = 0, 1
UPGRADE, SAFE_DOWNGRADE = 1, 2
NO_OTHER_VOTER = "NO_OTHER_VOTER"
CLUSTER_METADATA = "__cluster_metadata"


class ListedOffset(NamedTuple):
    """A partition's answer to ListOffsets."""

    offset: int
    timestamp_ms: int
    leader_epoch: int
    error: str
    """Empty, or why there is no answer."""
    led_epoch: int = -1
    """The leader epoch in which the broker led the partition as it answered: a request names one, and a broker refuses
    any but its own (KIP-320). -1: not known. `leader_epoch` is another one: of the record at `offset`."""


async def create_topics(client: Client, topics: Sequence[NewTopic], timeout_ms: int = 10_000) -> dict[str, str]:
    """Create topics. Topic -> empty, or the error's name. Raises RequestFailed: then nothing is known."""
    return {result.name: _name(result.error_code) for result in await creations(client, topics, timeout_ms)}


async def creations(
    client: Client, topics: Sequence[NewTopic], timeout_ms: int = 10_000
) -> Sequence[CreatableTopicResult]:
    """Create topics. The broker's answer to each, with its sentence. Raises RequestFailed: then nothing is known."""
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
    """Delete topics by name. Topic -> empty, or the error's name. Raises RequestFailed: then nothing is known."""
    version = await client.version(DeleteTopicsRequest)
    if version <= DELETE_BY_NAMES_UNTIL:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    else:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name) for name in names], timeout_ms=timeout_ms)
    answer = await client.ask_once(request, DeleteTopicsResponse, version=version)
    return {result.name or "": _name(result.error_code) for result in answer.responses}


async def delete_topic(client: Client, topic_id: bytes, timeout_ms: int = 10_000) -> str:
    """Delete one topic by its id (KIP-516), and no later one of its name. Empty, or the error's name.

    Raises RequestFailed: then nothing is known. UnsupportedApi where topics have no ids.
    """
    request = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic_id)], timeout_ms=timeout_ms)
    version = await client.version(DeleteTopicsRequest)
    if version <= DELETE_BY_NAMES_UNTIL:
        raise UnsupportedApi("the cluster deletes topics by name only")
    answer = await client.ask_once(request, DeleteTopicsResponse, version=version)
    return _name(answer.responses[0].error_code)


async def describe_cluster(client: Client) -> DescribeClusterResponse:
    """The cluster's id, controller and brokers, as one broker sees them. Raises RequestFailed, UnsupportedApi."""
    return await client.ask_once(DescribeClusterRequest(), DescribeClusterResponse)


async def metadata(client: Client, topics: Iterable[str] | None = None, *, node: int = -1) -> MetadataResponse:
    """Metadata of these topics (None: of all), as one broker sees it: `node`, or any. Raises RequestFailed."""
    wanted = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    request = MetadataRequest(wanted, allow_auto_topic_creation=False)
    if node >= 0:
        return await client.ask_node(node, request, MetadataResponse, limit_s=NODE_LIMIT_S)
    return await client.ask_once(request, MetadataResponse)


class OngoingReassignment(NamedTuple):
    """A partition on its way to other brokers."""

    replicas: tuple[int, ...]
    """All of them, those that come and those that go included."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class QuorumView(NamedTuple):
    """The metadata quorum, as its leader told of it."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: dict[int, int]
    """Voter to its log's end, as far as the leader knows; -1 where it has not fetched in this epoch."""
    observers: dict[int, int]


async def coordinators(client: Client, ids: Sequence[str], of: int = OF_TRANSACTIONAL_IDS) -> dict[str, int]:
    """Transactional id (`of`: group) -> the broker that coordinates it, as one broker sees it; -1 where it names none.

    Raises RequestFailed, UnsupportedApi.
    """
    if not ids:
        return {}
    request = FindCoordinatorRequest(key_type=of, coordinator_keys=list(ids))
    answer = await client.ask_once(request, FindCoordinatorResponse)
    told = {each.key: each.node_id for each in answer.coordinators if each.error_code == ErrorCode.NONE}
    return {each: told.get(each, -1) for each in ids}


async def transaction_states(client: Client, ids: Sequence[str]) -> dict[str, str]:
    """Transactional id -> the state of its transaction, of those that the asked broker coordinates and knows.

    Raises RequestFailed, UnsupportedApi.
    """
    if not ids:
        return {}
    answer = await client.ask_once(DescribeTransactionsRequest(list(ids)), DescribeTransactionsResponse)
    known = (each for each in answer.transaction_states if each.error_code == ErrorCode.NONE)
    return {each.transactional_id: each.transaction_state for each in known}


async def group_states(client: Client, groups: Sequence[str]) -> dict[str, str]:
    """Group -> its state, of those that the asked broker coordinates and knows, whichever protocol they speak.

    Empty while it loads any group. Raises RequestFailed, UnsupportedApi.
    """
    if not groups:
        return {}
    # DescribeGroups knows classic groups only, ConsumerGroupDescribe only the others, and a group may change.
    answer = await client.ask_once(ListGroupsRequest(), ListGroupsResponse)
    return {each.group_id: each.group_state for each in answer.groups if each.group_id in groups and each.group_state}


async def group_members(client: Client, group: str) -> frozenset[str] | None:
    """Ids of the members that the group's coordinator knows, whichever protocol they speak; None where it loads, or has
    moved. Waits until there is a coordinator. Raises RequestFailed, UnsupportedApi.
    """
    ask, found = GroupCoordinatorClient(client, group).ask, set[str]()
    classic = (await ask(DescribeGroupsRequest([group]), DescribeGroupsResponse, DESCRIBED)).groups[0]
    if classic.error_code in ELSEWHERE:
        return None
    found |= {each.member_id for each in classic.members}
    if not found:
        # DescribeGroups has no members of a group of the other protocol, and says so in different ways.
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
    """Have preferred leaders (`unclean`: any live replica, where there is no leader) elected; None: wherever needed.

    Partition -> empty, or the error's name (ELECTION_NOT_NEEDED where all was well). Of None, only those that were
    elected or could not be. Raises RequestFailed: then nothing is known.
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
    _refuse(answer.error_code, found or places is not None)
    return {**dict.fromkeys(places or (), _name(answer.error_code)), **found}


async def alter_partition_reassignments(
    client: Client, moves: Mapping[Place, Sequence[int] | None], *, timeout_ms: int = 10_000
) -> dict[Place, str]:
    """Have partitions move to other brokers, the preferred leader first; None calls a move off.

    Partition -> empty, or the error's name. It has begun then, and goes on until the new replicas have caught up: see
    `list_partition_reassignments`. Raises RequestFailed: then nothing is known.
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
    """Return which of these partitions (None: of all) are being reassigned to other brokers. Raises RequestFailed."""
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


async def describe_quorum(client: Client) -> QuorumView:
    """The metadata quorum as its leader, which is the active controller, sees it. Raises RequestFailed."""
    part = quorum_wire.DescribeQuorumRequestPartitionData(0)
    request = quorum_wire.DescribeQuorumRequest([quorum_wire.DescribeQuorumRequestTopicData(CLUSTER_METADATA, [part])])
    answer = await client.ask_once(request, quorum_wire.DescribeQuorumResponse)
    _refuse(answer.error_code)
    told = answer.topics[0].partitions[0]
    _refuse(told.error_code)
    return QuorumView(
        told.leader_id,
        told.leader_epoch,
        told.high_watermark,
        {replica.replica_id: replica.log_end_offset for replica in told.current_voters},
        {replica.replica_id: replica.log_end_offset for replica in told.observers},
    )


async def unseat_controller(client: Client) -> QuorumView:
    """Have the active controller give up its leadership of the quorum, alive and without a restart. What was before.

    A vote is asked of it for the next epoch in another voter's name, as by one that has lost touch with it: as Raft
    has it, it goes into that epoch and leads no more; whoever is elected next has all that is committed. `client` must
    speak to the listener between nodes. Nothing happens where another epoch has begun meanwhile. Raises RequestFailed.
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
    await client.ask_node(quorum.leader_id, request, vote_wire.VoteResponse, version=vote_wire.VoteRequest.MAX_VERSION)
    return quorum


async def update_features(client: Client, levels: Mapping[str, int], *, timeout_ms: int = 10_000) -> str:
    """Finalize features at other levels, all or none; 0 switches one off. Empty, or the error's name.

    Raises RequestFailed: then nothing is known.
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
    """An error of the whole answer, where there is nothing to hang it on."""
    if code and not tolerated:
        raise RequestFailed(name_of(code), sent=True, detail="refused as a whole")


async def list_offsets(
    client: Client, places: Sequence[Place], timestamp: int, *, isolation: int = 0, timeout_s: float = 10.0
) -> dict[Place, ListedOffset]:
    """An offset of each partition, from its leader: LATEST, EARLIEST or the first at or after a timestamp.

    Tries again until all have answered or the time is up; partitions without an answer then say why.
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
    for told in answer.topics:
        for part in told.partitions:
            found[told.name, part.partition_index] = ListedOffset(
                part.offset,
                part.timestamp,
                part.leader_epoch,
                _name(part.error_code),
                epochs.get((told.name, part.partition_index), -1),
            )
            if part.error_code != ErrorCode.NONE:
                client.refresh_soon()  # As Kafka's consumer: UNKNOWN_LEADER_EPOCH is a topic that was made anew, too.


def _name(code: int) -> str:
    return "" if code == ErrorCode.NONE else name_of(code)
