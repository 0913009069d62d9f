"""Defines the tuples in which the broker holds Produce and Fetch messages. They name a topic by its bytes from the
wire: a UTF-8 name or a 16-byte id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

NO_HIGH_WATERMARK: Final = (1 << 63) - 1
"""Is the high watermark of a requested partition if the Fetch request has none (KIP-1166). It is above every real one.
"""

MAX_BYTES_UNLIMITED: Final = 0x7FFFFFFF

Topic = bytes
"""Is a topic's UTF-8 name, or its 16-byte id in versions with ids."""
ProducePart = tuple[int, memoryview | None]
"""Holds the index of a partition and its records (None if they are null)."""
ProducePartOut = tuple[int, int, int, int, int, str | None, tuple[int, int] | None, Sequence[tuple[int, str]]]
"""Holds index, error, base_offset, log_append_time_ms, log_start_offset, error_message, current_leader (id, epoch),
record_errors (position in the batch, message). Without a message there are no record errors.
"""
NodeEndpoint = tuple[int, str, int, str | None]
"""Holds id, host, port and rack of a broker."""


class ProduceIn(NamedTuple):
    """Represents a Produce request."""

    transactional_id: str | None
    acks: int
    """Is -1 for all in-sync replicas, 0 for no response, 1 for the leader."""
    timeout_ms: int
    topics: list[tuple[Topic, list[ProducePart]]]
    size: int
    """Gives the number of topics plus the number of batches."""


class FetchRequestPartition(NamedTuple):
    """Represents one partition of a Fetch request. Epochs are -1 if the request names none."""

    index: int  # type: ignore[assignment]
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int
    """Gives the start of the follower's own log; -1 for a consumer."""
    max_bytes: int
    high_watermark: int


class FetchIn(NamedTuple):
    """Represents a Fetch request. Fields that its version lacks have Kafka's defaults."""

    replica_id: int
    """Gives the broker id of a follower; -1 for a consumer."""
    replica_epoch: int
    """Gives the broker epoch of a follower from version 15 on, else -1."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    """Is 1 for read committed, 0 for read uncommitted."""
    session_id: int
    session_epoch: int
    cluster_id: str | None
    topics: list[tuple[Topic, list[FetchRequestPartition]]]
    forgotten: list[tuple[Topic, list[int]]]
    rack: str


class FetchResponsePartition(NamedTuple):
    """Represents one partition of a Fetch response."""

    index: int  # type: ignore[assignment]
    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    """Lists (producer id, first offset) of aborted transactions; None if the reader reads uncommitted data."""
    preferred_read_replica: int = -1
    records: Any = None
    """Holds the partition's record batches, or None. They are bytes or a memoryview. In a response to encode they may
    be any object that has their size in bytes as `length: int`, such as a file slice.
    """
    diverging: tuple[int, int] | None = None
    """Gives (epoch, end offset) in the leader's log by which the reader must truncate its own log (KIP-595). It is None
    if the logs agree.
    """
    current_leader: tuple[int, int] | None = None
    """Gives (broker id, leader epoch) of the partition's leader. None leaves the field out of the response."""
    snapshot_id: tuple[int, int] | None = None
    """Gives (end offset, epoch) of the snapshot that the reader must fetch instead of records (KIP-630), or None."""


class FetchOut(NamedTuple):
    """Represents a Fetch response."""

    throttle_ms: int
    error: int
    session_id: int
    topics: list[tuple[Topic, list[FetchResponsePartition]]]
    node_endpoints: Sequence[NodeEndpoint] = ()
