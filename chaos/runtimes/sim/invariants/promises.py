"""What a node's configuration and the cluster's settings promise for a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.topic import topic_config
from broker.controller.elections import elr_enabled
from broker.controller.image import TOPIC_RESOURCE
from broker.controller.settings import altered_settings, with_altered
from chaos.runtimes.sim.invariants.promise import Promise

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.controller.image import ClusterImage


def promise_of(config: BrokerConfig, image: ClusterImage, topic: str) -> Promise:
    """As `config`, a node's, and what was altered at run time have it."""
    in_force = with_altered(config, altered_settings(image, config.node_id))
    settings = topic_config(in_force, image.configs.get((TOPIC_RESOURCE, topic), {}))
    return Promise(
        min_isr=settings.min_insync_replicas,
        unclean=settings.unclean_leader_election_enable,
        durable=settings.flush_messages == 1,
        elr=elr_enabled(image),
        hw_truncation=config.squall_replication_truncation == "high-watermark",
    )
