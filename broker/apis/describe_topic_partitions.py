"""Handles DescribeTopicPartitions: describes topics page by page, with their eligible leader replicas (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.apis.describe import TOPIC_OPERATIONS
from squall.broker.apis.metadata import TopicDescriber
from squall.broker.cluster.names import INTERNAL_TOPICS, name_fault
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import describe_topic_partitions as wire

if TYPE_CHECKING:
    from squall.broker.apis.describe import AdminContext
    from squall.broker.cluster.image import ClusterImage, Topic

MOST_PARTITIONS = 2000
"""Limits the partitions of one response, whatever the request asks for (Kafka's max.request.partition.size.limit)."""
LATEST_METADATA = 13
"""Is the version of Metadata whose error codes are used for the partitions."""


def describe_topic_partitions(
    context: AdminContext, request: wire.DescribeTopicPartitionsRequest, listener: str
) -> wire.DescribeTopicPartitionsResponse:
    """Describe topics in order of their names, from the cursor of the request on, until the response is full. A full
    response has a cursor for the next request.
    """
    image, cursor = context.image, request.cursor
    view = TopicDescriber(image, listener, LATEST_METADATA)
    left = min(MOST_PARTITIONS, max(1, request.response_partition_limit))
    first_name = cursor.topic_name if cursor is not None else ""
    response = wire.DescribeTopicPartitionsResponse()
    for name in _names(image, request, first_name):
        topic = image.topic(name)
        if topic is None:
            error = ErrorCode.INVALID_TOPIC_EXCEPTION if name_fault(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown = wire.DescribeTopicPartitionsResponseTopic(error_code=error, name=name)
            unknown.topic_authorized_operations = TOPIC_OPERATIONS
            response.topics.append(unknown)
            continue
        if not left:
            response.next_cursor = wire.DescribeTopicPartitionsResponseCursor(name, 0)
            break
        start = cursor.partition_index if cursor is not None and name == first_name else 0
        wanted = [index for index in sorted(topic.partitions) if index >= start]
        response.topics.append(_topic(view, topic, wanted[:left]))
        if len(wanted) > left:
            response.next_cursor = wire.DescribeTopicPartitionsResponseCursor(name, wanted[left])
            break
        left -= len(wanted)
    return response


def _names(image: ClusterImage, request: wire.DescribeTopicPartitionsRequest, first: str) -> list[str]:
    asked = [topic.name for topic in request.topics] or list(image.topic_ids)
    return [name for name in sorted(dict.fromkeys(asked)) if name >= first]


def _topic(view: TopicDescriber, topic: Topic, indexes: list[int]) -> wire.DescribeTopicPartitionsResponseTopic:
    return wire.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(view, topic, index) for index in indexes],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(view: TopicDescriber, topic: Topic, index: int) -> wire.DescribeTopicPartitionsResponsePartition:
    partition = topic.partitions[index]
    described = view.partition(index, partition)
    return wire.DescribeTopicPartitionsResponsePartition(
        error_code=described.error_code,
        partition_index=index,
        leader_id=described.leader_id,
        leader_epoch=described.leader_epoch,
        replica_nodes=described.replica_nodes,
        isr_nodes=described.isr_nodes,
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=described.offline_replicas,
    )
