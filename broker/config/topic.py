"""Topic-level settings: what CreateTopics, AlterConfigs and DescribeConfigs know of. The broker's are their defaults.

A topic's overrides travel and are stored as text by name (`Mapping[str, str]`); `topic_config` makes values of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, NamedTuple

from broker.config.broker import COMPRESSIONS, BrokerConfig
from broker.config.settings import (
    ConfigError,
    Kind,
    Setting,
    declared,
    flag,
    integer,
    listing,
    long,
    nearest,
    ratio,
    text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of one topic as they are in force: see `topic_config`. Times in ms, sizes in bytes."""

    cleanup_policy: tuple[str, ...] = listing(("delete",), "compact", "delete")
    compression_type: str = text("producer", *COMPRESSIONS)
    compression_gzip_level: int = integer(-1, low=-1, high=9)
    compression_lz4_level: int = integer(9, low=1, high=17)
    compression_zstd_level: int = integer(3, low=-131072, high=22)
    delete_retention_ms: int = long(86_400_000, low=0)
    file_delete_delay_ms: int = long(60_000, low=0)
    flush_messages: int = long(2**63 - 1, low=1)
    flush_ms: int = long(2**63 - 1, low=0)
    follower_replication_throttled_replicas: tuple[str, ...] = listing(())
    index_interval_bytes: int = integer(4096, low=0)
    leader_replication_throttled_replicas: tuple[str, ...] = listing(())
    max_compaction_lag_ms: int = long(2**63 - 1, low=1)
    max_message_bytes: int = integer((1 << 20) + 12, low=0)
    message_timestamp_after_max_ms: int = long(3_600_000, low=0)
    message_timestamp_before_max_ms: int = long(2**63 - 1, low=0)
    message_timestamp_type: str = text("CreateTime", "CreateTime", "LogAppendTime")
    min_cleanable_dirty_ratio: float = ratio(0.5)
    min_compaction_lag_ms: int = long(0, low=0)
    min_insync_replicas: int = integer(1, low=1)
    preallocate: bool = flag(False)
    retention_bytes: int = long(-1, low=-1)
    retention_ms: int = long(604_800_000, low=-1)
    segment_bytes: int = integer(1 << 30, low=14)
    segment_index_bytes: int = integer(10 << 20, low=4)
    segment_jitter_ms: int = long(0, low=0)
    segment_ms: int = long(604_800_000, low=1)
    squall_record_validation_enable: bool = flag(False)
    unclean_leader_election_enable: bool = flag(False)

    overrides: Mapping[str, str] = field(default_factory=dict)
    """The settings that this topic has of its own, as text by name."""

    @property
    def compacted(self) -> bool:
        """True where only the last value of each key need be kept."""
        return "compact" in self.cleanup_policy


TOPIC_SETTINGS = declared(fields(TopicConfig))
"""Every topic-level setting by its name."""

BROKER_SYNONYMS: Mapping[str, tuple[str, str]] = {
    # topic-level name: (broker-level name, attribute of BrokerConfig with the value in force)
    "cleanup.policy": ("log.cleanup.policy", "log_cleanup_policy"),
    "compression.type": ("compression.type", "compression_type"),
    "compression.gzip.level": ("compression.gzip.level", "compression_gzip_level"),
    "compression.lz4.level": ("compression.lz4.level", "compression_lz4_level"),
    "compression.zstd.level": ("compression.zstd.level", "compression_zstd_level"),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms", "log_cleaner_delete_retention_ms"),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms", "log_segment_delete_delay_ms"),
    "flush.messages": ("log.flush.interval.messages", "log_flush_interval_messages"),
    "flush.ms": ("log.flush.interval.ms", "flush_ms"),
    "index.interval.bytes": ("log.index.interval.bytes", "log_index_interval_bytes"),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms", "log_cleaner_max_compaction_lag_ms"),
    "max.message.bytes": ("message.max.bytes", "message_max_bytes"),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms", "log_message_timestamp_after_max_ms"),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms", "log_message_timestamp_before_max_ms"),
    "message.timestamp.type": ("log.message.timestamp.type", "log_message_timestamp_type"),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio", "log_cleaner_min_cleanable_ratio"),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms", "log_cleaner_min_compaction_lag_ms"),
    "min.insync.replicas": ("min.insync.replicas", "min_insync_replicas"),
    "preallocate": ("log.preallocate", "log_preallocate"),
    "retention.bytes": ("log.retention.bytes", "log_retention_bytes"),
    "retention.ms": ("log.retention.ms", "retention_ms"),
    "segment.bytes": ("log.segment.bytes", "log_segment_bytes"),
    "segment.index.bytes": ("log.index.size.max.bytes", "log_index_size_max_bytes"),
    "segment.jitter.ms": ("log.roll.jitter.ms", "roll_jitter_ms"),
    "segment.ms": ("log.roll.ms", "roll_ms"),
    "squall.record.validation.enable": ("squall.record.validation.enable", "squall_record_validation_enable"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable", "unclean_leader_election_enable"),
}

_FROM_BROKER = tuple((name.replace(".", "_"), attribute) for name, (_, attribute) in BROKER_SYNONYMS.items())
"""Of `TopicConfig` and `BrokerConfig`: the attributes that have a value in common."""

COARSER: Mapping[str, tuple[str, ...]] = {
    # Broker-level settings that stand in where the finer one is not given, in this order.
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.roll.ms": ("log.roll.hours",),
}


class ConfigOp(IntEnum):
    """What IncrementalAlterConfigs does to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(IntEnum):
    """Where a value comes from: DescribeConfigs' ConfigSource."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """A place that could give a setting its value, nearest first in `ConfigEntry.synonyms`."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting as DescribeConfigs tells it."""

    name: str
    value: str | None
    source: ConfigSource
    kind: Kind
    read_only: bool
    synonyms: tuple[Synonym, ...]

    @property
    def is_default(self) -> bool:
        """True where nobody has set it."""
        return self.source is ConfigSource.DEFAULT


def topic_setting(name: str) -> Setting:
    """The topic-level setting of that name. ConfigError with the nearest name where there is none."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise ConfigError(name, f"unknown topic setting {name}: did you mean {nearest(name, TOPIC_SETTINGS)}?")
    return setting


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The settings in force for a topic: its overrides, else what the broker's settings say. ConfigError."""
    values: dict[str, Any] = {name: getattr(broker, attribute) for name, attribute in _FROM_BROKER}
    for name, value in overrides.items():
        values[name.replace(".", "_")] = topic_setting(name).parse(value)
    config = TopicConfig(**values, overrides=dict(overrides))
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            "min.compaction.lag.ms",
            f"min.compaction.lag.ms={config.min_compaction_lag_ms} should be at most "
            f"max.compaction.lag.ms={config.max_compaction_lag_ms}: what must wait could not be due",
        )
    return config


def validate_topic_configs(broker: BrokerConfig, overrides: Mapping[str, str | None]) -> dict[str, str]:
    """The overrides of a topic to be created, checked: ConfigError for an unknown name, an impossible value or null."""
    checked: dict[str, str] = {}
    for name, value in overrides.items():
        if value is None:
            raise ConfigError(name, f"{name} has no value")
        checked[topic_setting(name).name] = value
    topic_config(broker, checked)
    return checked


def alter_topic_configs(
    broker: BrokerConfig, overrides: Mapping[str, str], changes: Iterable[tuple[str, int, str | None]]
) -> dict[str, str]:
    """The overrides after IncrementalAlterConfigs' (name, operation, value) triples, all of them or (ConfigError) none.

    APPEND and SUBTRACT work on lists only, and start from the value in force.
    """
    altered = dict(overrides)
    for name, operation, value in changes:
        setting = topic_setting(name)
        if operation == ConfigOp.DELETE:
            altered.pop(name, None)
        elif value is None:
            raise ConfigError(name, f"{name} has no value")
        elif operation == ConfigOp.SET:
            altered[name] = value
        else:
            altered[name] = _listed(broker, altered, setting, operation, value)
    topic_config(broker, altered)
    return altered


def _listed(broker: BrokerConfig, overrides: Mapping[str, str], setting: Setting, operation: int, value: str) -> str:
    if setting.kind is not Kind.LIST or operation not in (ConfigOp.APPEND, ConfigOp.SUBTRACT):
        raise ConfigError(setting.name, f"operation {operation} is not possible on {setting.name}: it is no list")
    current: tuple[str, ...] = getattr(topic_config(broker, overrides), setting.name.replace(".", "_"))
    given: tuple[str, ...] = setting.parse(value)
    if operation == ConfigOp.APPEND:
        return ",".join(dict.fromkeys(current + given))
    return ",".join(item for item in current if item not in given)


def describe_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every topic-level setting, with its value in force and where that comes from."""
    in_force = topic_config(broker, overrides)
    return [_entry(broker, overrides, in_force, setting) for setting in TOPIC_SETTINGS.values()]


def _entry(broker: BrokerConfig, overrides: Mapping[str, str], in_force: TopicConfig, setting: Setting) -> ConfigEntry:
    synonyms: list[Synonym] = []
    if setting.name in overrides:
        synonyms.append(Synonym(setting.name, overrides[setting.name], ConfigSource.TOPIC))
    below = BROKER_SYNONYMS.get(setting.name, (setting.name, ""))[0]
    for name in (below, *COARSER.get(below, ())):
        if name in broker.given:
            synonyms.append(Synonym(name, broker.given[name], ConfigSource.STATIC_BROKER))
    synonyms.append(_default_of(below, setting))
    value = setting.render(getattr(in_force, setting.name.replace(".", "_")))
    return ConfigEntry(setting.name, value, synonyms[0].source, setting.kind, False, tuple(synonyms))


def _default_of(name: str, setting: Setting) -> Synonym:
    """Where the default stands: with Kafka, in the coarsest setting, for the finer ones have none."""
    from broker.config.broker import BROKER_SETTINGS

    coarser = COARSER.get(name)
    if coarser is None:
        return Synonym(name, setting.render(setting.default), ConfigSource.DEFAULT)
    coarsest = BROKER_SETTINGS[coarser[-1]]
    return Synonym(coarsest.name, coarsest.render(coarsest.default), ConfigSource.DEFAULT)


def describe_broker(broker: BrokerConfig, altered: Container[str] = ()) -> list[ConfigEntry]:
    """Every setting of a node, with its value and where that comes from. All are read-only: they come from its file.

    As with Kafka, one without a default has no synonym for it, and one `altered` at run time names those that would
    stand in for it.
    """
    from broker.config.broker import BROKER_SETTINGS

    entries = []
    for setting in BROKER_SETTINGS.values():
        family = (setting.name, *(COARSER.get(setting.name, ()) if setting.name in altered else ()))
        synonyms = [
            Synonym(name, broker.given[name], ConfigSource.STATIC_BROKER) for name in family if name in broker.given
        ]
        for name in family:
            default = BROKER_SETTINGS[name].render(BROKER_SETTINGS[name].default)
            if default is not None:
                synonyms.append(Synonym(name, default, ConfigSource.DEFAULT))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        value = setting.render(getattr(broker, setting.name.replace(".", "_")))
        entries.append(ConfigEntry(setting.name, value, source, setting.kind, True, tuple(synonyms)))
    return entries
