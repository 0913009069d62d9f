"""Declares the records that kio, the library of Kafka's message classes, lacks: those of the metadata log, the group
coordinator and the transaction coordinator.

Names, types, versions, tags, defaults and api keys are Kafka's (apache/kafka: metadata/src/main/resources/common/
metadata, group-coordinator and transaction-coordinator src/main/resources/common/message; Apache-2.0).
"""

from __future__ import annotations

from typing import Final

from squall.broker.protocol.codegen.model import FIXED, FieldEncoding, FieldModel, MessageModel, StructModel
from squall.broker.protocol.wire import ZERO_UUID

NEVER: Final = 0x7FFF
_UNSET: Final = object()


class DeclaredField:
    """Describes a field that the versions `since` to `until` have. `kind` is its type as Kafka's schema writes it
    ("[]int32", "[]BrokerEndpoint"); `fields` are the fields of such a structure.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        since: int = 0,
        until: int = NEVER,
        tag: int | None = None,
        default: object = _UNSET,
        nullable: bool = False,
        ignorable: bool = False,
        fields: tuple[DeclaredField, ...] = (),
    ) -> None:
        self.name, self.since, self.until, self.tag = name, since, until, tag
        self.array = kind.startswith("[]")
        bare = kind.removeprefix("[]")
        is_primitive = bare in FIXED or bare in ("string", "bytes")
        self.kind = bare if is_primitive else "struct"
        self.struct = None if is_primitive else bare
        self.nullable = nullable or default is None
        self.ignorable = ignorable
        self.fields = fields
        self.default = self._implicit_default() if default is _UNSET else default

    def _implicit_default(self) -> object:
        if self.array:
            return ()
        by_kind = {"struct": ..., "string": "", "bytes": b"", "uuid": ZERO_UUID, "bool": False, "float64": 0.0}
        return by_kind.get(self.kind, 0)


F = DeclaredField
"""Is a short name for the declarations below, of which there are many."""


class DeclaredMessage:
    """Describes a record that kio lacks, with the versions 0 to `last`. `key` is its apiKey in Kafka's schema."""

    def __init__(self, name: str, key: int, last: int, flexible_from: int, *fields: DeclaredField) -> None:
        self.name, self.key, self.last, self.flexible_from, self.fields = name, key, last, flexible_from, fields

    def model(self) -> MessageModel:
        """Return the `MessageModel` from which the message's code is generated."""
        structs: dict[str, StructModel] = {}
        self._add(self.name, self.fields, range(self.last + 1), structs)
        return MessageModel(self.name, self.key, 0, self.last, self.flexible_from, structs)

    def _add(
        self, name: str, fields: tuple[DeclaredField, ...], versions: range, structs: dict[str, StructModel]
    ) -> None:
        struct = StructModel(name)
        for field in fields:
            inside = range(max(versions.start, field.since), min(versions.stop, field.until + 1))
            if field.struct is not None and field.fields:
                self._add(field.struct, field.fields, inside, structs)
            struct.fields[field.name] = FieldModel(
                field.name, field.kind, field.array, field.nullable, field.default, field.struct, field.ignorable
            )
        for version in versions:
            struct.shapes[version] = tuple(
                FieldEncoding(field.name, field.kind, field.array, field.nullable, field.tag, field.struct)
                for field in fields
                if field.since <= version <= field.until
            )
        structs[name] = struct


_ENDPOINT = (F("name", "string"), F("host", "string"), F("port", "uint16"), F("security_protocol", "int16"))
_FEATURE = (F("name", "string"), F("min_supported_version", "int16"), F("max_supported_version", "int16"))

METADATA: Final = (
    DeclaredMessage(
        "RegisterBrokerRecord",
        0,
        4,
        0,
        F("broker_id", "int32"),
        F("is_migrating_zk_broker", "bool", since=2),
        F("incarnation_id", "uuid"),
        F("broker_epoch", "int64"),
        F("end_points", "[]BrokerEndpoint", fields=_ENDPOINT),
        F("features", "[]BrokerFeature", fields=_FEATURE),
        F("rack", "string", nullable=True),
        F("fenced", "bool", default=True),
        F("in_controlled_shutdown", "bool", since=1),
        F("log_dirs", "[]uuid", since=3, tag=0),
        F("cordoned_log_dirs", "[]uuid", since=4, tag=1, default=None),
    ),
    DeclaredMessage("UnregisterBrokerRecord", 1, 0, 0, F("broker_id", "int32"), F("broker_epoch", "int64")),
    DeclaredMessage("TopicRecord", 2, 0, 0, F("name", "string"), F("topic_id", "uuid")),
    DeclaredMessage(
        "PartitionRecord",
        3,
        2,
        0,
        F("partition_id", "int32", default=-1),
        F("topic_id", "uuid"),
        F("replicas", "[]int32"),
        F("isr", "[]int32"),
        F("removing_replicas", "[]int32"),
        F("adding_replicas", "[]int32"),
        F("leader", "int32", default=-1),
        F("leader_recovery_state", "int8", tag=0),
        F("leader_epoch", "int32", default=-1),
        F("partition_epoch", "int32", default=-1),
        F("directories", "[]uuid", since=1),
        F("eligible_leader_replicas", "[]int32", since=2, tag=1, default=None),
        F("last_known_elr", "[]int32", since=2, tag=2, default=None),
    ),
    DeclaredMessage(
        "ConfigRecord",
        4,
        0,
        0,
        F("resource_type", "int8"),
        F("resource_name", "string"),
        F("name", "string"),
        F("value", "string", nullable=True),
    ),
    DeclaredMessage(
        "PartitionChangeRecord",
        5,
        2,
        0,
        F("partition_id", "int32", default=-1),
        F("topic_id", "uuid"),
        F("isr", "[]int32", tag=0, default=None),
        F("leader", "int32", tag=1, default=-2),
        F("replicas", "[]int32", tag=2, default=None),
        F("removing_replicas", "[]int32", tag=3, default=None),
        F("adding_replicas", "[]int32", tag=4, default=None),
        F("leader_recovery_state", "int8", tag=5, default=-1),
        F("directories", "[]uuid", since=1, tag=8, default=None),
        F("eligible_leader_replicas", "[]int32", since=2, tag=6, default=None),
        F("last_known_elr", "[]int32", since=2, tag=7, default=None),
    ),
    DeclaredMessage("FenceBrokerRecord", 7, 0, 0, F("id", "int32"), F("epoch", "int64")),
    DeclaredMessage("UnfenceBrokerRecord", 8, 0, 0, F("id", "int32"), F("epoch", "int64")),
    DeclaredMessage("RemoveTopicRecord", 9, 0, 0, F("topic_id", "uuid")),
    DeclaredMessage(
        "DelegationTokenRecord",
        10,
        0,
        0,
        F("owner", "string"),
        F("requester", "string"),
        F("renewers", "[]string"),
        F("issue_timestamp", "int64"),
        F("max_timestamp", "int64"),
        F("expiration_timestamp", "int64"),
        F("token_id", "string"),
    ),
    DeclaredMessage(
        "UserScramCredentialRecord",
        11,
        0,
        0,
        F("name", "string"),
        F("mechanism", "int8"),
        F("salt", "bytes"),
        F("stored_key", "bytes"),
        F("server_key", "bytes"),
        F("iterations", "int32"),
    ),
    DeclaredMessage("FeatureLevelRecord", 12, 0, 0, F("name", "string"), F("feature_level", "int16")),
    DeclaredMessage(
        "ClientQuotaRecord",
        14,
        0,
        0,
        F(
            "entity",
            "[]EntityData",
            fields=(F("entity_type", "string"), F("entity_name", "string", nullable=True)),
        ),
        F("key", "string"),
        F("value", "float64"),
        F("remove", "bool"),
    ),
    DeclaredMessage(
        "ProducerIdsRecord",
        15,
        0,
        0,
        F("broker_id", "int32"),
        F("broker_epoch", "int64", default=-1),
        F("next_producer_id", "int64"),
    ),
    DeclaredMessage(
        "BrokerRegistrationChangeRecord",
        17,
        3,
        0,
        F("broker_id", "int32"),
        F("broker_epoch", "int64"),
        F("fenced", "int8", tag=0),
        F("in_controlled_shutdown", "int8", since=1, tag=1),
        F("log_dirs", "[]uuid", since=2, tag=2),
        F("cordoned_log_dirs", "[]uuid", since=3, tag=3, default=None),
    ),
    DeclaredMessage(
        "AccessControlEntryRecord",
        18,
        0,
        0,
        F("id", "uuid"),
        F("resource_type", "int8"),
        F("resource_name", "string"),
        F("pattern_type", "int8"),
        F("principal", "string"),
        F("host", "string"),
        F("operation", "int8"),
        F("permission_type", "int8"),
    ),
    DeclaredMessage("RemoveAccessControlEntryRecord", 19, 0, 0, F("id", "uuid")),
    DeclaredMessage("NoOpRecord", 20, 0, 0),
    DeclaredMessage("ZkMigrationStateRecord", 21, 0, 0, F("zk_migration_state", "int8")),
    DeclaredMessage("RemoveUserScramCredentialRecord", 22, 0, 0, F("name", "string"), F("mechanism", "int8")),
    DeclaredMessage("BeginTransactionRecord", 23, 0, 0, F("name", "string", tag=0, default=None)),
    DeclaredMessage("EndTransactionRecord", 24, 0, 0),
    DeclaredMessage("AbortTransactionRecord", 25, 0, 0, F("reason", "string", tag=0, default=None)),
    DeclaredMessage("RemoveDelegationTokenRecord", 26, 0, 0, F("token_id", "string")),
    DeclaredMessage(
        "RegisterControllerRecord",
        27,
        0,
        0,
        F("controller_id", "int32"),
        F("incarnation_id", "uuid"),
        F("zk_migration_ready", "bool"),
        F("end_points", "[]ControllerEndpoint", fields=_ENDPOINT),
        F("features", "[]ControllerFeature", fields=_FEATURE),
    ),
    DeclaredMessage("ClearElrRecord", 28, 0, 0, F("topic_name", "string")),
    DeclaredMessage("UnregisterControllerRecord", 29, 0, 0, F("controller_id", "int32")),
)

_MEMBER = (
    F("member_id", "string"),
    F("group_instance_id", "string", since=3, default=None, ignorable=True),
    F("client_id", "string"),
    F("client_host", "string"),
    F("rebalance_timeout", "int32", since=1, ignorable=True),
    F("session_timeout", "int32"),
    F("subscription", "bytes"),
    F("assignment", "bytes"),
)
_OWNED = (
    F("topic_id", "uuid"),
    F("partitions", "[]int32"),
    F("assignment_epochs", "[]int32", tag=0, default=None),
)
_TOPIC_METADATA = (
    F("topic_id", "uuid"),
    F("topic_name", "string"),
    F("num_partitions", "int32"),
    F(
        "partition_metadata",
        "[]PartitionMetadata",
        fields=(F("partition", "int32"), F("racks", "[]string")),
    ),
)

GROUP: Final = (
    DeclaredMessage(
        "OffsetCommitKey", 1, 0, NEVER, F("group", "string"), F("topic", "string"), F("partition", "int32")
    ),
    DeclaredMessage(
        "OffsetCommitValue",
        1,
        4,
        4,
        F("offset", "int64"),
        F("leader_epoch", "int32", since=3, default=-1, ignorable=True),
        F("metadata", "string"),
        F("commit_timestamp", "int64"),
        F("expire_timestamp", "int64", since=1, until=1, default=-1, ignorable=True),
        F("topic_id", "uuid", since=4, tag=0, ignorable=True),
    ),
    DeclaredMessage("GroupMetadataKey", 2, 0, NEVER, F("group", "string")),
    DeclaredMessage(
        "GroupMetadataValue",
        2,
        4,
        4,
        F("protocol_type", "string"),
        F("generation", "int32"),
        F("protocol", "string", nullable=True),
        F("leader", "string", nullable=True),
        F("current_state_timestamp", "int64", since=2, default=-1, ignorable=True),
        F("members", "[]MemberMetadata", fields=_MEMBER),
    ),
    DeclaredMessage("ConsumerGroupMetadataKey", 3, 0, NEVER, F("group_id", "string")),
    DeclaredMessage(
        "ConsumerGroupMetadataValue",
        3,
        0,
        0,
        F("epoch", "int32"),
        F("metadata_hash", "int64", tag=0),
    ),
    DeclaredMessage("ConsumerGroupPartitionMetadataKey", 4, 0, NEVER, F("group_id", "string")),
    DeclaredMessage(
        "ConsumerGroupPartitionMetadataValue",
        4,
        0,
        0,
        F("topics", "[]TopicMetadata", fields=_TOPIC_METADATA),
    ),
    DeclaredMessage("ConsumerGroupMemberMetadataKey", 5, 0, NEVER, F("group_id", "string"), F("member_id", "string")),
    DeclaredMessage(
        "ConsumerGroupMemberMetadataValue",
        5,
        0,
        0,
        F("instance_id", "string", nullable=True),
        F("rack_id", "string", nullable=True),
        F("client_id", "string"),
        F("client_host", "string"),
        F("subscribed_topic_names", "[]string"),
        F("subscribed_topic_regex", "string", nullable=True),
        F("rebalance_timeout_ms", "int32", default=-1),
        F("server_assignor", "string", nullable=True),
        F(
            "classic_member_metadata",
            "ClassicMemberMetadata",
            tag=0,
            default=None,
            fields=(
                F("session_timeout_ms", "int32"),
                F(
                    "supported_protocols",
                    "[]ClassicProtocol",
                    fields=(F("name", "string"), F("metadata", "bytes")),
                ),
            ),
        ),
    ),
    DeclaredMessage("ConsumerGroupTargetAssignmentMetadataKey", 6, 0, NEVER, F("group_id", "string")),
    DeclaredMessage(
        "ConsumerGroupTargetAssignmentMetadataValue",
        6,
        0,
        0,
        F("assignment_epoch", "int32"),
        F("assignment_timestamp", "int64", tag=0, ignorable=True),
    ),
    DeclaredMessage(
        "ConsumerGroupTargetAssignmentMemberKey", 7, 0, NEVER, F("group_id", "string"), F("member_id", "string")
    ),
    DeclaredMessage(
        "ConsumerGroupTargetAssignmentMemberValue",
        7,
        0,
        0,
        F("topic_partitions", "[]TopicPartition", fields=(F("topic_id", "uuid"), F("partitions", "[]int32"))),
    ),
    DeclaredMessage(
        "ConsumerGroupCurrentMemberAssignmentKey", 8, 0, NEVER, F("group_id", "string"), F("member_id", "string")
    ),
    DeclaredMessage(
        "ConsumerGroupCurrentMemberAssignmentValue",
        8,
        0,
        0,
        F("member_epoch", "int32"),
        F("previous_member_epoch", "int32"),
        F("state", "int8"),
        F("assigned_partitions", "[]TopicPartitions", fields=_OWNED),
        F("partitions_pending_revocation", "[]TopicPartitions", fields=_OWNED),
    ),
    DeclaredMessage(
        "ConsumerGroupRegularExpressionKey", 16, 0, NEVER, F("group_id", "string"), F("regular_expression", "string")
    ),
    DeclaredMessage(
        "ConsumerGroupRegularExpressionValue",
        16,
        0,
        0,
        F("topics", "[]string"),
        F("version", "int64"),
        F("timestamp", "int64"),
    ),
)

TRANSACTION: Final = (
    DeclaredMessage("TransactionLogKey", 0, 0, NEVER, F("transactional_id", "string")),
    DeclaredMessage(
        "TransactionLogValue",
        0,
        1,
        1,
        F("producer_id", "int64"),
        F("previous_producer_id", "int64", since=1, tag=0, default=-1),
        F("next_producer_id", "int64", since=1, tag=1, default=-1),
        F("producer_epoch", "int16"),
        F("transaction_timeout_ms", "int32"),
        F("transaction_status", "int8"),
        F(
            "transaction_partitions",
            "[]PartitionsSchema",
            nullable=True,
            fields=(F("topic", "string"), F("partition_ids", "[]int32")),
        ),
        F("transaction_last_update_timestamp_ms", "int64"),
        F("transaction_start_timestamp_ms", "int64"),
        F("client_transaction_version", "int16", since=1, tag=2),
    ),
)
