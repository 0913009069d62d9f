"""The differences from Apache Kafka 4.3.1 that are known: each with its reason, its source and what a user loses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.differential.answers import ABSENT, Tree

ANY = "<any>"
"""In place of a value: whatever it is."""
CLOSED = "<closed>"


@dataclass(frozen=True)
class At:
    """Where a difference is, as narrow as it can be said. `api`, `path` and `rows` are regular expressions: the first
    two of the whole, `rows` of a part of a row's name.
    """

    api: str
    path: str
    ours: Tree = ANY
    theirs: Tree = ANY
    rows: str = ""
    versions: range = range(100)

    def matches(self, api: str, version: int, row: str, path: str, ours: Tree, theirs: Tree) -> bool:
        """Whether a difference is here."""
        return (
            version in self.versions
            and re.fullmatch(self.api, api) is not None
            and re.fullmatch(self.path, path) is not None
            and re.search(self.rows, row) is not None
            and self.ours in (ours, ANY)
            and self.theirs in (theirs, ANY)
        )


@dataclass(frozen=True)
class Named:
    """One known difference."""

    name: str
    reason: str
    source: str
    """A KIP, an issue, a class of Apache Kafka 4.3.1, or the page of ours that decides it."""
    loss: str
    """What a user of Apache Kafka loses by it."""
    at: Sequence[At]
    ends: bool = False
    """The brokers' states differ afterwards: the rest of the row is not compared."""

    def matches(self, api: str, version: int, row: str, path: str, ours: Tree, theirs: Tree) -> bool:
        """Whether a difference is this one."""
        return any(each.matches(api, version, row, path, ours, theirs) for each in self.at)


NAMED: Sequence[Named] = (
    Named(
        "order of unordered lists",
        "Kafka answers in the order of a Java hash map, ours in the order of names or of the request",
        "java.util.HashMap; the protocol gives these lists no order",
        "nothing: Java's clients put them into maps",
        (At(".*", r".*<order>"),),
    ),
    Named(
        "APIs that are not served",
        "ACLs (29-31), SASL (17, 36), tokens (38-41), quotas (48, 49), SCRAM (50, 51), log directories (34),"
        " unregistering a broker (64), share groups (76-79, 83-87, 90-92), streams groups (88, 89) and changing voters"
        " (80, 81) are not part of Squall's broker",
        "docs/broker.md",
        "these calls of Admin, share consumers, and Kafka Streams' own group protocol (KIP-1071): they throw"
        " UnsupportedVersionException",
        (
            At(
                "ApiVersions",
                r"api_keys\[(17|29|30|31|34|36|38|39|40|41|48|49|50|51|64|7[6-9]|8[01]|8[3-9]|9[0-2])\]",
                ABSENT,
            ),
            At(
                "(Describe|Create|Delete)Acls|(Describe|Alter)ClientQuotas|(Describe|Alter)UserScramCredentials",
                "",
                CLOSED,
            ),
            At("UnregisterBroker", "", CLOSED),
        ),
    ),
    Named(
        "metadata and feature levels",
        "metadata.version is 4.2's; there are no share and streams groups, and voters are fixed",
        "KIP-584, KIP-853, KIP-932, KIP-1071",
        "nothing that is not listed as an API that is not served",
        (
            At("ApiVersions", r"finalized_features\[metadata\.version\]\..*", 29, 30),
            At("ApiVersions", r"supported_features\[kraft\.version\]", ABSENT),
            At("ApiVersions", r"finalized_features\[(streams|share)\.version\]", ABSENT),
            At("ApiVersions", r"api_keys\[35\]\.max_version", 4, 5),
        ),
    ),
    Named(
        "settings of tiered storage and of Squall",
        "there is no tiered storage; squall.record.validation.enable is a setting of ours",
        "KIP-405; docs/broker.md",
        "topics in remote storage",
        (
            At("CreateTopics|DescribeConfigs", r".*configs\[(local\.retention\.(bytes|ms)|remote\..*)\]", ABSENT),
            At("CreateTopics|DescribeConfigs", r".*configs\[squall\..*\]", ANY, ABSENT),
        ),
    ),
    Named(
        "no time at all",
        "a request to the controller with a timeout of 0 or less is carried out here; Kafka's controller answers that"
        " its time is up, and may have carried it out",
        "org.apache.kafka.queue.EventQueue, org.apache.kafka.controller.QuorumController",
        "nothing: the answer is the more exact one",
        (
            At(
                "CreateTopics|DeleteTopics|CreatePartitions|AlterPartitionReassignments|ElectLeaders",
                ".*",
                rows=r"timeout_ms=(0|-1)$",
            ),
        ),
    ),
    Named(
        "named twice in one request",
        "what a request names twice is answered once, or refused the second time: one small request must not be able to"
        " ask for an answer of any size; Kafka answers each time, and fails JoinGroup with UNKNOWN_SERVER_ERROR",
        "docs/broker.md",
        "nothing: Java's clients put what they ask for into sets and maps",
        (At(".*", ".*", rows=r"of 2$|=\[(0, 0|1, 1|0, 1, 0, 1|'name', 'name'|'shared', 'shared')\]$"),),
    ),
    Named(
        "a topic without partitions",
        "a topic of a request that names no partition of it is left out of some answers and kept in others",
        "kafka.server.KafkaApis",
        "nothing: Java's clients send none",
        (At(".*", ".*", rows=r"(partitions|partition_indexes|partition_data|topic_partitions)=(\[\]|None)$"),),
    ),
    Named(
        "UNKNOWN_SERVER_ERROR for impossible numbers",
        "Kafka throws an exception at a negative size, an isolation level or an election type that does not exist, or a"
        " session that is ended before it began; here such a value counts as the nearest possible one",
        "org.apache.kafka.common.IsolationLevel, kafka.server.ReplicaManager",
        "nothing: the request has no meaning; a client's mistake stays unseen",
        (
            At("Fetch", ".*", rows=r"(max_bytes|isolation_level|session_id|partition_max_bytes)=(-1|127|2147483647)$"),
            At("ListOffsets", ".*", rows=r"isolation_level=(-1|127)$"),
            At("ElectLeaders", ".*", rows=r"election_type=(-1|127)$"),
            At("DescribeTopicPartitions", r"topics.*", rows=r"topics\.0\.name=''$"),
            At(
                "CreatePartitions",
                r".*error_code",
                "POLICY_VIOLATION",
                "UNKNOWN_SERVER_ERROR",
                rows=r"count=2147483647$",
            ),
            At(
                "IncrementalAlterConfigs",
                r".*error_code",
                "INVALID_REQUEST",
                "UNKNOWN_SERVER_ERROR",
                rows=r"config_operation=(-1|127)$",
            ),
        ),
    ),
    Named(
        "no answer from Kafka",
        "Kafka never answers AddPartitionsToTxn of version 4 and later without a transaction, and Produce without"
        " records",
        "kafka.server.KafkaApis.handleAddPartitionsToTxnRequest, handleProduceRequest",
        "nothing: the first is a request of brokers, and no client sends the second",
        (
            At("Produce", "", ANY, "<no answer within 10 s>", rows=r"records=None$"),
            At("AddPartitionsToTxn", "", ANY, "<no answer within 10 s>", rows=r"transactions=\[\]$"),
        ),
    ),
    Named(
        "a replica on a listener for clients",
        "a Fetch or ListOffsets that names a replica is answered as a consumer's: a follower's fetch offsets are"
        " acknowledgements, and whoever can reach the listener could forge them; Kafka looks for that replica",
        "docs/broker.md; kafka.server.ReplicaManager.fetchMessages",
        "nothing: kafka-python, which sends replica 0, is served by both",
        (At("Fetch|ListOffsets", "responses.*|topics.*", rows=r"replica_id=(0|2147483647)$"),),
    ),
    Named(
        "a zombie that claims an epoch while its successor's transaction is open",
        "InitProducerId with the producer id and an epoch that is not current is PRODUCER_FENCED while a transaction is"
        " Ongoing; Kafka aborts that transaction first, whatever epoch is claimed",
        "kafka.coordinator.transaction.TransactionCoordinator.prepareInitProducerIdTransit",
        "nothing: the producer that claims is fenced either way, and with Kafka the other one loses its transaction",
        (At("InitProducerId", "error_code", "PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS"),),
        ends=True,
    ),
    Named(
        "documentation of settings",
        "DescribeConfigs has no documentation",
        "KIP-569",
        "ConfigEntry.documentation() is null",
        (At("DescribeConfigs", r".*documentation", None, "<text>"),),
    ),
    Named(
        "sizes of coordinators' logs",
        "batches and records of the coordinators' logs are put together in another way, and so are of another size",
        "org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime (KAFKA-16895)",
        "nothing",
        (At("DescribeLogDirs", r".*topics\[__(consumer_offsets|transaction_state)\].*partition_size"),),
    ),
    Named(
        "positions in the metadata log",
        "the metadata log has other records",
        "KIP-500",
        "nothing",
        (At("DescribeQuorum", r".*(high_watermark|log_end_offset)"),),
    ),
    Named(
        "DescribeQuorum of another log",
        "a request that names anything but the metadata log is refused as a whole; Kafka refuses the partition",
        "org.apache.kafka.raft.KafkaRaftClient",
        "nothing: Java's client always names the metadata log",
        (At("DescribeQuorum", r"error_code|error_message|topics.*", rows=r"topics"),),
    ),
    Named(
        "limits of patterns",
        "a pattern may have 256 characters here, because matching must end in time",
        "docs/broker.md",
        "longer patterns of transactional ids (KIP-1152)",
        (
            At(
                "ListTransactions",
                "error_code",
                "INVALID_REGULAR_EXPRESSION",
                "NONE",
                rows="transactional_id_pattern=.* of 300$",
            ),
        ),
    ),
    Named(
        "bytes that are no batch",
        "a Produce whose records are zeros or empty is INVALID_RECORD, with the log's start; Kafka's CORRUPT_MESSAGE"
        " would be retried",
        "org.apache.kafka.common.record.DefaultRecordBatch, kafka.server.ReplicaManager.appendToLocalLog",
        "nothing: bytes that were damaged on the way fail their CRC, and are CORRUPT_MESSAGE here, too",
        (
            At("Produce", r".*error_code", "INVALID_RECORD", "CORRUPT_MESSAGE", rows=r"records=b.* of 61$"),
            At("Produce", r".*log_start_offset", 0, -1, rows=r"records=b"),
        ),
    ),
    Named(
        "a producer id without an epoch",
        "a batch with a producer id and no epoch is INVALID_RECORD; Kafka takes it from a producer that it does not"
        " know, and says INVALID_PRODUCER_EPOCH of one that it knows",
        "org.apache.kafka.storage.internals.log.ProducerAppendInfo",
        "nothing: no client sends such a batch",
        (
            At("Produce", r".*error_code", "INVALID_RECORD", "INVALID_PRODUCER_EPOCH"),
            At("Produce", r".*error_code", "INVALID_RECORD", "NONE"),
            At("Produce", r".*(base_offset|log_start_offset|error_message)", rows="epoch--1|idempot"),
        ),
        ends=True,
    ),
    Named(
        "the append time of a duplicate",
        "a batch that is in the log already has no append time in its answer; Kafka gives it the batch's largest"
        " timestamp",
        "kafka.server.ReplicaManager, org.apache.kafka.storage.internals.log.UnifiedLog",
        "nothing: RecordMetadata.timestamp() is the record's own here",
        (At("Produce", r".*log_append_time_ms", -1, rows="idempotent|idempotence|transactions"),),
    ),
    Named(
        "a group whose last offset is deleted",
        "a group ends at once with its last offset, by OffsetDelete or with its topic; Kafka's with the next clean-up",
        "org.apache.kafka.coordinator.group.OffsetMetadataManager.cleanupExpiredOffsets",
        "nothing",
        (
            At("OffsetDelete", "error_code", "GROUP_ID_NOT_FOUND", "NONE"),
            At("OffsetDelete", "topics.*", [], rows="^offsets-v|sequence"),
            At("ListGroups", r"groups\[.*\]", ABSENT),
        ),
        ends=True,
    ),
    Named(
        "when a pattern is resolved",
        "a member with a pattern has its partitions in the first answer; Kafka resolves the pattern in another thread",
        "KIP-848, org.apache.kafka.coordinator.group.GroupMetadataManager",
        "nothing: Kafka's member gets them with a later heartbeat",
        (
            At("ConsumerGroupHeartbeat", r"assignment\.topic_partitions", theirs=[], rows="^consumer-first-regex$"),
            At("ConsumerGroupHeartbeat", "member_epoch", 2, 1, rows="^consumer-first-regex$"),
        ),
        ends=True,
    ),
    Named(
        "a sentence where Kafka has none",
        "an error has a sentence for people where Kafka sends null, or the empty string where Kafka sends a sentence",
        "org.apache.kafka.common.requests.ApiError",
        "nothing: the error code is the same",
        (
            At(".*", r"(.*\.)?error_message", "<text>", None),
            At("UpdateFeatures", r".*error_message", "", "<text>"),
            At("ConsumerGroupHeartbeat", "error_message", None, "<text>"),
            At("AlterPartitionReassignments", "error_message", None, ""),
        ),
    ),
    Named(
        "a subscription that cannot be read",
        "the metadata of a member of a classic group is the members' own; Kafka reads it once the group has also had"
        " members of the consumer protocol's kind, and fails with UNKNOWN_SERVER_ERROR where it cannot",
        "org.apache.kafka.coordinator.group.classic.ClassicGroup (KIP-848)",
        "nothing: a client that sends no subscription under the type consumer is broken",
        (At("JoinGroup", ".*", rows=r"metadata=b.* of 16$"),),
    ),
    Named(
        "APIs that are not served, by Java's clients",
        'see "APIs that are not served"',
        "docs/broker.md",
        "these calls of Admin: UnsupportedVersionException",
        (
            At(
                "Java",
                "",
                "! UnsupportedVersionException",
                rows=r"share group|streams group|move to a directory|ACLs|quotas"
                r"|SCRAM|unregister no broker|create token",
            ),
            At("Java", "", rows="^features$"),
        ),
    ),
)
"""The first that fits a difference names it."""
