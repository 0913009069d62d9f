"""Defines the configuration of one node: Kafka's setting names, meanings and defaults, and Squall's own under
`squall.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

from squall.broker.config import unsupported_settings
from squall.broker.config.settings import (
    INT_MAX,
    LONG_MAX,
    SHORT_MAX,
    Endpoint,
    NodeAddress,
    declared,
    flag,
    integer,
    listing,
    long,
    ratio,
    read_endpoint,
    read_feature,
    read_node_address,
    read_server,
    short,
    text,
)

COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

DEVIATIONS = MappingProxyType(
    {
        "node.id": "must be given: there is no id that could be made up",
        "process.roles": "broker,controller: a node on its own is a whole cluster",
        "log.segment.bytes": "may be below 1 MiB, so that runs roll segments often",
        "queued.max.request.bytes": "bounded: Kafka's default lets clients fill the memory",
        "max.connections": "bounded: Kafka's default is no limit",
    }
)
"""Maps the settings whose default or range is not Kafka's to the reason."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokerConfig:
    """Holds all settings of a node, validated together. `load_config` makes it. Times are in ms, sizes in bytes."""

    # Who and where.
    node_id: int = integer(..., low=0)
    process_roles: tuple[str, ...] = listing(("broker", "controller"), "broker", "controller")
    broker_rack: str | None = text(None)
    listeners: tuple[Endpoint, ...] = listing((Endpoint("PLAINTEXT", "", 9092),), item=read_endpoint)
    advertised_listeners: tuple[Endpoint, ...] = listing((), item=read_endpoint)
    """Replaces the advertised address of the named listeners. All other listeners advertise their own address."""
    inter_broker_listener_name: str | None = text(None)
    controller_listener_names: tuple[str, ...] = listing(())
    listener_security_protocol_map: tuple[str, ...] = listing(())
    log_dir: str = text("/tmp/kafka-logs")
    log_dirs: tuple[str, ...] = listing(())
    metadata_log_dir: str | None = text(None)

    # Liveness and the controllers' quorum.
    broker_heartbeat_interval_ms: int = integer(2000, low=1)
    broker_session_timeout_ms: int = integer(9000, low=1)
    initial_broker_registration_timeout_ms: int = integer(60_000)
    controlled_shutdown_enable: bool = flag(True)
    controller_quorum_voters: tuple[NodeAddress, ...] = listing((), item=read_node_address)
    controller_quorum_bootstrap_servers: tuple[str, ...] = listing((), item=read_server)
    """Is accepted because Kafka's example file for one node sets it, but no server in it is ever asked for the voters:
    controller.quorum.voters names them. A controller without that setting refuses all addresses but its own.
    """
    controller_quorum_election_timeout_ms: int = integer(1000, low=1)
    controller_quorum_fetch_timeout_ms: int = integer(2000, low=1)
    controller_quorum_election_backoff_max_ms: int = integer(1000, low=1)
    controller_quorum_append_linger_ms: int = integer(25, low=0)
    controller_quorum_request_timeout_ms: int = integer(2000, low=1)
    controller_quorum_retry_backoff_ms: int = integer(20, low=0)
    metadata_log_segment_bytes: int = integer(1 << 30, low=12)
    metadata_log_max_record_bytes_between_snapshots: int = long(20 << 20, low=1)
    metadata_log_max_snapshot_interval_ms: int = long(HOUR_MS, low=0)
    metadata_max_idle_interval_ms: int = integer(500, low=0)
    metadata_max_retention_bytes: int = long(100 << 20)
    metadata_max_retention_ms: int = long(7 * DAY_MS)

    # Replication.
    default_replication_factor: int = integer(1, low=1, high=SHORT_MAX)
    min_insync_replicas: int = integer(1, low=1)
    replica_lag_time_max_ms: int = long(30_000, low=1)
    replica_fetch_max_bytes: int = integer(1 << 20, low=0)
    replica_fetch_wait_max_ms: int = integer(500, low=0)
    replica_fetch_min_bytes: int = integer(1, low=0)
    replica_fetch_response_max_bytes: int = integer(10 << 20, low=0)
    replica_fetch_backoff_ms: int = integer(1000, low=0)
    replica_socket_timeout_ms: int = integer(30_000, low=1)
    replica_high_watermark_checkpoint_interval_ms: int = long(5000, low=1)
    unclean_leader_election_enable: bool = flag(False)
    auto_leader_rebalance_enable: bool = flag(True)
    leader_imbalance_check_interval_seconds: int = long(300, low=1)
    leader_imbalance_per_broker_percentage: int = integer(10, low=0)

    # Connections and requests.
    socket_request_max_bytes: int = integer(100 << 20, low=1)
    socket_listen_backlog_size: int = integer(50, low=1)
    max_connections: int = integer(2000, low=0)
    max_connections_per_ip: int = integer(INT_MAX, low=0)
    connections_max_idle_ms: int = long(600_000)
    queued_max_request_bytes: int = long(256 << 20)
    request_timeout_ms: int = integer(30_000, low=1)
    fetch_max_bytes: int = integer(55 << 20, low=1024)
    max_incremental_fetch_session_cache_slots: int = integer(1000, low=0)
    max_request_partition_size_limit: int = integer(2000, low=1)

    # Topics.
    num_partitions: int = integer(1, low=1)
    auto_create_topics_enable: bool = flag(True)
    delete_topic_enable: bool = flag(True)

    # Logs.
    message_max_bytes: int = integer((1 << 20) + 12, low=0)
    compression_type: str = text("producer", *COMPRESSIONS)
    compression_gzip_level: int = integer(-1, low=-1, high=9)
    compression_lz4_level: int = integer(9, low=1, high=17)
    compression_zstd_level: int = integer(3, low=-131072, high=22)
    log_segment_bytes: int = integer(1 << 30, low=14)
    log_roll_ms: int | None = long(None, low=1)
    log_roll_hours: int = integer(168, low=1)
    log_roll_jitter_ms: int | None = long(None, low=0)
    log_roll_jitter_hours: int = integer(0, low=0)
    log_index_interval_bytes: int = integer(4096, low=0)
    log_index_size_max_bytes: int = integer(10 << 20, low=4)
    log_preallocate: bool = flag(False)
    log_message_timestamp_type: str = text("CreateTime", "CreateTime", "LogAppendTime")
    log_message_timestamp_before_max_ms: int = long(LONG_MAX, low=0)
    log_message_timestamp_after_max_ms: int = long(HOUR_MS, low=0)
    log_flush_interval_messages: int = long(LONG_MAX, low=1)
    log_flush_interval_ms: int | None = long(None, low=0)
    log_flush_scheduler_interval_ms: int = long(LONG_MAX, low=1)
    log_flush_offset_checkpoint_interval_ms: int = integer(60_000, low=0)
    log_flush_start_offset_checkpoint_interval_ms: int = integer(60_000, low=0)
    log_initial_task_delay_ms: int = long(30_000, low=0)
    log_retention_ms: int | None = long(None, low=-1)
    log_retention_minutes: int | None = integer(None, low=-1)
    log_retention_hours: int = integer(168, low=-1)
    log_retention_bytes: int = long(-1, low=-1)
    log_local_retention_ms: int = long(-2, low=-2)
    log_local_retention_bytes: int = long(-2, low=-2)
    log_retention_check_interval_ms: int = long(300_000, low=1)
    log_segment_delete_delay_ms: int = long(60_000, low=0)
    log_cleanup_policy: tuple[str, ...] = listing(("delete",), "compact", "delete")
    log_cleaner_enable: bool = flag(True)
    log_cleaner_threads: int = integer(1, low=0)
    log_cleaner_io_max_bytes_per_second: float = ratio(1.7976931348623157e308, high=None)
    log_cleaner_dedupe_buffer_size: int = long(128 << 20)
    log_cleaner_io_buffer_size: int = integer(512 << 10, low=0)
    log_cleaner_io_buffer_load_factor: float = ratio(0.9)
    log_cleaner_backoff_ms: int = long(15_000, low=0)
    log_cleaner_min_cleanable_ratio: float = ratio(0.5)
    log_cleaner_delete_retention_ms: int = long(DAY_MS, low=0)
    log_cleaner_min_compaction_lag_ms: int = long(0, low=0)
    log_cleaner_max_compaction_lag_ms: int = long(LONG_MAX, low=1)

    # Producers and transactions.
    producer_id_expiration_ms: int = integer(DAY_MS, low=1)
    producer_id_expiration_check_interval_ms: int = integer(600_000, low=1)
    transactional_id_expiration_ms: int = integer(7 * DAY_MS, low=1)
    transaction_max_timeout_ms: int = integer(900_000, low=1)
    transaction_state_log_replication_factor: int = short(3, low=1)
    transaction_state_log_min_isr: int = integer(2, low=1)
    transaction_state_log_num_partitions: int = integer(50, low=1)
    transaction_state_log_segment_bytes: int = integer(100 << 20, low=14)
    transaction_state_log_load_buffer_size: int = integer(5 << 20, low=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(10_000, low=1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(HOUR_MS, low=1)
    transaction_partition_verification_enable: bool = flag(True)
    transaction_two_phase_commit_enable: bool = flag(False)
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(100, low=0)

    # Offsets and groups.
    offset_metadata_max_bytes: int = integer(4096)
    offsets_topic_replication_factor: int = short(3, low=1)
    offsets_topic_num_partitions: int = integer(50, low=1)
    offsets_topic_segment_bytes: int = integer(100 << 20, low=14)
    offsets_topic_compression_codec: int = integer(0, low=0, high=4)
    offsets_load_buffer_size: int = integer(5 << 20, low=1)
    offsets_commit_timeout_ms: int = integer(5000, low=1)
    offsets_retention_minutes: int = integer(7 * 24 * 60, low=1)
    offsets_retention_check_interval_ms: int = long(600_000, low=1)
    group_min_session_timeout_ms: int = integer(6000)
    group_max_session_timeout_ms: int = integer(1_800_000)
    group_initial_rebalance_delay_ms: int = integer(3000)
    group_max_size: int = integer(INT_MAX, low=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = listing(
        ("classic", "consumer", "streams"), "classic", "consumer", "streams", "share"
    )
    group_consumer_session_timeout_ms: int = integer(45_000, low=1)
    group_consumer_min_session_timeout_ms: int = integer(45_000, low=1)
    group_consumer_max_session_timeout_ms: int = integer(60_000, low=1)
    group_consumer_heartbeat_interval_ms: int = integer(5000, low=1)
    group_consumer_min_heartbeat_interval_ms: int = integer(5000, low=1)
    group_consumer_max_heartbeat_interval_ms: int = integer(15_000, low=1)
    group_consumer_max_size: int = integer(INT_MAX, low=1)
    group_consumer_assignors: tuple[str, ...] = listing(("uniform", "range"), "uniform", "range")
    group_consumer_migration_policy: str = text("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")

    # Quotas.
    quota_window_num: int = integer(11, low=1)
    quota_window_size_seconds: int = integer(1, low=1)
    controller_quota_window_num: int = integer(11, low=1)
    controller_quota_window_size_seconds: int = integer(1, low=1)

    # Throttles of replication: taken and kept, so that Kafka's tools move replicas; nothing is throttled.
    follower_replication_throttled_rate: int = long(2**63 - 1, low=0)
    leader_replication_throttled_rate: int = long(2**63 - 1, low=0)
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(2**63 - 1, low=0)

    # Taken and kept, so that they can be altered as with Kafka: one event loop does all the work, connections come at
    # any rate, and there is one fetcher for each leader.
    background_threads: int = integer(10, low=1)
    max_connection_creation_rate: int = integer(INT_MAX, low=0)
    num_io_threads: int = integer(8, low=1)
    num_network_threads: int = integer(3, low=1)
    num_recovery_threads_per_data_dir: int = integer(2, low=1)
    num_replica_fetchers: int = integer(1, low=0)

    # A setting of Kafka's past, off here as in its present: followers that are more messages behind than this leave the
    # ISR (4000 in its day, gone since KAFKA-1546, because any burst threw all of them out).
    replica_lag_max_messages: int = long(-1, low=-1)

    # Another one: how followers' logs are made to agree with their leader's. To the high watermark is how it was before
    # KIP-101: it loses acknowledged records, and lets replicas differ for ever.
    squall_replication_truncation: str = text("epoch", "epoch", "high-watermark")

    # Squall's own.
    squall_cluster_id: str | None = text(None)
    squall_bootstrap_features: tuple[tuple[str, int], ...] = listing((), item=read_feature)
    """Sets feature levels of a new cluster, in place of this version's defaults, as `kafka-storage format --feature`
    does.
    """
    squall_peers: tuple[NodeAddress, ...] = listing((), item=read_node_address)
    """Gives, per peer, the address to connect to, in place of the peer's address in the metadata. The fault-injection
    harness uses it to put its own proxy on each directed link.
    """
    squall_incarnation: int = integer(1, low=1)
    squall_trace_path: str | None = text(None)
    squall_clock_offset_path: str | None = text(None)
    squall_turn_measurement_enable: bool = flag(False)
    """Turns on the measurement of the longest turn: the work of one trio task between two checkpoints that takes the
    most CPU time. The node's trace and metrics report it (`squall.broker.turn_meter`).
    """
    squall_metrics_port: int = integer(-1, low=-1, high=65_535)
    """Is the port of the OpenMetrics endpoint. -1 means no endpoint. 0 means any free port: the event `metrics_ready`
    in the node's trace (its file of events) has the number.
    """
    squall_metrics_host: str = text("127.0.0.1")
    squall_metrics_max_partitions: int = integer(1000, low=0)
    """Limits the replicas with metrics of their own: the first by name. The broker's totals count all replicas."""
    squall_inter_broker_max_connections: int = integer(1000, low=1)
    """Limits the connections on listeners that only nodes of the cluster use. max.connections limits those on client
    listeners.
    """
    squall_connection_parked_max_bytes: int = long(64 << 20, low=1)
    squall_connection_parked_max_partitions: int = integer(10_000, low=1)
    squall_connection_parked_max_requests: int = integer(1000, low=1)
    squall_decompressed_batch_max_bytes: int = integer(64 << 20, low=1)
    squall_request_max_bytes: int = integer(4 << 20, low=1 << 16)
    squall_replies_max_bytes: int = long(256 << 20, low=1 << 20)
    """Limits the bytes of responses that clients have not read yet, over all their connections."""
    squall_request_max_elements: int = integer(50_000, low=1000)
    """Limits the elements of all lists in a request other than Produce and Fetch."""
    squall_fetch_request_max_bytes: int = integer(1 << 20, low=1 << 16)
    """Limits the size of a Fetch request itself, not of its response. A larger request closes its connection. One MiB
    holds 30,000 partitions.
    """
    squall_fetch_sessions_max_partitions: int = integer(200_000, low=1)
    """Limits the partitions of all fetch sessions of a broker. The default takes 75 MB."""
    squall_produce_max_batches: int = integer(20_000, low=1000)
    """Limits the batches, and also the topics, of one Produce request."""
    squall_broker_max_replicas: int = integer(4000, low=1)
    """Limits the replicas of one broker. Each takes about three open files."""
    squall_small_segments_max: int = integer(1000, low=1)
    """Limits small segments: once the broker has this many inactive segments, it rolls no segment below one MiB,
    whatever the topic's settings say.
    """
    squall_groups_max_bytes: int = long(64 << 20, low=1 << 16)
    """Limits the memory, in bytes, that one group coordinator holds for members of classic groups."""
    squall_group_confirmed_positions: bool = flag(True)
    """Makes a group coordinator answer OffsetFetch with require_stable only after its in-sync followers have fetched
    once more, which proves that it is still the leader. Kafka answers at once.
    """
    squall_record_validation_enable: bool = flag(False)
    squall_controller_inherited_session: bool = flag(True)
    """Makes a new controller begin the broker session of the previous controller's node at that node's last response in
    the quorum, so a dead predecessor is fenced sooner; a living one still has time for a heartbeat. If false, all
    sessions begin when the new controller takes over, as with Kafka.
    """
    squall_transaction_first_producer_epoch: int = integer(0, low=0, high=32_766)
    """Is the first producer epoch of a new transactional id. A test run raises it to reach the overflow at 32,766."""

    given: Mapping[str, str] = field(default_factory=dict)
    """Holds the properties as they were given, by Kafka's names."""

    @property
    def ignored(self) -> list[str]:
        """Returns a sentence for each reason why given settings have no effect, because Squall lacks the feature they
        configure.
        """
        return unsupported_settings.ignored(self.given, [name for name in self.given if name not in BROKER_SETTINGS])

    @property
    def is_controller(self) -> bool:
        """Is True if this node votes in the controllers' quorum."""
        return "controller" in self.process_roles

    @property
    def data_dir(self) -> str:
        """Returns the directory of the logs."""
        return self.log_dirs[0] if self.log_dirs else self.log_dir

    @property
    def inter_broker_listener(self) -> str:
        """Returns the name of the listener for traffic between nodes: the configured name, else INTERNAL, else the
        first listener.
        """
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name
        names = [endpoint.name for endpoint in self.listeners]
        return "INTERNAL" if "INTERNAL" in names else names[0]

    @property
    def node_listeners(self) -> frozenset[str]:
        """Returns the names of the listeners for traffic between nodes. Controllers may have listeners of their own, as
        with Kafka.
        """
        return frozenset((self.inter_broker_listener, *self.controller_listener_names))

    @property
    def bind_listeners(self) -> tuple[Endpoint, ...]:
        """Returns the endpoints to listen on. A listener without a host listens on loopback only: opening to a network
        must be asked for.
        """
        return tuple(Endpoint(e.name, e.host or "127.0.0.1", e.port) for e in self.listeners)

    @property
    def advertised(self) -> tuple[Endpoint, ...]:
        """Returns the address to register for each listener, in the order of `listeners`."""
        named = {endpoint.name: endpoint for endpoint in self.advertised_listeners}
        return tuple(named.get(endpoint.name, endpoint) for endpoint in self.bind_listeners)

    @property
    def peers(self) -> Mapping[int, NodeAddress]:
        """Returns `squall.peers` by node id."""
        return {address.node_id: address for address in self.squall_peers}

    @property
    def voters(self) -> Mapping[int, NodeAddress]:
        """Returns `controller.quorum.voters` by node id."""
        return {address.node_id: address for address in self.controller_quorum_voters}

    @property
    def roll_ms(self) -> int:
        """Returns the age, in ms, at which a segment is rolled."""
        return self.log_roll_ms if self.log_roll_ms is not None else self.log_roll_hours * HOUR_MS

    @property
    def roll_jitter_ms(self) -> int:
        """Returns the maximum jitter in ms: a random time by which a segment is rolled before its age is `roll_ms`."""
        return self.log_roll_jitter_ms if self.log_roll_jitter_ms is not None else self.log_roll_jitter_hours * HOUR_MS

    @property
    def retention_ms(self) -> int:
        """Returns the age, in ms, at which a segment is deleted; -1 means never."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return self.log_retention_minutes * MINUTE_MS if self.log_retention_minutes >= 0 else -1
        return self.log_retention_hours * HOUR_MS if self.log_retention_hours >= 0 else -1

    @property
    def flush_ms(self) -> int:
        """Returns the age, in ms, at which unsynced data is flushed."""
        return (
            self.log_flush_interval_ms
            if self.log_flush_interval_ms is not None
            else self.log_flush_scheduler_interval_ms
        )


BROKER_SETTINGS = declared(fields(BrokerConfig))
"""Maps the name of every setting of a node to its type, default and allowed values."""
