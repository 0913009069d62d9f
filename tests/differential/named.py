"""The known differences from Apache Kafka 4.3.1: each with its reason, its source, and what a user loses by it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.differential.answers import ABSENT, Tree

ANY = "<any>"
"""Matches any value."""
CLOSED = "<closed>"
SILENCE = "<no answer within 10 s>"
UNKNOWN = "UNKNOWN_SERVER_ERROR"
TWICE = r"of 2$|=\[(0, 0|1, 1|0, 1, 0, 1|'name', 'name'|'shared', 'shared')\]$"
NO_TIME = r"timeout_ms=(0|-1)$"
IMPOSSIBLE = r"(max_bytes=-1|isolation_level=(-1|127))$"
NO_SESSION = "session_id=2147483647$"
"""Regular expressions for the ends of rows' names."""


@dataclass(frozen=True)
class At:
    """Describes where a known difference occurs, as narrowly as possible. `api`, `path` and `rows` are regular
    expressions: `api` and `path` must match as a whole, `rows` a part of the row's name.
    """

    api: str
    path: str
    ours: Tree = ANY
    theirs: Tree = ANY
    rows: str = ""
    versions: range = range(100)

    def matches(self, api: str, version: int, row: str, path: str, ours: Tree, theirs: Tree) -> bool:
        """Return whether a difference occurs here."""
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
    """Its source: a KIP, an issue, a class of Apache Kafka 4.3.1, or the page of ours that decides it."""
    loss: str
    """What a user of Apache Kafka loses by it."""
    at: Sequence[At]
    ends: bool = False
    """Whether the brokers' states differ afterwards: then the rest of the row is not compared."""

    def matches(self, api: str, version: int, row: str, path: str, ours: Tree, theirs: Tree) -> bool:
        """Return whether a difference is an instance of this one."""
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
                r"(.*\.)?error_code",
                theirs="REQUEST_TIMED_OUT",
                rows=NO_TIME,
            ),
            At("(Create|Delete)Topics", r".*topic_id", theirs="<nil>", rows=NO_TIME),
            At("CreateTopics", r"topics.*(num_partitions|replication_factor)", theirs=-1, rows=NO_TIME),
            At("CreateTopics", r"topics.*configs", theirs=[], rows=NO_TIME),
            At("ElectLeaders", r"replica_election_results.*error_message", "<text>", None, rows=NO_TIME),
        ),
    ),
    Named(
        "described once",
        "a name that a request has twice is described once, and is INVALID_REQUEST the second time: a small request"
        " must not be able to ask for an answer of any size; Kafka describes it each time",
        "docs/broker.md",
        "nothing: Java's clients put what they ask for into sets and maps",
        (
            At(
                "DescribeGroups|ConsumerGroupDescribe|DescribeTransactions|DescribeProducers",
                r"(groups|transaction_states|topics)\[.*\]\.error_code",
                "INVALID_REQUEST",
                rows=TWICE,
            ),
            At("DescribeGroups", r"groups\[1\]\.group_state", "", "Dead", rows=TWICE),
            At("DescribeGroups|ConsumerGroupDescribe", r"groups\[1\]\.error_message", None, "<text>", rows=TWICE),
            At("OffsetFetch", r"groups\[1\]\.error_code", "INVALID_REQUEST", "NONE", rows=TWICE),
            At("OffsetFetch", r"groups\[1\]\.topics", [], rows=TWICE),
        ),
    ),
    Named(
        "answered once",
        "a partition that a request names twice has one result; Kafka repeats it, and the topic",
        "docs/broker.md",
        "nothing: Java's clients put partitions into sets and maps",
        (
            At("AddPartitionsToTxn", r"results_by_t.*\[.*\]", ABSENT, rows=TWICE),
            At("ElectLeaders", r"replica_election_results\[.*\]", ABSENT, rows=TWICE),
            At("OffsetFetch", r".*topics\[1\]", ABSENT, rows=TWICE),
            At("OffsetFetch", r".*topics\[0\]\.partitions\[[23]\]", theirs=ABSENT, rows=TWICE),
        ),
    ),
    Named(
        "refused the second time",
        "two orders for one partition or one feature contradict each other: the second is INVALID_REQUEST, or all are;"
        " Kafka takes both",
        "org.apache.kafka.controller.ReplicationControlManager, FeatureControlManager",
        "nothing: Java's clients keep orders in maps",
        (
            At("AlterPartitionReassignments", r"responses.*error_code", "INVALID_REQUEST", "NONE", rows=TWICE),
            At("AlterPartitionReassignments", r"responses.*error_message", "<text>", None, rows=TWICE),
            At("UpdateFeatures", "error_code", "INVALID_REQUEST", "NONE", rows=TWICE),
            At("UpdateFeatures", "error_message", "<text>", None, rows=TWICE),
            At("UpdateFeatures", "results", [], rows=TWICE),
        ),
    ),
    Named(
        "a key or a protocol twice",
        "the last value of a setting, and the first metadata of a protocol, count; Kafka refuses an AlterConfigs with a"
        " key twice (INVALID_REQUEST), and fails JoinGroup with UNKNOWN_SERVER_ERROR",
        "kafka.server.ConfigAdminManager; org.apache.kafka.coordinator.group.classic.ClassicGroupMember",
        "nothing: a client's mistake stays unseen; Java's clients keep both in maps",
        (
            At("AlterConfigs", r"responses.*error_code", "NONE", "INVALID_REQUEST", rows=TWICE),
            At("AlterConfigs", r"responses.*error_message", None, "<text>", rows=TWICE),
            At("JoinGroup", "error_code", "NONE", UNKNOWN, rows=TWICE),
            At("JoinGroup", "generation_id|protocol_type|protocol_name|leader|member_id|members", rows=TWICE),
        ),
    ),
    Named(
        "markers twice",
        "each marker of a request has its result; Kafka has one for each partition and producer, and never answers"
        " where one marker names a partition twice",
        "kafka.server.KafkaApis.handleWriteTxnMarkersRequest",
        "nothing: coordinators and Admin.abortTransaction name a partition once",
        (
            At("WriteTxnMarkers", r"markers.*partitions\[1\]", theirs=ABSENT, rows=TWICE),
            At("WriteTxnMarkers", "", theirs=SILENCE, rows=TWICE),
        ),
    ),
    Named(
        "a topic without partitions",
        "whether a topic of which a request names no partition has an entry in the answer depends on how a handler"
        " collects its results, which these do in another way than Kafka's",
        "kafka.server.KafkaApis",
        "nothing: Java's clients send none",
        (
            At("OffsetCommit", "topics", theirs=[], rows=r"topics\.0\.partitions=\[\]$"),
            At("OffsetFetch", r".*topics", [], rows=r"partition_indexes=\[\]$"),
            At("AddPartitionsToTxn", r".*(topic_results|v3_and_below)", [], rows=r"partitions=\[\]$"),
            At("(TxnOffsetCommit|OffsetDelete)", "topics", theirs=[], rows=r"topics\.0\.partitions=\[\]$"),
            At("ElectLeaders", "replica_election_results", [], rows=r"topic_partitions\.0\.partitions=\[\]$"),
        ),
    ),
    Named(
        "elections of all partitions",
        "ElectLeaders of all partitions lists those that it concerned; Kafka also lists topics of which it concerned"
        " none",
        "org.apache.kafka.controller.ReplicationControlManager.electLeaders (KIP-460)",
        "nothing: Admin.electLeaders(null) leaves out what has no partition",
        (At("ElectLeaders", "replica_election_results", [], rows="topic_partitions=None$"),),
    ),
    Named(
        "UNKNOWN_SERVER_ERROR for impossible numbers",
        "Kafka throws an exception at a negative size or an isolation level that does not exist; here such a value"
        " counts as the nearest possible one",
        "org.apache.kafka.common.IsolationLevel, kafka.server.ReplicaManager",
        "nothing: the request has no meaning; a client's mistake stays unseen",
        (
            At("Fetch", r"(.*\.)?error_code", "NONE", UNKNOWN, rows=IMPOSSIBLE),
            At("Fetch", r".*(high_watermark|last_stable_offset|log_start_offset)", theirs=-1, rows=IMPOSSIBLE),
            At("Fetch", r".*(aborted_transactions|records)|responses", rows=IMPOSSIBLE),
            At("ListOffsets", r"topics.*error_code", "NONE", UNKNOWN, rows=IMPOSSIBLE),
            At("ListOffsets", r"topics.*(offset|leader_epoch)", theirs=-1, rows=IMPOSSIBLE),
        ),
    ),
    Named(
        "the end of a session that never began",
        "a Fetch that ends a session (epoch -1) that does not exist is served; Kafka fails with UNKNOWN_SERVER_ERROR",
        "kafka.server.FetchManager (KIP-227)",
        "nothing: clients end sessions that they have",
        (
            At("Fetch", "error_code", "NONE", UNKNOWN, rows=NO_SESSION),
            At("Fetch", "session_id", 0, rows=NO_SESSION),
            At("Fetch", "responses", theirs=[], rows=NO_SESSION),
        ),
    ),
    Named(
        "elections of no known type",
        "ElectLeaders with a type that does not exist has no results; Kafka gives each partition INVALID_REQUEST",
        "org.apache.kafka.controller.ReplicationControlManager (KIP-460)",
        "nothing: Java's client has no other types",
        (At("ElectLeaders", "replica_election_results", [], rows=r"election_type=(-1|127)$"),),
    ),
    Named(
        "refused by name",
        "a refusal has the error that says why; Kafka's controller throws UNKNOWN_SERVER_ERROR",
        "org.apache.kafka.controller.ReplicationControlManager; kafka.server.ConfigAdminManager;"
        " kafka.server.handlers.DescribeTopicPartitionsRequestHandler",
        "nothing: what Kafka refuses is refused",
        (
            At(
                "DescribeTopicPartitions", r"topics.*error_code", "INVALID_TOPIC_EXCEPTION", rows=r"topics\.0\.name=''$"
            ),
            At("DescribeTopicPartitions", r"topics.*topic_authorized_operations", rows=r"topics\.0\.name=''$"),
            At("CreatePartitions", r".*error_code", "POLICY_VIOLATION", UNKNOWN, rows=r"count=2147483647$"),
            At("IncrementalAlterConfigs", r".*error_code", "INVALID_REQUEST", UNKNOWN, rows=r"config_operation="),
        ),
    ),
    Named(
        "no answer from Kafka",
        "Kafka never answers AddPartitionsToTxn of version 4 and later without a transaction, Produce without records,"
        " and AlterConfigs with a resource twice",
        "kafka.server.KafkaApis.handleAddPartitionsToTxnRequest, handleProduceRequest; kafka.server.ConfigAdminManager",
        "nothing: the first is a request of brokers, and no client sends the others",
        (
            At("Produce", "", theirs=SILENCE, rows="records=None$"),
            At("AddPartitionsToTxn", "", theirs=SILENCE, rows=r"transactions=\[\]$"),
            At("AlterConfigs", "", theirs=SILENCE, rows=TWICE),
        ),
    ),
    Named(
        "a replica on a listener for clients",
        "a Fetch or ListOffsets that names a replica is answered as a consumer's: a follower's fetch offsets are"
        " acknowledgements, and any client of the listener could forge them; Kafka looks for that replica",
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
        "waiting for the markers of the transaction before",
        "a producer that begins its next transaction while markers are being written waits for them, for at most 100"
        " ms, and so does a TxnOffsetCommit of V2 whose coordinator is asked; Kafka answers CONCURRENT_TRANSACTIONS,"
        " and its clients ask again after 20 to 100 ms",
        "docs/broker.md; KAFKA-5477, KAFKA-18654 (Kafka waits so where V2 produces)",
        "nothing: each request gets the answer that Kafka gives when it is asked again",
        (
            At("InitProducerId", "error_code", "NONE", "CONCURRENT_TRANSACTIONS", rows="^pipelined-"),
            At("InitProducerId", "producer_(id|epoch)", theirs=-1, rows="^pipelined-"),
            At(
                "Add(Partitions|Offsets)ToTxn",
                r"(.*\.)?(partition_)?error_code",
                "NONE",
                "CONCURRENT_TRANSACTIONS",
                rows="^pipelined-",
            ),
            At("TxnOffsetCommit", r".*error_code", theirs="CONCURRENT_TRANSACTIONS", rows="^pipelined-.*-v2-"),
        ),
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
            At("Produce", r".*base_offset", -1, rows="epoch--1|idempot"),
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
            At("Produce", r".*error_message", None, "<text>", rows="^pipelined-"),
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
        (
            At("JoinGroup", "error_code", "NONE", UNKNOWN, rows=r"metadata=b.* of 16$"),
            At(
                "JoinGroup",
                "generation_id|protocol_type|protocol_name|leader|member_id|members",
                rows=r"metadata=b.* of 16$",
            ),
        ),
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
"""All known differences. The first one that matches applies."""
