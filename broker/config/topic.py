"""Checks and describes topic-level settings for CreateTopics, AlterConfigs and DescribeConfigs. The broker's settings
are their defaults.

A topic's overrides travel and are stored as text by name (`Mapping[str, str]`); `topic_config` makes values of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from itertools import dropwhile
from typing import Any, NamedTuple

from squall.broker.config.broker import COMPRESSIONS, BrokerConfig
from squall.broker.config.settings import (
    ConfigError,
    ConfigType,
    Setting,
    declared,
    flag,
    integer,
    listing,
    long,
    ratio,
    text,
    unknown,
)

ALL_REPLICAS = "*"


def read_throttled(text: str) -> str:
    """Return the text if it names a throttled replica, as `partition:broker`, or is `*` for all. Raise ValueError for
    other text.
    """
    if text != ALL_REPLICAS and not all(part.isdecimal() and part.isascii() for part in text.partition(":")[::2]):
        raise ValueError(f"{text!r} should look like 0:1 (partition 0's replica on broker 1), or the list should be *")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Holds the settings in force for one topic: see `topic_config`. Times are in ms, sizes in bytes."""

    cleanup_policy: tuple[str, ...] = listing(("delete",), "compact", "delete")
    compression_type: str = text("producer", *COMPRESSIONS)
    compression_gzip_level: int = integer(-1, low=-1, high=9)
    compression_lz4_level: int = integer(9, low=1, high=17)
    compression_zstd_level: int = integer(3, low=-131072, high=22)
    delete_retention_ms: int = long(86_400_000, low=0)
    file_delete_delay_ms: int = long(60_000, low=0)
    flush_messages: int = long(2**63 - 1, low=1)
    flush_ms: int = long(2**63 - 1, low=0)
    follower_replication_throttled_replicas: tuple[str, ...] = listing((), item=read_throttled)
    index_interval_bytes: int = integer(4096, low=0)
    leader_replication_throttled_replicas: tuple[str, ...] = listing((), item=read_throttled)
    local_retention_bytes: int = long(-2, low=-2)
    local_retention_ms: int = long(-2, low=-2)
    max_compaction_lag_ms: int = long(2**63 - 1, low=1)
    max_message_bytes: int = integer((1 << 20) + 12, low=0)
    message_timestamp_after_max_ms: int = long(3_600_000, low=0)
    message_timestamp_before_max_ms: int = long(2**63 - 1, low=0)
    message_timestamp_type: str = text("CreateTime", "CreateTime", "LogAppendTime")
    min_cleanable_dirty_ratio: float = ratio(0.5)
    min_compaction_lag_ms: int = long(0, low=0)
    min_insync_replicas: int = integer(1, low=1)
    preallocate: bool = flag(False)
    remote_log_copy_disable: bool = flag(False)
    remote_log_delete_on_disable: bool = flag(False)
    remote_storage_enable: bool = flag(False)
    retention_bytes: int = long(-1, low=-1)
    retention_ms: int = long(604_800_000, low=-1)
    segment_bytes: int = integer(1 << 30, low=14)
    segment_index_bytes: int = integer(10 << 20, low=4)
    segment_jitter_ms: int = long(0, low=0)
    segment_ms: int = long(604_800_000, low=1)
    squall_record_validation_enable: bool = flag(False)
    unclean_leader_election_enable: bool = flag(False)

    overrides: Mapping[str, str] = field(default_factory=dict)
    """Holds the settings that this topic has of its own, as text by name."""

    @property
    def compacted(self) -> bool:
        """Is True if the log needs to keep only the last value of each key."""
        return "compact" in self.cleanup_policy


TOPIC_SETTINGS = declared(fields(TopicConfig))
"""Maps the name of every topic-level setting to its description."""

THROTTLED = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
"""Names the lists of throttled replicas, which exist at the topic level only."""

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
    "local.retention.bytes": ("log.local.retention.bytes", "log_local_retention_bytes"),
    "local.retention.ms": ("log.local.retention.ms", "log_local_retention_ms"),
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
"""Pairs the attributes of `TopicConfig` and `BrokerConfig` that hold the same setting."""

COARSER: Mapping[str, tuple[str, ...]] = {
    # Broker-level settings that stand in where the finer one is not given, in this order.
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.roll.ms": ("log.roll.hours",),
}

FAMILIES: Mapping[str, tuple[str, ...]] = {
    name: (finest, *coarser) for finest, coarser in COARSER.items() for name in (finest, *coarser)
}
"""Maps a setting that exists in several units (`retention.ms`, `.minutes`, `.hours`) to all of these settings, the
finest unit first.
"""


class ConfigOp(IntEnum):
    """Enumerates the operations of IncrementalAlterConfigs on a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(IntEnum):
    """Enumerates the sources of a value, with the codes of DescribeConfigs' ConfigSource."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """Represents a value of a setting that one source gives (KIP-226). `ConfigEntry.synonyms` lists the source of
    highest priority first.
    """

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """Represents one setting as DescribeConfigs returns it."""

    name: str
    value: str | None
    source: ConfigSource
    kind: ConfigType
    read_only: bool
    synonyms: tuple[Synonym, ...]

    @property
    def is_default(self) -> bool:
        """Is True if nothing sets the value, so that the built-in default applies."""
        return self.source is ConfigSource.DEFAULT

    def with_source_only(self) -> ConfigEntry:
        """Return the entry with one synonym: the source of its value. Kafka lists no other if DescribeConfigs asks for
        the settings of all brokers (an empty broker name).
        """
        return self._replace(synonyms=self.synonyms[:1])


def topic_setting(name: str) -> Setting:
    """Return the topic-level setting of that name. Raise ConfigError, with the nearest name, if there is none."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        own = [topic_level for topic_level, (broker_level, _) in BROKER_SYNONYMS.items() if broker_level == name]
        raise unknown("topic setting", name, own or TOPIC_SETTINGS)
    return setting


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Return the settings in force for a topic: its overrides, else the broker's settings. Raises ConfigError for an
    impossible override.

    Settings that exclude each other are accepted here. The controller has checked them, but against its own
    configuration, and broker settings may have been altered since.
    """
    values: dict[str, Any] = {name: getattr(broker, attribute) for name, attribute in _FROM_BROKER}
    for name, value in overrides.items():
        values[name.replace(".", "_")] = topic_setting(name).parse(value)
    return TopicConfig(**values, overrides=dict(overrides))


def _check(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Raise ConfigError if an override has an impossible value, or contradicts another override or a setting of
    `broker`.
    """
    config = topic_config(broker, overrides)
    for name in THROTTLED:
        listed: tuple[str, ...] = getattr(config, name.replace(".", "_"))
        if ALL_REPLICAS in listed and len(listed) > 1:
            raise ConfigError(name, f"{name}={','.join(listed)}: should be * alone, or a list of partition:broker")
    if config.remote_storage_enable:  # Kafka's answer where remote.log.storage.system.enable is false
        raise ConfigError("remote.storage.enable", "remote.storage.enable=true: there is no tiered storage")
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            "min.compaction.lag.ms",
            f"min.compaction.lag.ms={config.min_compaction_lag_ms} should be at most "
            f"max.compaction.lag.ms={config.max_compaction_lag_ms}: what must wait could not be due",
        )


def validate_topic_configs(broker: BrokerConfig, overrides: Mapping[str, str | None]) -> dict[str, str]:
    """Return a new topic's checked overrides. Raises ConfigError for an unknown name, an impossible value or null."""
    checked: dict[str, str] = {}
    for name, value in overrides.items():
        if value is None:
            raise ConfigError(name, f"{name} has no value")
        checked[topic_setting(name).name] = value
    _check(broker, checked)
    return checked


def alter_topic_configs(
    broker: BrokerConfig, overrides: Mapping[str, str], changes: Iterable[tuple[str, int, str | None]]
) -> dict[str, str]:
    """Return the overrides after IncrementalAlterConfigs' (name, operation, value) triples. Raises ConfigError if one
    fails; then none is applied.

    APPEND and SUBTRACT work on lists only. As with Kafka, they start from the topic's own value, else from the
    setting's default. A value that is altered for brokers, or set in their file, does not count.
    """
    altered = dict(overrides)
    for name, operation, value in changes:
        if operation == ConfigOp.DELETE:  # as with Kafka of any name
            altered.pop(name, None)
            continue
        setting = topic_setting(name)
        if value is None:
            raise ConfigError(name, f"{name} has no value")
        elif operation == ConfigOp.SET:
            altered[name] = value
        else:
            altered[name] = alter_list(setting, altered.get(name), operation, value)
    _check(broker, altered)
    return altered


def alter_list(setting: Setting, before: str | None, operation: int, value: str) -> str:
    """Return a list after APPEND or SUBTRACT. Without a value before, start from the default. Raises ConfigError if the
    setting is no list.
    """
    if setting.kind is not ConfigType.LIST or operation not in (ConfigOp.APPEND, ConfigOp.SUBTRACT):
        raise ConfigError(setting.name, f"operation {operation} is not possible on {setting.name}: it is no list")
    current: tuple[str, ...] = setting.default if before is None else setting.parse(before)
    given: tuple[str, ...] = setting.parse(value)
    if operation == ConfigOp.APPEND:
        return ",".join(dict.fromkeys(current + given))
    gone = frozenset(given)
    return ",".join(item for item in current if item not in gone)


class ConfigLayers(NamedTuple):
    """Holds the broker-level settings by source, the source of highest priority first. Each field maps a name to the
    value as text.
    """

    own: Mapping[str, str]
    """Holds the settings altered at run time for this node."""
    everyone: Mapping[str, str]
    """Holds the settings altered at run time for all nodes."""
    file: Mapping[str, str]

    def synonyms(self, name: str) -> list[Synonym]:
        """Return the values of a broker-level setting from all sources, the source of highest priority first, the
        defaults last. Values in other units are included: `log.retention.ms` also gets those of `log.retention.hours`
        (`FAMILIES`).
        """
        from squall.broker.config.broker import BROKER_SETTINGS

        family = FAMILIES.get(name, (name,))
        sources = (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER, ConfigSource.STATIC_BROKER)
        found = [
            Synonym(each, values[each], source)
            for values, source in zip(self, sources, strict=True)
            for each in family
            if each in values
        ]
        for each in family:
            default = BROKER_SETTINGS[each].render(BROKER_SETTINGS[each].default)
            if default is not None:
                found.append(Synonym(each, default, ConfigSource.DEFAULT))
        return found

    def described_synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Return the synonyms that DescribeConfigs shows. As with Kafka, the list begins with the first synonym whose
        name is `name`: synonyms in other units before it are left out.
        """
        return tuple(dropwhile(lambda synonym: synonym.name != name, self.synonyms(name)))


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], layers: ConfigLayers | None = None
) -> list[ConfigEntry]:
    """Return every topic-level setting as DescribeConfigs shows it: with its value in force, and the source of the
    value.

    `broker` is the configuration in force on the node. Without `layers`, every setting that the node was given counts
    as given in its file.
    """
    in_force = topic_config(broker, overrides)
    layers = layers or ConfigLayers({}, {}, broker.given)
    entries = []
    for setting in TOPIC_SETTINGS.values():
        below = BROKER_SYNONYMS.get(setting.name)
        synonyms = () if below is None else layers.described_synonyms(below[0])
        if setting.name in overrides:
            synonyms = (Synonym(setting.name, overrides[setting.name], ConfigSource.TOPIC), *synonyms)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        value = setting.render(getattr(in_force, setting.name.replace(".", "_")))
        entries.append(ConfigEntry(setting.name, value, source, setting.kind, False, synonyms))
    return entries


def source_of(name: str, overrides: Mapping[str, str], layers: ConfigLayers) -> ConfigSource:
    """Return the source of a topic-level setting's value, for the response to CreateTopics. A value in another unit
    counts too: if only `log.retention.hours` was given, `retention.ms` has the source of `log.retention.hours`.
    """
    if name in overrides:
        return ConfigSource.TOPIC
    below = BROKER_SYNONYMS.get(name)
    return ConfigSource.DEFAULT if below is None else layers.synonyms(below[0])[0].source


def describe_broker(broker: BrokerConfig, layers: ConfigLayers | None = None) -> list[ConfigEntry]:
    """Return every setting of a node, with its value and the source of the value. Every entry is marked read-only, even
    if the setting can be altered at run time.

    Without `layers`, every setting that the node was given counts as given in its file. As with Kafka, a setting
    without a default has no default synonym, and a setting in a finer unit also lists those in coarser units
    (`log.retention.ms` lists `log.retention.hours`).
    """
    from squall.broker.config.broker import BROKER_SETTINGS

    layers = layers or ConfigLayers({}, {}, broker.given)
    entries = []
    for setting in BROKER_SETTINGS.values():
        synonyms = layers.described_synonyms(setting.name)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        value = setting.render(getattr(broker, setting.name.replace(".", "_")))
        entries.append(ConfigEntry(setting.name, value, source, setting.kind, True, synonyms))
    return entries
