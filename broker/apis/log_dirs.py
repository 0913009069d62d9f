"""Handles DescribeLogDirs: reports size and lag of the replicas on this broker (KIP-113, KIP-827)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.protocol.schema.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager


def describe_log_dirs(replicas: ReplicaManager, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Return the one log directory, with the requested replicas in it, or with all replicas if the request names no
    topics.

    Replicas that are not on this broker are left out, as Kafka does. The size of a volume is -1 if it is unknown.
    """
    asked = None if request.topics is None else {each.topic: frozenset(each.partitions) for each in request.topics}
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for hosted in replicas.hosted():
        name, index = hosted.log.topic, hosted.state.index
        if asked is None or index in asked.get(name, ()):
            topics.setdefault(name, []).append(_partition(hosted))
    found = [DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    total, usable = replicas.space()
    directory = DescribeLogDirsResult(log_dir=replicas.log_dir, topics=found, total_bytes=total, usable_bytes=usable)
    return DescribeLogDirsResponse(results=[directory])


def _partition(hosted: HostedPartition) -> DescribeLogDirsPartition:
    """Return size (in bytes) and lag of a replica. The lag is the number of offsets by which the log's end is behind
    the high watermark; it is 0 unless the replica is catching up.
    """
    lag = max(0, hosted.state.high_watermark - hosted.state.log_end_offset)
    return DescribeLogDirsPartition(
        partition_index=hosted.state.index, partition_size=hosted.log.size, offset_lag=lag, is_future_key=False
    )
