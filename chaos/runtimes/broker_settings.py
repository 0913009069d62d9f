"""Fits brokers' settings to a cluster of few brokers: fills in what was not given, and says where settings cannot
work or have no effect.

Kafka's defaults put the coordinators' logs on three brokers. With fewer, no such log is ever created, and clients are
answered COORDINATOR_NOT_AVAILABLE for ever. The file that Kafka ships for a single node sets these settings to 1.
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
"""Kafka's defaults, and ours, that ask for more than one broker."""
FOLLOWS: Mapping[str, str] = MappingProxyType(
    {
        "offsets.topic.replication.factor": "no group finds its coordinator",
        "transaction.state.log.replication.factor": "no producer gets a transactional id",
        "default.replication.factor": "no topic is created by its first use",
        "transaction.state.log.min.isr": "it counts as {nodes}",
        "min.insync.replicas": "it counts as {nodes}",
    }
)
"""Setting -> what follows where it asks for more brokers than there are. A min ISR counts as at most the number of
replicas (KAFKA-15583)."""


def fitted(settings: Mapping[str, str], nodes: int, defaults: Mapping[str, int] = INTERNAL) -> dict[str, str]:
    """The settings, with each of `defaults` that asks for more brokers lowered to their number unless it is given."""
    return {**{name: str(nodes) for name, default in defaults.items() if default > nodes}, **settings}


def notes(settings: Mapping[str, str], nodes: int, *, ours: bool) -> list[str]:
    """Return what to know of a cluster's settings before it starts, a sentence each. ours: Squall's brokers."""
    from squall.broker.config import BROKER_SETTINGS
    from squall.broker.config.unsupported_settings import ignored

    without_effect = ignored(settings, [name for name in settings if name not in BROKER_SETTINGS]) if ours else []
    return [*too_high(settings, nodes), *without_effect]


def too_high(settings: Mapping[str, str], nodes: int, names: Iterable[str] = FOLLOWS) -> list[str]:
    """A sentence for each of these settings that was given and asks for more brokers than there are."""
    brokers = "1 broker" if nodes == 1 else f"{nodes} brokers"
    return [
        f"{name} is {settings[name]}, and the cluster has {brokers}, so {FOLLOWS[name].format(nodes=nodes)}: "
        f"set {name}={nodes}, or leave it out"
        for name in names
        if settings.get(name, "").isdecimal() and int(settings[name]) > nodes  # what is no number the broker refuses
    ]
