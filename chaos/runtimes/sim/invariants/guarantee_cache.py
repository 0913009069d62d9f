"""Derives what is guaranteed for a topic from a node's configuration and the cluster's settings: for example, that a
power loss takes no committed record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.cluster.image import TOPIC_RESOURCE
from squall.broker.cluster.settings import altered_settings, with_altered
from squall.broker.config.topic import topic_config
from squall.broker.controller.elections import elr_enabled
from squall.chaos.runtimes.sim.invariants.topic_guarantees import TopicGuarantees

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.config import BrokerConfig
    from squall.chaos.runtimes.sim.invariants.decision_log import MetadataReplay


class TopicGuaranteeCache:
    """Caches the `TopicGuarantees` that follow from the settings of a node and a topic. They are needed for every
    partition of every image, and settings hardly ever change.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], tuple[BrokerConfig, TopicGuarantees]] = {}

    def of(self, config: BrokerConfig, cluster: ClusterImage | MetadataReplay, topic: str) -> TopicGuarantees:
        """Return the guarantees of a topic. They follow from a node's `config`, and from the settings in `cluster` that
        were altered at run time, for brokers or for the topic.
        """
        image: Any = cluster  # Both have settings and features.
        altered, own = altered_settings(image, config.node_id), image.configs.get((TOPIC_RESOURCE, topic), {})
        elr = elr_enabled(image)
        key = id(config), tuple(altered.items()), tuple(own.items()), elr
        found = self._found.get(key)
        if found is None:
            settings = topic_config(with_altered(config, altered), own)
            promise = TopicGuarantees(
                min_isr=settings.min_insync_replicas,
                unclean=settings.unclean_leader_election_enable,
                durable=settings.flush_messages == 1,
                elr=elr,
                hw_truncation=config.squall_replication_truncation == "high-watermark",
            )
            found = self._found[key] = config, promise  # the id is its own for as long as it is kept
        return found[1]
