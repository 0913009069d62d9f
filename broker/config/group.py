"""Checks and describes the settings of single groups (KIP-848, KIP-932, KIP-1071) for IncrementalAlterConfigs and
DescribeConfigs.

Only the session time-out and the heartbeat interval of the consumer protocol take effect. The other settings are
checked and stored, for Kafka's tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from squall.broker.config.broker import BrokerConfig
from squall.broker.config.settings import ConfigError, Setting, declared, flag, integer, text, unknown
from squall.broker.config.topic import ConfigEntry, ConfigOp, ConfigSource, Synonym, alter_list

RESETS = ("earliest", "latest")
DURATION = re.compile(r"P(?=[\dT])(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.ASCII | re.IGNORECASE)
"""Matches a duration as Java writes it, if it is not negative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Holds the settings of one group. Times are in ms."""

    consumer_assignment_interval_ms: int = integer(1000, low=0)
    consumer_heartbeat_interval_ms: int = integer(5000, low=1)
    consumer_session_timeout_ms: int = integer(45_000, low=1)
    share_assignment_interval_ms: int = integer(1000, low=0)
    share_auto_offset_reset: str = text("latest")
    share_delivery_count_limit: int = integer(5, low=2)
    share_heartbeat_interval_ms: int = integer(5000, low=1)
    share_isolation_level: str = text("read_uncommitted", "read_committed", "read_uncommitted")
    share_partition_max_record_locks: int = integer(2000, low=100)
    share_record_lock_duration_ms: int = integer(30_000, low=1000)
    share_renew_acknowledge_enable: bool = flag(True)
    share_session_timeout_ms: int = integer(45_000, low=1)
    streams_assignment_interval_ms: int = integer(1000, low=0)
    streams_heartbeat_interval_ms: int = integer(5000, low=1)
    streams_initial_rebalance_delay_ms: int = integer(3000, low=0)
    streams_num_standby_replicas: int = integer(0, low=0)
    streams_session_timeout_ms: int = integer(45_000, low=1)


GROUP_SETTINGS = declared(fields(GroupConfig))
"""Maps the name of every setting of a group to its type, default and allowed values."""
WITHOUT_BROKER_LEVEL = frozenset({"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"})
"""Names the group settings that have no default among Kafka's broker settings. The default of any other group setting X
is the broker setting `group.X`.
"""
BOUNDS: Mapping[str, tuple[int, int]] = {
    # Kafka's defaults of settings that brokers do not have here. The consumer protocol's are the broker's own.
    "consumer.assignment.interval.ms": (0, 15_000),
    "share.assignment.interval.ms": (0, 15_000),
    "share.delivery.count.limit": (2, 10),
    "share.heartbeat.interval.ms": (5000, 15_000),
    "share.partition.max.record.locks": (100, 4000),
    "share.record.lock.duration.ms": (15_000, 60_000),
    "share.session.timeout.ms": (45_000, 60_000),
    "streams.assignment.interval.ms": (0, 15_000),
    "streams.heartbeat.interval.ms": (5000, 15_000),
    "streams.num.standby.replicas": (0, 2),
    "streams.session.timeout.ms": (45_000, 60_000),
}
"""Maps a group setting to its lowest and highest value. In Kafka, broker settings such as
group.share.min.session.timeout.ms set these bounds. Squall lacks those settings, so the values here are their defaults.
"""


def alter_group_configs(
    broker: BrokerConfig, before: Mapping[str, str], changes: Iterable[tuple[str, int, str | None]]
) -> dict[str, str]:
    """Return a group's settings after `changes` of (name, operation, value), where the operation is a `ConfigOp`.
    `before` has the settings until now. Raises ConfigError if one change fails; then none is applied.
    """
    altered = dict(before)
    for name, operation, value in changes:
        if operation == ConfigOp.DELETE:
            altered.pop(name, None)
            continue
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise unknown("group setting", name, GROUP_SETTINGS)
        assert value is not None, "nulls are refused before"
        altered[name] = value if operation == ConfigOp.SET else alter_list(setting, None, operation, value)
    for name, value in altered.items():
        _check(broker, GROUP_SETTINGS[name], value)
    return altered


def _check(broker: BrokerConfig, setting: Setting, value: str) -> None:
    number = setting.parse(value)
    name = setting.name
    if name == "share.auto.offset.reset" and not _is_reset(value):
        raise ConfigError(name, f"{name}={value}: should be earliest, latest, or by_duration: and a duration like PT1H")
    bounds = bounds_of(broker, name)
    if bounds is not None and not bounds[0] <= number <= bounds[1]:
        raise ConfigError(name, f"{name}={value}: the brokers' settings permit from {bounds[0]} to {bounds[1]}")


def _is_reset(value: str) -> bool:
    duration = value.removeprefix("by_duration:")
    return value in RESETS or (duration != value and DURATION.fullmatch(duration) is not None)


def bounds_of(broker: BrokerConfig, name: str) -> tuple[int, int] | None:
    """Return the lowest and highest value that a group's setting may have, or None if it has no bounds."""
    if name == "consumer.session.timeout.ms":
        return broker.group_consumer_min_session_timeout_ms, broker.group_consumer_max_session_timeout_ms
    if name == "consumer.heartbeat.interval.ms":
        return broker.group_consumer_min_heartbeat_interval_ms, broker.group_consumer_max_heartbeat_interval_ms
    return BOUNDS.get(name)


def group_number(broker: BrokerConfig, name: str, given: Mapping[str, str], of_broker: int) -> int:
    """Return the value in force of a group's numeric setting. It is the group's own value (in `given`), raised or
    lowered to the bounds of this broker. It is `of_broker` if the group has no own value.
    """
    if name not in given:
        return of_broker
    bounds = bounds_of(broker, name)
    number: int = GROUP_SETTINGS[name].parse(given[name])
    return number if bounds is None else min(max(number, bounds[0]), bounds[1])


def describe_group(broker: BrokerConfig, given: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every setting of a group, with its value and the source of the value."""
    entries = []
    for setting in GROUP_SETTINGS.values():
        synonyms = [Synonym(setting.name, given[setting.name], ConfigSource.GROUP)] if setting.name in given else []
        synonyms += _below(broker, setting)
        value = synonyms[0].value
        entries.append(ConfigEntry(setting.name, value, synonyms[0].source, setting.kind, False, tuple(synonyms)))
    return entries


def _below(broker: BrokerConfig, setting: Setting) -> list[Synonym]:
    default = setting.render(setting.default)
    if setting.name in WITHOUT_BROKER_LEVEL:
        return [Synonym(setting.name, default, ConfigSource.DEFAULT)]
    name = f"group.{setting.name}"
    own: list[Any] = [Synonym(name, broker.given[name], ConfigSource.STATIC_BROKER)] if name in broker.given else []
    return [*own, Synonym(name, default, ConfigSource.DEFAULT)]
