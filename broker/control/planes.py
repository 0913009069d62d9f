"""Chooses the control plane of a node. Besides the planes themselves, only this module knows them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from squall.broker.cluster.names import METADATA_TOPIC
from squall.broker.control.kraft.plane import KraftControlPlane, metadata_log_config

if TYPE_CHECKING:
    from squall.broker.cluster.feed import ImageFeed
    from squall.broker.config import BrokerConfig
    from squall.broker.control.port import ControlPlane
    from squall.broker.env import Env
    from squall.broker.log.config import LogConfig
    from squall.broker.log.manager import LogManager
    from squall.broker.net.peers import PeerClient

    Make = Callable[[Env, BrokerConfig, str, ImageFeed, LogManager, PeerClient], ControlPlane]


def control_plane(
    env: Env, config: BrokerConfig, cluster_id: str, feed: ImageFeed, logs: LogManager, peers: PeerClient
) -> ControlPlane:
    """Return the control plane that the configuration asks for. Raises the errors of the plane's start."""
    return KraftControlPlane(env, config, cluster_id, feed, logs, peers)


def own_logs(config: BrokerConfig) -> Mapping[str, LogConfig]:
    """Return the settings of the logs that the control plane itself writes, by topic name (`__cluster_metadata`). The
    data plane has no replicas of these topics.
    """
    return {METADATA_TOPIC: metadata_log_config(config)}
