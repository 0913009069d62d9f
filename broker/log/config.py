"""Defines the settings of one log. Their names are Kafka's topic settings with underscores."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Holds a log's settings: sizes in bytes, times in ms, with Kafka's defaults. See
    https://kafka.apache.org/documentation/#topicconfigs.
    """

    cleanup_policy: tuple[str, ...] = ("delete",)
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_message_bytes: int = (1 << 20) + 12
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    producer_id_expiration_ms: int = 86_400_000
    retention_bytes: int = -1
    retention_ms: int = 7 * 86_400_000
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_ms: int = 7 * 86_400_000
    squall_decompressed_batch_max_bytes: int = 64 << 20
    squall_record_validation_enable: bool = False
    transaction_partition_verification_enable: bool = False
    """Is True if a batch may begin a transaction in this log only after the coordinator has confirmed that the
    transaction includes this partition (KIP-890). The default is False, unlike Kafka's: only a caller that can ask a
    coordinator may turn it on.
    """

    @classmethod
    def of(cls, source: object, **changes: Any) -> LogConfig:
        """Copy the settings from the attributes of `source`, such as a `TopicConfig`. Settings that `source` lacks have
        their defaults. `changes` override both.
        """
        values = {name: getattr(source, name) for name in _NAMES if hasattr(source, name)}
        values.update(changes)
        return cls(**values)

    @property
    def compacted(self) -> bool:
        """Is True if the log is compacted: offsets may have gaps, and every record must have a key."""
        return "compact" in self.cleanup_policy

    @property
    def checks_records(self) -> bool:
        """Is True if the leader reads each record of a client's batch before it appends the batch."""
        return self.squall_record_validation_enable or self.compacted


_NAMES = tuple(field.name for field in fields(LogConfig))


def of_broker(config: object) -> dict[str, Any]:
    """Return the log settings that come from the broker's `config` and not from the topic's. They have the same values
    for all topics. `LogConfig.of` takes them as `changes`: {"producer_id_expiration_ms": 86400000, ...}.
    """
    names = (
        "producer_id_expiration_ms",
        "squall_decompressed_batch_max_bytes",
        "transaction_partition_verification_enable",
    )
    return {name: getattr(config, name) for name in names}
