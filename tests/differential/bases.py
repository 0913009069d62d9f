"""A basic request of each API, as Java's clients fill it; its topic, group and transactional id have the same name.

`SETUPS` has the requests that create these first. The generated rows of `fields` vary one field at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.schema import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from tests.differential.steps import Ask, Batch, Ref, topic_id

PID, EPOCH = Ref("init", "producer_id"), Ref("init", "producer_epoch")
MEMBER, GENERATION = Ref("join", "member_id", ""), Ref("join", "generation_id")
SUBSCRIPTION = bytes.fromhex("0001") + bytes.fromhex("00000001000174") + bytes.fromhex("ffffffff00000000")
"""An encoded consumer subscription (version 1) to the topic "t", without user data and owned partitions."""
Name = str
Base = Callable[[Name, int], Any]


# ------------------------------------------------------------------------------------------------- what comes before


MANY = 50
"""How many partitions the topic "many" has: writing so many transaction markers takes some time."""


def make_topic(name: str, partitions: int = 2, step: str = "topic", **configs: str) -> Ask:
    """Create a topic with one replica."""
    settings = [create_topics.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    topic = create_topics.CreatableTopic(name, partitions, 1, configs=settings)
    return Ask(create_topics.CreateTopicsRequest([topic], 30_000), 7, step, setup=True)


def known_to_coordinators(name: str) -> Ask:
    """Return a request that creates a further topic. Once the broker serves that one, its group coordinator knows all
    earlier topics, because Kafka informs it last. So a consumer's first heartbeat finds them.
    """
    return make_topic(f"{name}-next", 1, "next")


def join(group: str, member: Any = "", version: int = 9, *, instance: str | None = None, **how: Any) -> Ask:
    """Ask to join a classic group. `how` has fields of `Ask`."""
    request = join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=2_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol("range", SUBSCRIPTION)],
    )
    return Ask(request, version, **how)


def become_member(group: str, step: str = "join") -> tuple[Ask, ...]:
    """Return the requests that make the only member of a classic group, with an assignment in the first generation."""
    sync = _sync_group(group, 5)
    return (
        join(group, name="first", setup=True),
        join(group, Ref("first", "member_id", ""), name=step, setup=True),
        Ask(sync, 5, "sync", setup=True),
    )


def init(transactional_id: str | None, step: str = "init", *, setup: bool = True) -> Ask:
    """Ask for a producer id by InitProducerId."""
    return Ask(init_producer_id.InitProducerIdRequest(transactional_id, 60_000), 5, step, setup=setup)


def _with_topic(name: Name) -> tuple[Ask, ...]:
    first = Ask(_produce(name, 9, Batch((b"1", b"2"))), 9, setup=True)
    return make_topic(name), first


def _with_group(name: Name) -> tuple[Ask, ...]:
    return become_member(name)


def _with_offsets(name: Name) -> tuple[Ask, ...]:
    commit = offset_commit.OffsetCommitRequest(name, topics=[_committed("shared")])
    return (Ask(commit, 8, setup=True),)


def _with_transaction(name: Name) -> tuple[Ask, ...]:
    return init(name), Ask(_add_partitions_to_txn(name, 3), 3, setup=True)


SETUPS: Mapping[int, Callable[[Name], tuple[Ask, ...]]] = {
    ApiKey.ALTER_CONFIGS: _with_topic,
    ApiKey.CREATE_PARTITIONS: _with_topic,
    ApiKey.DELETE_RECORDS: _with_topic,
    ApiKey.DELETE_TOPICS: _with_topic,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _with_topic,
    ApiKey.PRODUCE: _with_topic,
    ApiKey.HEARTBEAT: _with_group,
    ApiKey.JOIN_GROUP: _with_group,
    ApiKey.LEAVE_GROUP: _with_group,
    ApiKey.OFFSET_COMMIT: _with_group,
    ApiKey.SYNC_GROUP: _with_group,
    ApiKey.DESCRIBE_GROUPS: _with_group,
    ApiKey.DELETE_GROUPS: _with_offsets,
    ApiKey.OFFSET_DELETE: _with_offsets,
    ApiKey.OFFSET_FETCH: _with_offsets,
    ApiKey.ADD_OFFSETS_TO_TXN: lambda name: (init(name),),
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda name: (init(name),),
    ApiKey.DESCRIBE_TRANSACTIONS: _with_transaction,
    ApiKey.END_TXN: _with_transaction,
    ApiKey.TXN_OFFSET_COMMIT: lambda name: (
        init(name),
        Ask(_add_offsets_to_txn(name, 3), 3, setup=True),
    ),
}
"""For some APIs, the requests that create the topic, group or transaction of one row. Other APIs' rows use the topic
"shared", and no group.
"""


# ------------------------------------------------------------------------------------------------------- the requests


def _produce(name: Name, version: int, batch: Any = None) -> Any:
    part = produce.PartitionProduceData(0, Batch() if batch is None else batch)
    topic = produce.TopicProduceData("" if version >= 13 else name, topic_id("topic") if version >= 13 else bytes(16))
    topic.partition_data = [part]
    return produce.ProduceRequest(None, -1, 30_000, [topic])


def _fetch(_: Name, version: int) -> Any:
    part = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = fetch.FetchTopic("" if version >= 13 else "shared", topic_id("shared") if version >= 13 else bytes(16))
    topic.partitions = [part]
    return fetch.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=50 << 20, isolation_level=1, topics=[topic])


def _committed(name: Name, offset: int = 1) -> Any:
    part = offset_commit.OffsetCommitRequestPartition(0, offset, -1, "m")
    return offset_commit.OffsetCommitRequestTopic(name, partitions=[part])


def _offset_commit(name: Name, version: int) -> Any:
    topic = _committed("shared")
    if version >= 10:
        topic.name, topic.topic_id = "", topic_id("shared")
    return offset_commit.OffsetCommitRequest(name, GENERATION, MEMBER, topics=[topic])


def _offset_fetch(name: Name, version: int) -> Any:
    if version < 8:
        return offset_fetch.OffsetFetchRequest(name, topics=[offset_fetch.OffsetFetchRequestTopic("shared", [0, 1])])
    topic = offset_fetch.OffsetFetchRequestTopics("shared", partition_indexes=[0, 1])
    if version >= 10:
        topic.name, topic.topic_id = "", topic_id("shared")
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(name, topics=[topic])])


def _find_coordinator(name: Name, version: int) -> Any:
    if version < 4:
        return find_coordinator.FindCoordinatorRequest(key=name)
    return find_coordinator.FindCoordinatorRequest(coordinator_keys=[name])


def _leave_group(name: Name, version: int) -> Any:
    if version < 3:
        return leave_group.LeaveGroupRequest(name, member_id=MEMBER)
    return leave_group.LeaveGroupRequest(name, members=[leave_group.MemberIdentity(MEMBER, None, "bye")])


def _sync_group(name: Name, version: int) -> Any:
    given = [sync_group.SyncGroupRequestAssignment(MEMBER, b"assigned")]
    kind, protocol = ("consumer", "range") if version >= 5 else (None, None)
    return sync_group.SyncGroupRequest(name, GENERATION, MEMBER, None, kind, protocol, given)


def _list_groups(_: Name, version: int) -> Any:
    return list_groups.ListGroupsRequest(["Dead"] if version >= 4 else [], ["share"] if version >= 5 else [])


def _create_topics(name: Name, version: int) -> Any:
    config = create_topics.CreatableTopicConfig("retention.ms", "1000000")
    return create_topics.CreateTopicsRequest([create_topics.CreatableTopic(name, 2, 1, configs=[config])], 30_000)


def _delete_topics(name: Name, version: int) -> Any:
    if version < 6:
        return delete_topics.DeleteTopicsRequest([name], timeout_ms=30_000)
    return delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name)], timeout_ms=30_000)


def _add_partitions_to_txn(name: Name, version: int) -> Any:
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic("shared", [0])
    if version >= 4:
        one = add_partitions_to_txn.AddPartitionsToTxnTransaction(name, PID, EPOCH, False, [topic])
        return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[one])
    return add_partitions_to_txn.AddPartitionsToTxnRequest(name, [], PID, EPOCH, [topic])


def _add_offsets_to_txn(name: Name, _: int) -> Any:
    return add_offsets_to_txn.AddOffsetsToTxnRequest(name, PID, EPOCH, name)


def _write_txn_markers(_: Name, version: int) -> Any:
    topic = write_txn_markers.WritableTxnMarkerTopic("shared", [0])
    return write_txn_markers.WriteTxnMarkersRequest([write_txn_markers.WritableTxnMarker(7, 0, True, [topic], 0)])


def _txn_offset_commit(name: Name, _: int) -> Any:
    part = txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1, -1, "m")
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic("shared", [part])
    return txn_offset_commit.TxnOffsetCommitRequest(name, name, PID, EPOCH, topics=[topic])


def _alter_configs(name: Name, _: int) -> Any:
    resource = alter_configs.AlterConfigsResource(2, name, [alter_configs.AlterableConfig("retention.ms", "1000")])
    return alter_configs.AlterConfigsRequest([resource])


def _incremental(name: Name, _: int) -> Any:
    change = incremental_alter_configs.AlterableConfig("retention.ms", 0, "1000")
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(2, name, [change])]
    )


def _describe_configs(_: Name, version: int) -> Any:
    keys = ["retention.ms", "cleanup.policy"]
    return describe_configs.DescribeConfigsRequest([describe_configs.DescribeConfigsResource(2, "shared", keys)], True)


def _alter_quotas(name: Name, _: int) -> Any:
    entity = alter_client_quotas.AlterClientQuotasRequestEntityData("client-id", name)
    change = alter_client_quotas.OpData("consumer_byte_rate", 1e9, False)
    entry = alter_client_quotas.AlterClientQuotasRequestEntryData([entity], [change])
    return alter_client_quotas.AlterClientQuotasRequest([entry])


def _scram(name: Name, _: int) -> Any:
    one = alter_user_scram_credentials.ScramCredentialUpsertion(name, 1, 4096, b"salt", b"p" * 32)
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest([], [one])


def _consumer_heartbeat(name: Name, version: int) -> Any:
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(name, rebalance_timeout_ms=30_000)
    request.subscribed_topic_names, request.topic_partitions = ["shared"], []
    if version >= 1:
        request.member_id = "m"
    return request


def _list_transactions(name: Name, version: int) -> Any:
    return list_transactions.ListTransactionsRequest(["Dead"], transactional_id_pattern=name if version >= 2 else None)


BASES: Mapping[int, Base] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: lambda n, v: list_offsets.ListOffsetsRequest(
        -1, 0, [list_offsets.ListOffsetsTopic("shared", [list_offsets.ListOffsetsPartition(0, -1, -1)])]
    ),
    ApiKey.METADATA: lambda n, v: metadata.MetadataRequest([metadata.MetadataRequestTopic(name="shared")], False),
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: lambda n, v: join(n, MEMBER).request,
    ApiKey.HEARTBEAT: lambda n, v: heartbeat.HeartbeatRequest(n, GENERATION, MEMBER),
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.DESCRIBE_GROUPS: lambda n, v: describe_groups.DescribeGroupsRequest([n]),
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.API_VERSIONS: lambda n, v: api_versions.ApiVersionsRequest("apache-kafka-java", "4.3.1"),
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: lambda n, v: delete_records.DeleteRecordsRequest(
        [delete_records.DeleteRecordsTopic(n, [delete_records.DeleteRecordsPartition(0, 1)])], 30_000
    ),
    ApiKey.INIT_PRODUCER_ID: lambda n, v: init_producer_id.InitProducerIdRequest(n, 60_000),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda n, v: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        -1,
        [offset_for_leader_epoch.OffsetForLeaderTopic("shared", [offset_for_leader_epoch.OffsetForLeaderPartition()])],
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: lambda n, v: end_txn.EndTxnRequest(n, PID, EPOCH, True),
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_ACLS: lambda n, v: describe_acls.DescribeAclsRequest(2, n, 3, None, None, 1, 1),
    ApiKey.CREATE_ACLS: lambda n, v: create_acls.CreateAclsRequest(
        [create_acls.AclCreation(2, n, 3, "User:u", "*", 3, 3)]
    ),
    ApiKey.DELETE_ACLS: lambda n, v: delete_acls.DeleteAclsRequest(
        [delete_acls.DeleteAclsFilter(2, n, 3, None, None, 1, 1)]
    ),
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: lambda n, v: describe_log_dirs.DescribeLogDirsRequest(
        [describe_log_dirs.DescribableLogDirTopic("shared", [0])]
    ),
    ApiKey.CREATE_PARTITIONS: lambda n, v: create_partitions.CreatePartitionsRequest(
        [create_partitions.CreatePartitionsTopic(n, 3, None)], 30_000
    ),
    ApiKey.DELETE_GROUPS: lambda n, v: delete_groups.DeleteGroupsRequest([n]),
    ApiKey.ELECT_LEADERS: lambda n, v: elect_leaders.ElectLeadersRequest(
        0, [elect_leaders.TopicPartitions("shared", [0])], 30_000
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda n, v: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        30_000,
        topics=[
            alter_partition_reassignments.ReassignableTopic(
                "shared", [alter_partition_reassignments.ReassignablePartition(0, [1])]
            )
        ],
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda n, v: list_partition_reassignments.ListPartitionReassignmentsRequest(
        30_000, [list_partition_reassignments.ListPartitionReassignmentsTopics("shared", [0])]
    ),
    ApiKey.OFFSET_DELETE: lambda n, v: offset_delete.OffsetDeleteRequest(
        n, [offset_delete.OffsetDeleteRequestTopic("shared", [offset_delete.OffsetDeleteRequestPartition(0)])]
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda n, v: describe_client_quotas.DescribeClientQuotasRequest(
        [describe_client_quotas.ComponentData("client-id", 0, "other")], True
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda n, v: (
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            [describe_user_scram_credentials.UserName("u")]
        )
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _scram,
    ApiKey.DESCRIBE_QUORUM: lambda n, v: describe_quorum.DescribeQuorumRequest(
        [
            describe_quorum.DescribeQuorumRequestTopicData(
                "__cluster_metadata", [describe_quorum.DescribeQuorumRequestPartitionData(0)]
            )
        ]
    ),
    ApiKey.UPDATE_FEATURES: lambda n, v: update_features.UpdateFeaturesRequest(
        30_000, [update_features.FeatureUpdateKey("group.version", 1, False, 1)], v >= 1
    ),
    ApiKey.DESCRIBE_CLUSTER: lambda n, v: describe_cluster.DescribeClusterRequest(),
    ApiKey.DESCRIBE_PRODUCERS: lambda n, v: describe_producers.DescribeProducersRequest(
        [describe_producers.TopicRequest("shared", [0])]
    ),
    ApiKey.UNREGISTER_BROKER: lambda n, v: unregister_broker.UnregisterBrokerRequest(7),
    ApiKey.DESCRIBE_TRANSACTIONS: lambda n, v: describe_transactions.DescribeTransactionsRequest([n]),
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda n, v: consumer_group_describe.ConsumerGroupDescribeRequest([n]),
    ApiKey.LIST_CONFIG_RESOURCES: lambda n, v: list_config_resources.ListConfigResourcesRequest([32] if v else []),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda n, v: describe_topic_partitions.DescribeTopicPartitionsRequest(
        [describe_topic_partitions.TopicRequest("shared")]
    ),
}
"""The basic request of each API. References in it are not resolved; `fields.fitted` resets fields that a version lacks.
"""
