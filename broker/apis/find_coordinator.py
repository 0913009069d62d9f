"""Handles FindCoordinator: names the coordinator of a group or transactional id. The first request creates the topic of
the coordinators' log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from squall.broker.coordinators.partitions import partition_of
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema import find_coordinator as wire
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreatableTopicConfig
from squall.broker.replicas.coordinators import group_coordinator, transaction_coordinator

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.apis.topic_creation import TopicCreator
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.config import BrokerConfig

FIRST_BATCHED = 4
"""Is the first version of FindCoordinator whose requests carry several keys (KIP-699)."""
GROUP, TRANSACTION = 0, 1
"""Are the values of `FindCoordinatorRequest.key_type`."""


class CoordinatorFinder:
    """Answers FindCoordinator from the image, without waiting."""

    def __init__(self, image: ClusterImage, config: BrokerConfig, creator: TopicCreator) -> None:
        self._image, self._config, self._creator = image, config, creator

    def find_coordinator(
        self, request: wire.FindCoordinatorRequest, version: int, listener: str
    ) -> wire.FindCoordinatorResponse:
        """Return the coordinator of each key, or COORDINATOR_NOT_AVAILABLE until the coordinators' log is created and
        the key's partition has a leader.
        """
        batched = version >= FIRST_BATCHED
        keys = request.coordinator_keys if batched else [request.key]
        found = [self._find(key, request.key_type, listener) for key in keys]
        if batched:
            return wire.FindCoordinatorResponse(error_message=None, coordinators=found)
        (one,) = found
        return wire.FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message or None,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    def log_of_groups_exists(self) -> bool:
        """Return whether __consumer_offsets exists, which the coordinators of groups need. If not, begin to create it.
        """
        log = _LOGS[GROUP]
        if self._image.topic(log.name) is not None:
            return True
        self._creator.create_log(log.as_created(self._config))
        return False

    def _find(self, key: str, key_type: int, listener: str) -> wire.Coordinator:
        if key_type not in (GROUP, TRANSACTION):
            return _error_result(key, ErrorCode.INVALID_REQUEST, "Unknown type of coordinator.")
        log = _LOGS[key_type]
        topic = self._image.topic(log.name)
        if topic is None:
            self._creator.create_log(log.as_created(self._config))
        else:
            partition = topic.partitions[partition_of(key, len(topic.partitions))]
            broker = self._image.brokers.get(partition.leader) if partition.leader != NO_NODE else None
            if broker is not None and not broker.fenced and listener in broker.endpoints:
                host, port = broker.endpoints[listener]
                return wire.Coordinator(key=key, node_id=broker.id, host=host, port=port)
        return _error_result(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")


def _error_result(key: str, error: ErrorCode, message: str) -> wire.Coordinator:
    return wire.Coordinator(key=key, node_id=-1, port=-1, error_code=int(error), error_message=message)


def transaction_log(config: BrokerConfig) -> CreatableTopic:
    """Return __transaction_state with Kafka's settings. Unclean election is off: an unclean leader might lack decisions
    that were already answered to clients.
    """
    settings = {
        "unclean.leader.election.enable": "false",
        "compression.type": "uncompressed",
        # As in Kafka. Logs are not compacted here, but retention leaves a log without "delete" alone.
        "cleanup.policy": "compact",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
    }
    return CreatableTopic(
        name=transaction_coordinator.TOPIC,
        num_partitions=config.transaction_state_log_num_partitions,
        replication_factor=config.transaction_state_log_replication_factor,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
    )


def offsets_log(config: BrokerConfig) -> CreatableTopic:
    """Return __consumer_offsets with Kafka's settings."""
    settings = {
        "compression.type": "producer",
        # As above: nothing may delete the oldest offsets and groups.
        "cleanup.policy": "compact",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    return CreatableTopic(
        name=group_coordinator.TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
    )


class _CoordinatorTopic(NamedTuple):
    """Names the topic of a coordinator's log (__consumer_offsets or __transaction_state), and holds the function that
    creates it.
    """

    name: str
    as_created: Callable[[BrokerConfig], CreatableTopic]


_LOGS = {
    GROUP: _CoordinatorTopic(group_coordinator.TOPIC, offsets_log),
    TRANSACTION: _CoordinatorTopic(transaction_coordinator.TOPIC, transaction_log),
}
