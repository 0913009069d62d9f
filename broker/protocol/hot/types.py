"""Defines Produce and Fetch as the broker uses them: tuples, with topics by the bytes that name them on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

NO_HIGH_WATERMARK: Final = (1 << 63) - 1
"""High watermark of a FetchPart whose sender named none (KIP-1166): no watermark of ours is above it."""

MAX_BYTES_UNLIMITED: Final = 0x7FFFFFFF

Topic = bytes
"""UTF-8 name, or 16-byte id where the version carries ids."""
ProducePart = tuple[int, memoryview | None]
"""Partition index, records."""
ProducePartOut = tuple[int, int, int, int, int, str | None, tuple[int, int] | None, Sequence[tuple[int, str]]]
"""index, error, base_offset, log_append_time_ms, log_start_offset, error_message, current_leader (id, epoch),
record_errors (place in the batch, message): none without a message."""
NodeEndpoint = tuple[int, str, int, str | None]
"""id, host, port, rack."""


class ProduceIn(NamedTuple):
    """A Produce request."""

    transactional_id: str | None
    acks: int
    """-1: all in-sync replicas, 0: no answer, 1: the leader."""
    timeout_ms: int
    topics: list[tuple[Topic, list[ProducePart]]]
    size: int
    """How many topics and batches there are together."""


class FetchPart(NamedTuple):
    """Holds one partition of a Fetch request. Epochs are -1 where none is named."""

    index: int  # type: ignore[assignment]
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int
    """Of a follower's log; -1 for a consumer."""
    max_bytes: int
    high_watermark: int


class FetchIn(NamedTuple):
    """A Fetch request. Fields that its version lacks have Kafka's defaults."""

    replica_id: int
    """-1 for a consumer."""
    replica_epoch: int
    """Broker epoch of a follower from version 15 on, else -1."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    """1: read committed."""
    session_id: int
    session_epoch: int
    cluster_id: str | None
    topics: list[tuple[Topic, list[FetchPart]]]
    forgotten: list[tuple[Topic, list[int]]]
    rack: str


class FetchPartOut(NamedTuple):
    """Holds one partition of a Fetch response."""

    index: int  # type: ignore[assignment]
    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of aborted transactions; None for a reader of everything."""
    preferred_read_replica: int = -1
    records: Any = None
    """bytes, a memoryview, None, or when encoding any object that has `length: int` in bytes."""
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the reader's log has to be cut (KIP-595)."""
    current_leader: tuple[int, int] | None = None
    """(id, epoch)."""
    snapshot_id: tuple[int, int] | None = None
    """(end offset, epoch)."""


class FetchOut(NamedTuple):
    """A Fetch response."""

    throttle_ms: int
    error: int
    session_id: int
    topics: list[tuple[Topic, list[FetchPartOut]]]
    node_endpoints: Sequence[NodeEndpoint] = ()
