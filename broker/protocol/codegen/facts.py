"""Holds facts of Kafka's schemas that the message classes of the library kio lack."""

from __future__ import annotations

from typing import Final

IGNORABLE: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "AddPartitionsToTxnResponse": {
        "AddPartitionsToTxnResponse": ("error_code",),
    },
    "AlterPartitionReassignmentsResponse": {
        "AlterPartitionReassignmentsResponse": ("allow_replication_factor_change",),
    },
    "ApiVersionsRequest": {
        "ApiVersionsRequest": (
            "client_software_name",
            "client_software_version",
        ),
    },
    "ApiVersionsResponse": {
        "ApiVersionsResponse": (
            "finalized_features",
            "finalized_features_epoch",
            "supported_features",
            "throttle_time_ms",
            "zk_migration_ready",
        ),
    },
    "ConsumerProtocolSubscription": {
        "ConsumerProtocolSubscription": (
            "generation_id",
            "owned_partitions",
            "rack_id",
        ),
    },
    "CreateTopicsResponse": {
        "CreatableTopicConfigs": ("config_source",),
        "CreatableTopicResult": (
            "configs",
            "error_message",
            "num_partitions",
            "replication_factor",
            "topic_config_error_code",
            "topic_id",
        ),
        "CreateTopicsResponse": ("throttle_time_ms",),
    },
    "DeleteTopicsRequest": {
        "DeleteTopicsRequest": ("topic_names",),
    },
    "DeleteTopicsResponse": {
        "DeletableTopicResult": (
            "error_message",
            "topic_id",
        ),
        "DeleteTopicsResponse": ("throttle_time_ms",),
    },
    "DescribeConfigsResponse": {
        "DescribeConfigsResourceResult": (
            "config_source",
            "config_type",
            "documentation",
            "synonyms",
        ),
    },
    "DescribeGroupsResponse": {
        "DescribeGroupsResponse": ("throttle_time_ms",),
        "DescribedGroupMember": ("group_instance_id",),
    },
    "DescribeLogDirsResponse": {
        "DescribeLogDirsResponse": ("error_code",),
        "DescribeLogDirsResult": (
            "is_cordoned",
            "total_bytes",
            "usable_bytes",
        ),
    },
    "DescribeQuorumResponse": {
        "DescribeQuorumResponse": ("error_message", "nodes"),
        "PartitionData": ("error_message",),
        "ReplicaState": (
            "last_caught_up_timestamp",
            "last_fetch_timestamp",
        ),
    },
    "DescribeTopicPartitionsResponse": {
        "DescribeTopicPartitionsResponse": ("throttle_time_ms",),
        "DescribeTopicPartitionsResponsePartition": (
            "leader_epoch",
            "offline_replicas",
        ),
        "DescribeTopicPartitionsResponseTopic": (
            "is_internal",
            "topic_id",
        ),
    },
    "EndTxnResponse": {
        "EndTxnResponse": (
            "producer_epoch",
            "producer_id",
        ),
    },
    "FetchRequest": {
        "FetchPartition": (
            "current_leader_epoch",
            "high_watermark",
            "log_start_offset",
            "replica_directory_id",
        ),
        "FetchRequest": (
            "cluster_id",
            "isolation_level",
            "max_bytes",
            "rack_id",
            "session_epoch",
            "session_id",
        ),
        "FetchTopic": (
            "topic",
            "topic_id",
        ),
        "ForgottenTopic": (
            "topic",
            "topic_id",
        ),
    },
    "FetchResponse": {
        "FetchResponse": (
            "error_code",
            "throttle_time_ms",
        ),
        "FetchableTopicResponse": (
            "topic",
            "topic_id",
        ),
        "PartitionData": (
            "aborted_transactions",
            "last_stable_offset",
            "log_start_offset",
        ),
    },
    "FindCoordinatorResponse": {
        "Coordinator": ("error_message",),
        "FindCoordinatorResponse": (
            "error_message",
            "throttle_time_ms",
        ),
    },
    "HeartbeatResponse": {
        "HeartbeatResponse": ("throttle_time_ms",),
    },
    "InitProducerIdResponse": {
        "InitProducerIdResponse": ("throttle_time_ms",),
    },
    "JoinGroupRequest": {
        "JoinGroupRequest": (
            "reason",
            "rebalance_timeout_ms",
        ),
    },
    "JoinGroupResponse": {
        "JoinGroupResponse": (
            "protocol_type",
            "throttle_time_ms",
        ),
        "JoinGroupResponseMember": ("group_instance_id",),
    },
    "LeaveGroupRequest": {
        "MemberIdentity": ("reason",),
    },
    "LeaveGroupResponse": {
        "LeaveGroupResponse": ("throttle_time_ms",),
    },
    "ListConfigResourcesResponse": {
        "ConfigResource": ("resource_type",),
    },
    "ListGroupsResponse": {
        "ListGroupsResponse": ("throttle_time_ms",),
        "ListedGroup": (
            "group_state",
            "group_type",
        ),
    },
    "ListOffsetsRequest": {
        "ListOffsetsPartition": ("current_leader_epoch",),
        "ListOffsetsRequest": ("timeout_ms",),
    },
    "ListOffsetsResponse": {
        "ListOffsetsResponse": ("throttle_time_ms",),
    },
    "MetadataRequest": {
        "MetadataRequestTopic": ("topic_id",),
    },
    "MetadataResponse": {
        "MetadataResponse": (
            "cluster_id",
            "controller_id",
            "error_code",
            "throttle_time_ms",
        ),
        "MetadataResponseBroker": ("rack",),
        "MetadataResponsePartition": (
            "leader_epoch",
            "offline_replicas",
        ),
        "MetadataResponseTopic": (
            "is_internal",
            "topic_id",
        ),
    },
    "OffsetCommitRequest": {
        "OffsetCommitRequest": (
            "generation_id_or_member_epoch",
            "member_id",
            "retention_time_ms",
        ),
        "OffsetCommitRequestPartition": ("committed_leader_epoch",),
        "OffsetCommitRequestTopic": (
            "name",
            "topic_id",
        ),
    },
    "OffsetCommitResponse": {
        "OffsetCommitResponse": ("throttle_time_ms",),
        "OffsetCommitResponseTopic": (
            "name",
            "topic_id",
        ),
    },
    "OffsetDeleteResponse": {
        "OffsetDeleteResponse": ("throttle_time_ms",),
    },
    "OffsetFetchRequest": {
        "OffsetFetchRequestGroup": (
            "member_epoch",
            "member_id",
        ),
        "OffsetFetchRequestTopics": (
            "name",
            "topic_id",
        ),
    },
    "OffsetFetchResponse": {
        "OffsetFetchResponse": (
            "error_code",
            "throttle_time_ms",
        ),
        "OffsetFetchResponsePartition": ("committed_leader_epoch",),
        "OffsetFetchResponsePartitions": ("committed_leader_epoch",),
        "OffsetFetchResponseTopics": (
            "name",
            "topic_id",
        ),
    },
    "OffsetForLeaderEpochRequest": {
        "OffsetForLeaderEpochRequest": ("replica_id",),
        "OffsetForLeaderPartition": ("current_leader_epoch",),
    },
    "OffsetForLeaderEpochResponse": {
        "EpochEndOffset": ("leader_epoch",),
        "OffsetForLeaderEpochResponse": ("throttle_time_ms",),
    },
    "ProduceRequest": {
        "TopicProduceData": (
            "name",
            "topic_id",
        ),
    },
    "ProduceResponse": {
        "PartitionProduceResponse": (
            "error_message",
            "log_append_time_ms",
            "log_start_offset",
            "record_errors",
        ),
        "ProduceResponse": ("throttle_time_ms",),
        "TopicProduceResponse": (
            "name",
            "topic_id",
        ),
    },
    "SaslAuthenticateResponse": {
        "SaslAuthenticateResponse": ("session_lifetime_ms",),
    },
    "SyncGroupRequest": {
        "SyncGroupRequest": (
            "protocol_name",
            "protocol_type",
        ),
    },
    "SyncGroupResponse": {
        "SyncGroupResponse": (
            "protocol_name",
            "protocol_type",
            "throttle_time_ms",
        ),
    },
    "TxnOffsetCommitRequest": {
        "TxnOffsetCommitRequestPartition": ("committed_leader_epoch",),
    },
    "UpdateFeaturesResponse": {
        "UpdateFeaturesResponse": ("results",),
    },
    "WriteTxnMarkersRequest": {
        "WritableTxnMarker": ("transaction_version",),
    },
    "BeginQuorumEpochRequest": {
        "BeginQuorumEpochRequest": ("leader_endpoints", "voter_id"),
        "PartitionData": ("voter_directory_id",),
    },
    "BrokerHeartbeatRequest": {
        "BrokerHeartbeatRequest": ("cordoned_log_dirs", "offline_log_dirs"),
    },
    "BrokerRegistrationRequest": {
        "BrokerRegistrationRequest": ("is_migrating_zk_broker", "log_dirs", "previous_broker_epoch"),
    },
    "ConsumerGroupDescribeResponse": {
        "Member": ("member_type",),
    },
    "EndQuorumEpochRequest": {
        "EndQuorumEpochRequest": ("leader_endpoints",),
        "PartitionData": ("preferred_candidates", "preferred_successors"),
    },
    "FetchSnapshotRequest": {
        "PartitionSnapshot": ("replica_directory_id",),
    },
    "VoteRequest": {
        "PartitionData": ("replica_directory_id", "voter_directory_id"),
        "VoteRequest": ("voter_id",),
    },
}
"""Maps message and structure to the fields that are left out without an error if a version has no place for them."""
LEFT_OUT: Final = {("DescribeQuorumResponse", "nodes")}
"""Lists the exceptions in IGNORABLE, as (message, field). Kafka's schemas do not mark these fields as ignorable;
instead the code of Kafka's brokers leaves them out of old versions.
"""
