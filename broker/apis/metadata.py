"""Handles Metadata: leaders of partitions, addresses of brokers, and the automatic creation of topics (mechanism P1 in
docs/mechanisms.md).

A response depends on the image, the listener, the version, the requested topics and the broker named as controller.
`MetadataHandler.encode` keeps encoded responses until the image changes in something that the responses contain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.apis.describe import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS, known_controller
from squall.broker.cluster.names import INTERNAL_TOPICS, name_fault
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema import metadata as wire
from squall.broker.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from squall.broker.apis.describe import AdminContext
    from squall.broker.apis.topic_creation import TopicCreator
    from squall.broker.cluster.image import Broker, ClusterImage, PartitionImage, Topic

FIRST_WITH_ENDPOINT_ERRORS = 1
"""Is the first version of Metadata that lists replicas without an address, too. Version 0 leaves such replicas out, and
reports REPLICA_NOT_AVAILABLE for the partition.
"""
FIRST_WITH_LISTENER_ERRORS = 6
FIRST_WITH_NULL_FOR_ALL = 1
FIRST_BY_ID = 12
"""Is the first version of Metadata that accepts topic ids in requests. The field exists since version 10."""
FIRST_WITH_ERROR = 13
"""Is the first version of Metadata whose response has an error for the whole request, beside those of single topics."""
MAX_CACHED = 256

CacheKey = tuple[int, str, int, tuple[tuple[bytes, str | None], ...] | None, bool, bool]


class MetadataHandler:
    """Answers Metadata requests without waiting."""

    def __init__(self, context: AdminContext, creator: TopicCreator) -> None:
        self._context, self._creator = context, creator
        self._cached: dict[CacheKey, bytes] = {}
        self._cached_version = -1

    def encode(self, request: wire.MetadataRequest, version: int, listener: str) -> bytes:
        """Return the encoded response without header, from the cache if possible."""
        context = self._context
        image = context.image
        if self._cached_version != image.version or len(self._cached) >= MAX_CACHED:
            self._cached.clear()
            self._cached_version = image.version
        asked = asked_topics(request, version)
        cluster_operations = request.include_cluster_authorized_operations
        topic_operations = request.include_topic_authorized_operations
        controller_id = known_controller(context, listener)
        key = (version, listener, controller_id, asked, cluster_operations, topic_operations)
        found = self._cached.get(key)
        if found is None:
            response = self.answer(request, version, listener)
            found = response.encode(version)
            # A response with errors is not kept: each request for an unknown topic must try to create it (`_unknown`).
            if all(topic.error_code == 0 for topic in response.topics):
                self._cached[key] = found
        return found

    def answer(self, request: wire.MetadataRequest, version: int, listener: str) -> wire.MetadataResponse:
        """Return the response. If auto-creation is allowed, the creation of unknown topics begins: see `TopicCreator`.
        """
        context = self._context
        image = context.image
        view = TopicDescriber(image, listener, version)
        if refused := refusal_of(request, version):
            return _refused(request, refused, version)
        response = wire.MetadataResponse(
            brokers=[
                wire.MetadataResponseBroker(
                    node_id=broker.id,
                    host=broker.endpoints[listener][0],
                    port=broker.endpoints[listener][1],
                    rack=broker.rack,
                )
                for broker in view.live.values()
            ],
            cluster_id=context.cluster_id,
            controller_id=known_controller(context, listener),
            topics=self._topics(request, version, view),
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    def _topics(
        self, request: wire.MetadataRequest, version: int, view: TopicDescriber
    ) -> list[wire.MetadataResponseTopic]:
        operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
        asked = asked_topics(request, version)
        if asked is None:
            return [view.topic(topic, operations) for topic in view.image.topics_by_id.values()]
        topics = []
        for topic_id, name in asked:
            topic = view.image.topics_by_id.get(topic_id) if name is None else view.image.topic(name)
            if topic is not None:
                topics.append(view.topic(topic, operations))
            elif name is None:
                topics.append(
                    wire.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
                )
            else:
                topics.append(self._unknown(name, request.allow_auto_topic_creation))
        return topics

    def _unknown(self, name: str, may_be_made: bool) -> wire.MetadataResponseTopic:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name_fault(name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif may_be_made and name not in INTERNAL_TOPICS and self._context.config.auto_create_topics_enable:
            self._creator.create(name)
        return wire.MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def refusal_of(request: wire.MetadataRequest, version: int) -> ErrorCode:
    """Return the error of the whole request, as Kafka 4.3.1 does: INVALID_REQUEST if topics are named by id in a
    version that has the field but does not accept ids yet; UNKNOWN_SERVER_ERROR if a topic has neither name nor id.
    """
    topics = request.topics or ()
    is_nameless = any(topic.name is None for topic in topics)
    has_ids = any(topic.topic_id != ZERO_UUID for topic in topics)
    if version < FIRST_BY_ID:
        return ErrorCode.INVALID_REQUEST if is_nameless or has_ids else ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if is_nameless and not has_ids else ErrorCode.NONE


def _refused(request: wire.MetadataRequest, error: ErrorCode, version: int) -> wire.MetadataResponse:
    """Return the response to a refused request: the error for each topic, and no brokers, as with Kafka 4.3.1."""
    topics = [
        wire.MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()
    ]
    return wire.MetadataResponse(topics=topics, error_code=error if version >= FIRST_WITH_ERROR else ErrorCode.NONE)


def asked_topics(request: wire.MetadataRequest, version: int) -> tuple[tuple[bytes, str | None], ...] | None:
    """Return (id, name) of each requested topic, without duplicates, or None for all topics. The name is None for a
    topic requested by id. A request with any id asks by id alone and its names are ignored: Java's clients send the
    empty name beside an id (KIP-516, KAFKA-10774; measured with Kafka 4.3.1).
    """
    # Version 0 asks for all topics by an empty list. Later versions do so by null, and ask for none by an empty list.
    if request.topics is None or (version < FIRST_WITH_NULL_FOR_ALL and not request.topics):
        return None
    ids = [topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID]
    if ids:
        return tuple((topic_id, None) for topic_id in dict.fromkeys(ids))
    return tuple((ZERO_UUID, name) for name in dict.fromkeys(topic.name for topic in request.topics))


class TopicDescriber:
    """Describes topics of the image as clients of one version see them on one listener."""

    def __init__(self, image: ClusterImage, listener: str, version: int) -> None:
        self.image = image
        self.live: dict[int, Broker] = {
            broker.id: broker
            for broker in sorted(image.brokers.values(), key=lambda broker: broker.id)
            if not broker.fenced and listener in broker.endpoints
        }
        self._no_endpoint = (
            ErrorCode.LISTENER_NOT_FOUND if version >= FIRST_WITH_LISTENER_ERRORS else ErrorCode.LEADER_NOT_AVAILABLE
        )
        self._only_live = version < FIRST_WITH_ENDPOINT_ERRORS

    def topic(self, topic: Topic, operations: int) -> wire.MetadataResponseTopic:
        """Describe one topic with all of its partitions. `operations` is the bit set of authorized operations, or
        NOT_ASKED.
        """
        return wire.MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[self.partition(index, partition) for index, partition in topic.partitions.items()],
            topic_authorized_operations=operations,
        )

    def partition(self, index: int, partition: PartitionImage) -> wire.MetadataResponsePartition:
        """Describe one partition, with the error code for the client."""
        code, leader = ErrorCode.NONE, partition.leader
        if leader not in self.live:
            broker = self.image.brokers.get(leader)
            unfenced = broker is not None and not broker.fenced
            code = self._no_endpoint if unfenced else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_NODE
        replicas, isr = list(partition.replicas), list(partition.isr)
        if self._only_live:
            replicas, isr = self._reachable(replicas), self._reachable(isr)
            if code == ErrorCode.NONE and (len(replicas), len(isr)) != (len(partition.replicas), len(partition.isr)):
                code = ErrorCode.REPLICA_NOT_AVAILABLE
        return wire.MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=[replica for replica in partition.replicas if replica not in self.live],
        )

    def _reachable(self, replicas: list[int]) -> list[int]:
        return [replica for replica in replicas if replica in self.live]
