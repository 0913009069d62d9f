"""Lists the APIs of the wire protocol: their keys, versions, header versions and message classes.

Importing this module imports no message class: `request_class` and `response_class` load a schema module on first use,
which keeps a broker's start short and its memory small.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from squall.broker.protocol.wire import Message


class ApiKey(IntEnum):
    """Enumerates the API keys: the int16 at the beginning of every request."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


NEVER_FLEXIBLE = 0x7FFF
"""Is the `flexible_from` of an API that has no flexible version."""


class Api(NamedTuple):
    """Represents one row of the API table. Version bounds are inclusive."""

    key: int
    name: str
    """Is Kafka's name of the API, such as "ApiVersions"."""
    min_version: int
    """Is the lowest version listed to clients. Produce lists 0 (KAFKA-18659) but is served from `first_decodable` only.
    """
    max_version: int
    """Is the highest version listed and served."""
    flexible_from: int
    """Is the first version with compact encodings and tagged fields, or NEVER_FLEXIBLE if there is none."""
    module: str
    """Names the schema module under squall.broker.protocol.schema."""
    request: str
    """Names the class of the request."""
    response: str
    """Names the class of the response."""
    first_decodable: int
    """Is the lowest version that has a schema. A request below it closes its connection."""


def _api(
    key: ApiKey, name: str, min_version: int, max_version: int, flexible_from: int, first_decodable: int | None = None
) -> Api:
    first = min_version if first_decodable is None else first_decodable
    request, response = name + "Request", name + "Response"
    return Api(int(key), name, min_version, max_version, flexible_from, key.name.lower(), request, response, first)


_ROWS = (
    _api(ApiKey.PRODUCE, "Produce", 0, 13, 9, 3),
    _api(ApiKey.FETCH, "Fetch", 4, 18, 12),
    _api(ApiKey.LIST_OFFSETS, "ListOffsets", 1, 11, 6),
    _api(ApiKey.METADATA, "Metadata", 0, 13, 9),
    _api(ApiKey.OFFSET_COMMIT, "OffsetCommit", 2, 10, 8),
    _api(ApiKey.OFFSET_FETCH, "OffsetFetch", 1, 10, 6),
    _api(ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6, 3),
    _api(ApiKey.JOIN_GROUP, "JoinGroup", 0, 9, 6),
    _api(ApiKey.HEARTBEAT, "Heartbeat", 0, 4, 4),
    _api(ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5, 4),
    _api(ApiKey.SYNC_GROUP, "SyncGroup", 0, 5, 4),
    _api(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 5),
    _api(ApiKey.LIST_GROUPS, "ListGroups", 0, 5, 3),
    _api(ApiKey.SASL_HANDSHAKE, "SaslHandshake", 0, 1, NEVER_FLEXIBLE),
    _api(ApiKey.API_VERSIONS, "ApiVersions", 0, 4, 3),
    _api(ApiKey.CREATE_TOPICS, "CreateTopics", 2, 7, 5),
    _api(ApiKey.DELETE_TOPICS, "DeleteTopics", 1, 6, 4),
    _api(ApiKey.DELETE_RECORDS, "DeleteRecords", 0, 2, 2),
    _api(ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 5, 2),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, 4),
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 3),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 3),
    _api(ApiKey.END_TXN, "EndTxn", 0, 5, 3),
    _api(ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", 1, 2, 1),
    _api(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 3),
    _api(ApiKey.DESCRIBE_ACLS, "DescribeAcls", 1, 3, 2),
    _api(ApiKey.CREATE_ACLS, "CreateAcls", 1, 3, 2),
    _api(ApiKey.DELETE_ACLS, "DeleteAcls", 1, 3, 2),
    _api(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 4),
    _api(ApiKey.ALTER_CONFIGS, "AlterConfigs", 0, 2, 2),
    _api(ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 4, 2),
    _api(ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2),
    _api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2),
    _api(ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2, 2),
    _api(ApiKey.ELECT_LEADERS, "ElectLeaders", 0, 2, 2),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1, 0),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0),
    _api(ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0, NEVER_FLEXIBLE),
    _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1),
    _api(ApiKey.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 1),
    _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0),
    _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0),
    _api(ApiKey.VOTE, "Vote", 0, 2, 0),
    _api(ApiKey.BEGIN_QUORUM_EPOCH, "BeginQuorumEpoch", 0, 1, 1),
    _api(ApiKey.END_QUORUM_EPOCH, "EndQuorumEpoch", 0, 1, 1),
    _api(ApiKey.DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0),
    _api(ApiKey.ALTER_PARTITION, "AlterPartition", 2, 3, 0),
    _api(ApiKey.UPDATE_FEATURES, "UpdateFeatures", 0, 2, 0),
    _api(ApiKey.ENVELOPE, "Envelope", 0, 0, 0),
    _api(ApiKey.FETCH_SNAPSHOT, "FetchSnapshot", 0, 1, 0),
    _api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0),
    _api(ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0),
    _api(ApiKey.BROKER_REGISTRATION, "BrokerRegistration", 0, 4, 0),
    _api(ApiKey.BROKER_HEARTBEAT, "BrokerHeartbeat", 0, 1, 0),
    _api(ApiKey.UNREGISTER_BROKER, "UnregisterBroker", 0, 0, 0),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0),
    _api(ApiKey.LIST_TRANSACTIONS, "ListTransactions", 0, 2, 0),
    _api(ApiKey.ALLOCATE_PRODUCER_IDS, "AllocateProducerIds", 0, 0, 0),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0),
    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0),
    _api(ApiKey.CONTROLLER_REGISTRATION, "ControllerRegistration", 0, 0, 0),
    _api(ApiKey.LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 0),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0),
)

APIS: dict[int, Api] = {row.key: row for row in _ROWS}
"""Maps each API key to its row. Keys that are missing here are not supported at all."""


@cache
def request_class(key: int) -> type[Message]:
    """Return the message class of an API's requests. Its schema module is imported on first use. Raises KeyError for an
    unknown key.
    """
    api = APIS[key]
    found: type[Message] = getattr(import_module(f"squall.broker.protocol.schema.{api.module}"), api.request)
    return found


@cache
def response_class(key: int) -> type[Message]:
    """Return the message class of an API's responses. Its schema module is imported on first use. Raises KeyError for
    an unknown key.
    """
    api = APIS[key]
    found: type[Message] = getattr(import_module(f"squall.broker.protocol.schema.{api.module}"), api.response)
    return found


def request_header_version(key: int, version: int) -> int:
    """Return the header version of a request: 2 (with tagged fields) if `version` is flexible, else 1. Raises KeyError
    for an unknown key.
    """
    return 2 if version >= APIS[key].flexible_from else 1


def response_header_version(key: int, version: int) -> int:
    """Return the header version of a response: 1 (with tagged fields) if `version` is flexible, else 0. Raises KeyError
    for an unknown key.

    ApiVersions responses always have header 0: the client reads them before it knows the broker's versions (KIP-511).
    """
    if key == ApiKey.API_VERSIONS:
        return 0
    return 1 if version >= APIS[key].flexible_from else 0
