"""Gives the controller the settings in force: the altered settings on top of the node's file.

A topic's setting has the value of the first source that sets it, in Kafka's order: the topic, the settings altered for
this node, those altered for all nodes, the node's file, the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.cluster.image import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE
from squall.broker.config import TOPIC_SETTINGS, BrokerConfig, ConfigError, ConfigLayers, load_config
from squall.broker.config.topic import BROKER_SYNONYMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from squall.broker.cluster.image import ClusterImage

THROTTLES = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Names settings that are stored and described, but have no effect."""
APPLIED_AT_RUN_TIME = frozenset(
    {
        "max.connections",
        "max.connections.per.ip",
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
    }
)
"""Names the settings of a whole broker that take effect while it runs."""
WITHOUT_EFFECT = frozenset(
    {
        "background.threads",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
"""Names settings of Kafka's log cleaner, thread pools and connection rate limit, which Squall does not have. They are
stored and described, but have no effect, whether altered at run time or given in a node's file.
"""
DYNAMIC_BROKER_SETTINGS = (
    frozenset(name for name, _ in BROKER_SYNONYMS.values()) | THROTTLES | APPLIED_AT_RUN_TIME | WITHOUT_EFFECT
)
"""Names the broker settings that may be altered at run time: the brokers' defaults of topic settings (such as
log.retention.ms), THROTTLES, APPLIED_AT_RUN_TIME and WITHOUT_EFFECT.
"""


class ControllerSettings:
    """Gives the active controller the settings in force. `config` is the configuration of the controller's node."""

    def __init__(self, config: BrokerConfig, cluster_id: str) -> None:
        self.config = config
        self.cluster_id = cluster_id
        self._altered: dict[str, str] = {}
        self._in_force = config

    def in_force(self, image: ClusterImage) -> BrokerConfig:
        """Return the node's configuration with the altered settings of `image`."""
        altered = altered_settings(image, self.config.node_id)
        if altered != self._altered:
            self._altered, self._in_force = altered, with_altered(self.config, altered)
        return self._in_force

    def topic_setting(self, image: ClusterImage, topic: str, name: str) -> Any:
        """Return the value in force of one topic-level setting, parsed to its type (such as int or bool)."""
        override = image.configs.get((TOPIC_RESOURCE, topic), {}).get(name)
        if override is not None:
            return TOPIC_SETTINGS[name].parse(override)
        return getattr(self.in_force(image), BROKER_SYNONYMS[name][1])

    def unclean_leader_election_enabled(self, image: ClusterImage, topic: str) -> bool:
        """Return whether a replica from outside the ISR may lead if no replica of the ISR can (mechanism R11 in
        docs/mechanisms.md).
        """
        enabled: bool = self.topic_setting(image, topic, "unclean.leader.election.enable")
        return enabled

    def min_insync_replicas(self, image: ClusterImage, topic: str) -> int:
        """Return how many replicas must be in the ISR for acks=all, before the value is capped by the replication
        factor.
        """
        replicas: int = self.topic_setting(image, topic, "min.insync.replicas")
        return replicas


def with_altered(config: BrokerConfig, altered: Mapping[str, str]) -> BrokerConfig:
    """Return `config` with the settings altered at run time, except those that contradict this node's file.

    The controller checked the settings against its own file when they were altered, and this node's file may differ.
    """
    if not altered:
        return config
    try:
        return load_config({**config.given, **altered})
    except ConfigError as error:
        wrong = next((each.setting for each in error.each if each.setting in altered), None)
        if wrong is None:
            # The error is filed under a setting that was not altered, so it is unknown which altered one to drop.
            return config
        return with_altered(config, {name: value for name, value in altered.items() if name != wrong})


def altered_settings(image: ClusterImage, node_id: int) -> dict[str, str]:
    """Return the settings altered at run time for one node: those for all nodes, overridden by those for this node
    alone.
    """
    everyone: Mapping[str, str] = image.configs.get(CLUSTER_DEFAULT, {})
    return {**everyone, **image.configs.get((BROKER_RESOURCE, str(node_id)), {})}


def layers_of(image: ClusterImage, config: BrokerConfig) -> ConfigLayers:
    """Return the settings of a node by source: altered for this node, altered for all nodes, and given in the node's
    file. `config` is the configuration of the file.
    """
    own = image.configs.get((BROKER_RESOURCE, str(config.node_id)), {})
    return ConfigLayers(own, image.configs.get(CLUSTER_DEFAULT, {}), config.given)
