"""Adapts brokers' settings to a cluster of few brokers: fills in settings that were not given, and reports settings
that cannot work or have no effect.

By Kafka's defaults, __consumer_offsets and __transaction_state have three replicas. With fewer brokers these topics are
never created, and clients are answered COORDINATOR_NOT_AVAILABLE for ever. The file that Kafka ships for a single node
sets these settings to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

INTERNAL: Mapping[str, int] = MappingProxyType(
    {
        "offsets.topic.replication.factor": 3,
        "transaction.state.log.replication.factor": 3,
        "transaction.state.log.min.isr": 2,
    }
)
"""Gives the defaults of Kafka and Squall for settings of __consumer_offsets and __transaction_state. A cluster of one
broker is too small for each of them.
"""
IF_TOO_HIGH: Mapping[str, str] = MappingProxyType(
    {
        "offsets.topic.replication.factor": "no group finds its coordinator",
        "transaction.state.log.replication.factor": "no producer gets a transactional id",
        "default.replication.factor": "no topic is created by its first use",
        "transaction.state.log.min.isr": "it counts as {nodes}",
        "min.insync.replicas": "it counts as {nodes}",
    }
)
"""Maps a setting to the consequence, in words, of a value larger than the number of brokers (`nodes`). Kafka takes a
min ISR above the number of replicas as the number of replicas (KAFKA-15583).
"""


def fitted(settings: Mapping[str, str], nodes: int, defaults: Mapping[str, int] = INTERNAL) -> dict[str, str]:
    """Return the settings, completed for a cluster with this number of brokers: a setting that is not given, and whose
    value in `defaults` is larger than the number of brokers, is set to that number.
    """
    return {**{name: str(nodes) for name, default in defaults.items() if default > nodes}, **settings}


def notes(settings: Mapping[str, str], nodes: int, *, ours: bool) -> list[str]:
    """Return warnings about a cluster's settings, a sentence each, which the user reads before the cluster starts:
    values that are too high, and settings without effect. ours: whether the brokers are Squall's.
    """
    from squall.broker.config import BROKER_SETTINGS
    from squall.broker.config.unsupported_settings import ignored

    without_effect = ignored(settings, [name for name in settings if name not in BROKER_SETTINGS]) if ours else []
    return [*too_high(settings, nodes), *without_effect]


def too_high(settings: Mapping[str, str], nodes: int, names: Iterable[str] = IF_TOO_HIGH) -> list[str]:
    """Return a sentence for each setting of `names` whose given value is larger than the number of brokers (`nodes`).
    """
    brokers = "1 broker" if nodes == 1 else f"{nodes} brokers"
    return [
        f"{name} is {settings[name]}, and the cluster has {brokers}, so {IF_TOO_HIGH[name].format(nodes=nodes)}: "
        f"set {name}={nodes}, or leave it out"
        for name in names
        if settings.get(name, "").isdecimal() and int(settings[name]) > nodes  # what is no number the broker refuses
    ]
