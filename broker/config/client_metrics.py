"""Checks the settings of subscriptions to clients' metrics (KIP-714), which are only stored. No client is asked to push
metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from re import _parser  # type: ignore[attr-defined]
from typing import Final

from squall.broker.config.settings import ConfigError, declared, integer, listing, unknown
from squall.broker.config.topic import ConfigEntry, ConfigOp, ConfigSource, Synonym

INTERVAL_MS = (100, 3_600_000)
SELECTORS = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


MOST_CHARACTERS: Final = 1000
"""Limits the characters of one pattern. Compiling it takes 0.4 µs for each character, and for some patterns grows with
the square of their length.
"""


def read_selector(text: str) -> str:
    """Return `text` if it is a client's property and a pattern for it, as `client_id=a.*`. Raise ValueError if not."""
    name, equals, pattern = text.partition("=")
    if name.strip() not in SELECTORS or not equals:
        raise ValueError(f"{text!r} should be one of {', '.join(SELECTORS)}, with = and a pattern")
    pattern = pattern.strip()
    if len(pattern) > MOST_CHARACTERS:
        length = f"it has {len(pattern)} characters, and at most {MOST_CHARACTERS} are read"
        raise ValueError(f"{text[:MOST_CHARACTERS]!r} has no pattern that can be read: {length}")
    try:
        # The pattern is never used, so it is only parsed. Compiling "(?i)" and 200 sets of characters takes 0.5 s.
        _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as wrong:  # the latter two: nested or repeated beyond measure
        raise ValueError(f"{text!r} has no pattern that can be read: {wrong}") from None
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsConfig:
    """Holds the settings of one subscription to clients' metrics."""

    interval_ms: int = integer(300_000)
    match: tuple[str, ...] = listing((), item=read_selector)
    metrics: tuple[str, ...] = listing(())


SUBSCRIPTION_SETTINGS = declared(fields(ClientMetricsConfig))
"""Maps the name of every setting of a subscription to its type, default and allowed values."""


class InvalidClientMetricsConfig(ConfigError):
    """Says that a setting is unknown or an interval is out of bounds. Kafka answers INVALID_REQUEST for these errors.
    """


def alter_subscription(before: Mapping[str, str], changes: Iterable[tuple[str, int, str | None]]) -> dict[str, str]:
    """Return a subscription's settings after `changes` of (name, operation, value), where the operation is a
    `ConfigOp`. `before` has the settings until now. Raises InvalidClientMetricsConfig for an unknown name or an
    interval out of bounds, ConfigError for any other invalid value or operation.
    """
    altered, changed = dict(before), []
    for name, operation, value in changes:
        changed.append(name)
        if operation == ConfigOp.DELETE:
            altered.pop(name, None)
        elif operation != ConfigOp.SET:  # Kafka, too, appends to none of these lists
            raise ConfigError(name, f"operation {operation} is not possible on {name}")
        else:
            assert value is not None, "nulls are refused before"
            altered[name] = value
    for name in changed:
        if name not in altered:
            continue
        value = altered[name]
        setting = SUBSCRIPTION_SETTINGS.get(name)
        if setting is None:
            raise InvalidClientMetricsConfig(name, str(unknown("client metrics setting", name, SUBSCRIPTION_SETTINGS)))
        read = setting.parse(value)
        if name == "interval.ms" and not INTERVAL_MS[0] <= read <= INTERVAL_MS[1]:
            low, high = INTERVAL_MS
            raise InvalidClientMetricsConfig(name, f"interval.ms={value}: should be from {low} to {high}")
    return altered


def describe_subscription(given: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every setting of a subscription, with its value and the source of the value."""
    entries = []
    for setting in SUBSCRIPTION_SETTINGS.values():
        name, source, value = setting.name, ConfigSource.DEFAULT, setting.render(setting.default)
        synonyms: tuple[Synonym, ...] = ()
        if name in given:
            source, value = ConfigSource.CLIENT_METRICS, given[name]
            synonyms = (Synonym(name, value, source),)
        entries.append(ConfigEntry(name, value, source, setting.kind, False, synonyms))
    return entries
