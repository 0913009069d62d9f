"""The client's settings, with Kafka's names and meanings. Relations are checked once, at construction."""

from __future__ import annotations

from dataclasses import dataclass

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
IDEMPOTENT_IN_FLIGHT = 5
"""A broker remembers the last five batches of a producer and partition: more in flight could not be told apart."""


class SettingsError(ValueError):
    """A setting that cannot be, or two that contradict each other. The message names them."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Connections and metadata, for producers, consumers and admins alike."""

    client_id: str = "squall"
    request_timeout_ms: int = 10_000
    """From handing a request over to its whole response. Broker-side waits come on top (a Fetch's max_wait_ms)."""
    connect_timeout_ms: int = 3_000
    """Until a connection is open and its ApiVersions are known."""
    control_timeout_ms: int = 3_000
    """As request_timeout_ms, for metadata and admin requests, which have a connection of their own."""
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 30_000
    only_bootstrap: bool = False
    """Metadata and admin requests go to bootstrap servers alone, whatever nodes the cluster names: for who wants to
    know what each broker sees, not what any of them does."""
    max_response_bytes: int = 64 * 1024 * 1024
    """A response announced larger than this ends its connection."""
    max_unsent_bytes: int = 4 * 1024 * 1024
    """No more is handed to a connection while this much of earlier requests has not gone out."""

    def __post_init__(self) -> None:
        for name in ("request_timeout_ms", "connect_timeout_ms", "control_timeout_ms", "metadata_max_age_ms"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name}={getattr(self, name)}: at least 1")
        for name in ("reconnect_backoff", "retry_backoff"):
            if not 0 < getattr(self, f"{name}_ms") <= getattr(self, f"{name}_max_ms"):
                raise SettingsError(f"{name}_ms={getattr(self, f'{name}_ms')}: above 0, at most {name}_max_ms")


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Configures one producer. The defaults are Kafka's, but for the time-outs: no chaos run waits for two minutes."""

    acks: int = -1
    """0: not answered at all. 1: the leader's log. -1: every in-sync replica's."""
    idempotence: bool = True
    linger_ms: int = 5
    batch_size: int = 16 * 1024
    """Bytes of a batch before compression; a larger record travels alone."""
    codec: str = "none"
    max_in_flight: int = IDEMPOTENT_IN_FLIGHT
    """Produce requests on one connection that wait for their answer."""
    delivery_timeout_ms: int = 30_000
    """After this, a record is not sent again. One under way then still gets its answer, or its connection's end."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Records handed over and not yet done with."""
    max_request_bytes: int = 1024 * 1024
    keep_in_flight: bool = False
    """After a failure as many requests are sent at once as before, as Kafka's producer does with idempotence; else one,
    until that is acknowledged."""
    transactional_id: str = ""
    """Records are parts of transactions. The producer then sends with the identity that it is given."""

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
    """Configures one consumer."""

    isolation: int = 0
    """0 read_uncommitted, 1 read_committed."""
    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 4 * 1024 * 1024
    """Of one response, one broker. A first batch comes even if it is larger."""
    partition_max_bytes: int = 1024 * 1024
    sessions: bool = False
    """Incremental fetch sessions (KIP-227), as Kafka's consumer has them."""

    def __post_init__(self) -> None:
        if self.isolation not in (0, 1):
            raise SettingsError(f"isolation={self.isolation}: 0 or 1")
        for name in ("min_bytes", "max_wait_ms", "max_bytes", "partition_max_bytes"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name}={getattr(self, name)}: at least 1")
