"""Defines the client's settings, with Kafka's names and meanings. Contradictions are found at construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
IDEMPOTENT_IN_FLIGHT = 5
"""Limits the unanswered Produce requests of an idempotent producer on one connection: a broker remembers the last five
batches of a producer in each partition, and could not detect duplicates of earlier ones.
"""
BATCH_SIZE = 16 * 1024
FETCH_MAX_BYTES, FETCH_PARTITION_MAX_BYTES = 4 * 1024 * 1024, 1024 * 1024


class SettingsError(ValueError):
    """Reports an invalid setting, or settings that contradict each other. The message names them."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Configures connections and metadata, for producers, consumers and admins."""

    client_id: str = "squall"
    request_timeout_ms: int = 10_000
    """Limits the time from sending a request to its whole response. Waits on the broker come on top (max_wait_ms of a
    Fetch).
    """
    connect_timeout_ms: int = 3_000
    """Limits the time until a connection is open and its ApiVersions are known."""
    control_timeout_ms: int = 3_000
    """Limits the time of metadata and admin requests, which have their own connection."""
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 30_000
    only_bootstrap: bool = False
    """Restricts metadata and admin requests to the bootstrap servers, for clients that ask what each single broker
    sees.
    """
    max_response_bytes: int = 64 * 1024 * 1024
    """Limits the size of a response: a larger response ends its connection."""
    max_unsent_bytes: int = 4 * 1024 * 1024
    """Limits the unsent bytes of a connection: nothing more is sent over it until they are fewer."""
    newest_versions: Mapping[int, int] = field(default_factory=dict)
    """Maps API keys to the newest request version that this client may use, to imitate an earlier release: {3: 4} means
    Metadata up to version 4.
    """

    def __post_init__(self) -> None:
        for name in ("request_timeout_ms", "connect_timeout_ms", "control_timeout_ms", "metadata_max_age_ms"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name}={getattr(self, name)}: at least 1")
        for name in ("reconnect_backoff", "retry_backoff"):
            if not 0 < getattr(self, f"{name}_ms") <= getattr(self, f"{name}_max_ms"):
                raise SettingsError(f"{name}_ms={getattr(self, f'{name}_ms')}: above 0, at most {name}_max_ms")


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Configures one producer. The defaults are Kafka's, except for shorter time-outs: no chaos run waits for two
    minutes.
    """

    acks: int = -1
    """Selects the acknowledgement: 0 none, 1 by the leader, -1 by all in-sync replicas."""
    idempotence: bool = True
    linger_ms: int = 5
    batch_size: int = BATCH_SIZE
    """Limits the bytes of a batch before compression; a larger record gets its own batch."""
    codec: str = "none"
    max_in_flight: int = IDEMPOTENT_IN_FLIGHT
    """Limits the unanswered Produce requests on one connection."""
    delivery_timeout_ms: int = 30_000
    """Limits, per record, the time from `send` in which retries are sent. A request that is in flight when the time is
    over still waits for its response or for the end of its connection.
    """
    buffer_bytes: int = 32 * 1024 * 1024
    """Limits the bytes of records without an outcome."""
    max_request_bytes: int = 1024 * 1024
    keep_in_flight: bool = False
    """Keeps sending several requests at once after a failure, as Kafka's producer does with idempotence. If false, one
    request at a time is sent until one is acknowledged.
    """
    transactional_id: str = ""
    """Holds the transactional.id; empty for a producer without transactions. If it is set, `identify` gives the
    producer its producer id and epoch.
    """

    def __post_init__(self) -> None:
        if self.transactional_id and not self.idempotence:
            raise SettingsError(f"transactional_id={self.transactional_id!r}: needs idempotence")
        if self.acks not in (-1, 0, 1):
            raise SettingsError(f"acks={self.acks}: -1, 0 or 1")
        if self.idempotence and self.acks != -1:
            raise SettingsError(f"idempotence with acks={self.acks}: sequences promise nothing unless acks=-1")
        if self.max_in_flight < 1:
            raise SettingsError(f"max_in_flight={self.max_in_flight}: at least 1")
        if self.idempotence and self.max_in_flight > IDEMPOTENT_IN_FLIGHT:
            raise SettingsError(f"idempotence with max_in_flight={self.max_in_flight}: at most {IDEMPOTENT_IN_FLIGHT}")
        if self.codec not in CODECS:
            raise SettingsError(f"codec={self.codec!r}: one of {', '.join(CODECS)}")
        if self.keep_in_flight and not self.idempotence:
            raise SettingsError("keep_in_flight: without idempotence retries would change the order")
        if self.linger_ms < 0 or self.delivery_timeout_ms <= self.linger_ms:
            raise SettingsError(f"linger_ms={self.linger_ms}, delivery_timeout_ms={self.delivery_timeout_ms}: 0 <= <")
        for name in ("batch_size", "buffer_bytes", "max_request_bytes"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name}={getattr(self, name)}: at least 1")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Configures the Fetch requests of one consumer."""

    isolation: int = 0
    """Selects the isolation level: 0 read_uncommitted, 1 read_committed."""
    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = FETCH_MAX_BYTES
    """Limits the bytes of one response of one broker. A first batch is returned even if it is larger."""
    partition_max_bytes: int = FETCH_PARTITION_MAX_BYTES
    sessions: bool = False
    """Enables incremental fetch sessions (KIP-227), which Kafka's consumer uses."""

    def __post_init__(self) -> None:
        if self.isolation not in (0, 1):
            raise SettingsError(f"isolation={self.isolation}: 0 or 1")
        for name in ("min_bytes", "max_wait_ms", "max_bytes", "partition_max_bytes"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name}={getattr(self, name)}: at least 1")
