"""Handles DescribeProducers: lists the producers of a partition and their open transactions (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.cluster.names import name_fault
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.net.fair_scheduler import give_way
from squall.broker.protocol.errors import ErrorCode, cut_short
from squall.broker.protocol.schema.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from squall.broker.work import DONE

if TYPE_CHECKING:
    from squall.broker.log.producer_rules import ProducerStateEntry
    from squall.broker.protocol.schema.describe_producers import DescribeProducersRequest
    from squall.broker.replicas.replica_manager import ReplicaManager


MOST_AT_ONCE = 500
"""Limits the partitions and producers that are described before other tasks run."""


def describe_producers(
    replicas: ReplicaManager, request: DescribeProducersRequest
) -> DescribeProducersResponse | DeferredResponse:
    """Return the producers of each partition as the local replica knows them, leader or not: `kafka-transactions
    find-hanging --broker-id` asks followers, too. Producers that this replica has forgotten are not named.
    """
    topics = [TopicResponse(name=topic.name) for topic in request.topics]
    response = DescribeProducersResponse(topics=topics)
    pairs = zip(topics, request.topics, strict=True)
    asked = [(result, index) for result, topic in pairs for index in topic.partition_indexes]
    seen: set[tuple[str, int]] = set()
    if len(asked) <= MOST_AT_ONCE:
        for result, index in asked:
            result.partitions.append(_describe(replicas, result.name, index, seen))
        return response

    async def wait() -> DescribeProducersResponse:
        left = MOST_AT_ONCE
        for result, index in asked:
            result.partitions.append(part := _describe(replicas, result.name, index, seen))
            cost = 1 + len(part.active_producers)
            left -= cost
            DONE.entries += cost
            if left < 0:
                await give_way()
                left = MOST_AT_ONCE
        return response

    return DeferredResponse(wait, holds=True)


def _describe(replicas: ReplicaManager, name: str, index: int, seen: set[tuple[str, int]]) -> PartitionResponse:
    """Return the producers of one partition. A repeated partition is refused, because it may have thousands of
    producers.
    """
    if (name, index) in seen:
        return PartitionResponse(partition_index=index, error_code=int(ErrorCode.INVALID_REQUEST))
    seen.add((name, index))
    if (wrong := name_fault(name)) is not None:
        message = cut_short(f"Topic name is invalid: {wrong}")
        return PartitionResponse(index, int(ErrorCode.INVALID_TOPIC_EXCEPTION), message)
    key = name.encode()
    h = replicas.by_name.get(key, {}).get(index)
    if h is None:
        error, _ = replicas.absent(key, index, by_id=False)
        return PartitionResponse(index, int(error), cut_short(f"{name}-{index} is not on this broker"))
    known = [_state(producer_id, entry) for producer_id, entry in h.log.producers.entries.items()]
    return PartitionResponse(partition_index=index, active_producers=known)


def _state(producer_id: int, entry: ProducerStateEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.window[-1].last_sequence if entry.window else -1,
        last_timestamp=entry.timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )
