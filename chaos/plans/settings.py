"""Checks the broker and topic settings of a plan by the broker's own rules, before any broker starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall.broker.config import ConfigError

Pairs = tuple[tuple[str, str], ...]

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


def wrong_broker_settings(settings: Mapping[str, str]) -> list[str]:
    """Return a sentence for each mistake in broker settings: an unknown name, an impossible value, or a setting that
    every runtime sets itself.
    """
    given = [name for name in sorted(settings) if name in _GIVEN]
    found = [f"{name} cannot be given: it follows from where the broker runs" for name in given]
    rest = tuple(sorted((name, value) for name, value in settings.items() if name not in _GIVEN))
    return found + _wrong(rest, ())


def wrong_topic_settings(settings: Mapping[str, str]) -> list[str]:
    """Return a sentence for each mistake in topic settings: a name that no topic has, or an impossible value."""
    return _wrong((), tuple(sorted(settings.items())))


def in_force(broker: Mapping[str, str], topic: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the effective values of the settings `names`, as text as in DescribeConfigs: for a topic with the settings
    `topic` in a cluster with the settings `broker`. Raise ConfigError for an impossible setting.
    """
    from squall.broker.config import load_config, topic_config

    config = topic_config(load_config({**_GIVEN, **broker}), topic)
    return {name: _text(getattr(config, name.replace(".", "_"))) for name in names}


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wrong(broker: Pairs, topic: Pairs) -> list[str]:
    """Return the broker's error messages for these settings. It reports only some at once, so the refused settings are
    removed and the others checked again.
    """
    found: list[str] = []
    while error := _refusal(broker, topic):
        found += map(str, error.each)
        wrong = {each.setting for each in error.each}
        kept = [tuple(each for each in pairs if each[0] not in wrong) for pairs in (broker, topic)]
        if kept == [broker, topic]:
            break  # a relation between settings, none of which the plan gives
        broker, topic = kept
    return found


@lru_cache(maxsize=256)
def _refusal(broker: Pairs, topic: Pairs) -> ConfigError | None:
    from squall.broker.config import ConfigError, load_config, validate_topic_configs

    try:
        config = load_config({**_GIVEN, **dict(broker)})
        validate_topic_configs(config, dict(topic))
    except ConfigError as error:
        return error
    return None
