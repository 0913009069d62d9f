"""Asks the current leader of a partition at which offsets its leader epochs start (KIP-101, KIP-320)."""

from __future__ import annotations

from squall.broker.protocol.errors import ErrorCode, name_of
from squall.broker.protocol.schema.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from squall.workloads.client.client import Client
from squall.workloads.client.connection import RequestFailed
from squall.workloads.client.consumer import CONSUMER_REPLICA_ID

MOST = 1000
"""Limits how many epochs of one partition are requested."""


async def leader_epochs(client: Client, topic: str, index: int) -> list[list[int]]:
    """Return [epoch, start offset] of each epoch that the partition's leader knows, ascending; the last is the current
    epoch.

    Epochs without records may be missing. Raises RequestFailed, UnsupportedApi.
    """
    leader = client.view.leader(topic, index)
    if leader is None:
        client.refresh_soon()
        raise RequestFailed("no leader", sent=False)
    found: list[list[int]] = []
    epoch = leader.epoch
    while epoch > 0 and len(found) < MOST:
        # An epoch starts where the epochs below it end.
        below = await _end(client, leader.node_id, topic, index, leader.epoch, epoch - 1)
        if below.leader_epoch < 0 or below.end_offset < 0:
            break
        found.append([epoch, below.end_offset])
        epoch = below.leader_epoch
    return [[epoch, 0], *reversed(found)]


async def _end(client: Client, node_id: int, topic: str, index: int, current: int, epoch: int) -> EpochEndOffset:
    asked = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(index, current, epoch)])
    request = OffsetForLeaderEpochRequest(CONSUMER_REPLICA_ID, [asked])
    answer = await client.ask_node(node_id, request, OffsetForLeaderEpochResponse)
    end: EpochEndOffset = answer.topics[0].partitions[0]
    if end.error_code != ErrorCode.NONE:
        client.refresh_soon()
        raise RequestFailed(name_of(end.error_code), sent=True)
    return end
