"""Broker and topic settings of a plan, checked when it is read, by the broker's own rules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from broker.config import BrokerConfig, ConfigError, validate_topic_configs

# A broker needs these settings, and every runtime sets them itself.
_GIVEN = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "INTERNAL",
    "inter.broker.listener.name": "INTERNAL",
    "listeners": "INTERNAL://localhost:9093",
    "advertised.listeners": "INTERNAL://localhost:9093",
    "log.dirs": "/data",
}


def check_broker_settings(settings: Mapping[str, str]) -> None:
    """ValueError for a name that does not exist, an impossible value, or one that every runtime gives itself."""
    _check(tuple(sorted(settings.items())), ())


def check_topic_settings(settings: Mapping[str, str]) -> None:
    """ValueError for a name that no topic has, or an impossible value."""
    _check((), tuple(sorted(settings.items())))


@lru_cache(maxsize=256)
def _check(broker: tuple[tuple[str, str], ...], topic: tuple[tuple[str, str], ...]) -> None:
    for name, _ in broker:
        if name in _GIVEN:
            raise ValueError(f"setting {name} cannot be given: it follows from where the broker runs")
    try:
        config = BrokerConfig.from_properties({**_GIVEN, **dict(broker)})
        validate_topic_configs(config, dict(topic))
    except ConfigError as error:
        raise ValueError(str(error)) from None
