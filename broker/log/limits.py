"""Holds the limits that every append is checked against, computed once from the log's settings."""

from __future__ import annotations

from squall.broker.log.config import LONG_MAX, LogConfig
from squall.broker.protocol.records import SMALLEST_RECORD


class AppendLimits:
    """Holds the limits of appends to one log, in bytes and ms."""

    __slots__ = (
        "after_ms",
        "append_time",
        "batch_bytes",
        "before_ms",
        "checks_records",
        "compacted",
        "most_records",
        "segment_bytes",
        "segment_ms",
    )

    def __init__(self, config: LogConfig) -> None:
        self.compacted = config.compacted
        self.checks_records = config.checks_records
        self.most_records = config.squall_decompressed_batch_max_bytes // SMALLEST_RECORD
        """Limits the records in one batch, whatever its compressed size."""
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.segment_ms
        self.batch_bytes = min(config.max_message_bytes, config.segment_bytes)
        self.append_time = config.message_timestamp_type == "LogAppendTime"
        """Is True if the broker sets the timestamps (LogAppendTime). The client's timestamps are then not checked."""
        self.before_ms = LONG_MAX if self.append_time else config.message_timestamp_before_max_ms
        self.after_ms = LONG_MAX if self.append_time else config.message_timestamp_after_max_ms
